"""Every cell of every table of the core, against expectations that are written out here."""

from __future__ import annotations

import numpy as np
import pytest

from kvairlock.core.ends import ENDS, ClientGets, End, end_for
from kvairlock.core.errors import REASONS, Fault, InvariantBroken, Reason, Refusal, Stage
from kvairlock.core.evidence import (
    ENVELOPE,
    EVENTS,
    RENAMED,
    SCHEMAS_READ,
    Kind,
    Sensitivity,
)
from kvairlock.core.guards import GUARDS, Guard, GuardSet
from kvairlock.core.memory.page import CONTENT_ENDS, LOOKUP, REFUSED, TABLE, PageStage, Verb
from kvairlock.core.memory.pool import Pool
from kvairlock.core.protocol.handoff import HANDOFF, HandoffStage, Signal, advance
from kvairlock.core.terms import Incarnation, Owner, Role

PAGE_GRID = """
             reserve  fill    grant   seal   admit    share  retire   quarantine  fence  scrub    free withdraw  restore
free         reserved .       .       .      .        .      .        .           .      .        .    withdrawn .
reserved     .        filling landing .      readable .      draining quarantined .      .        .    .         .
filling      .        filling .       sealed .        .      draining quarantined .      .        .    .         .
landing      .        .       .       .      readable .      draining quarantined .      .        .    .         .
sealed       .        .       .       .      .        shared draining quarantined .      .        .    .         .
readable     .        .       .       .      .        .      draining quarantined .      .        .    .         .
shared       .        .       .       .      .        .      draining quarantined .      .        .    .         .
draining     .        .       .       .      .        .      .        quarantined fenced .        .    .         .
quarantined  .        .       .       .      .        .      .        .           fenced .        .    .         .
fenced       .        .       .       .      .        .      .        .           .      scrubbed .    .         .
scrubbed     .        .       .       .      .        .      .        .           .      .        free .         .
withdrawn    .        .       .       .      .        .      .        .           .      .        .    .         scrubbed
"""  # noqa: E501

HANDOFF_GRID = """
           grant   report   confirm   recover    close
offered    granted .        .         recovering closed
granted    .       reported .         recovering closed
reported   .       .        confirmed recovering closed
recovering .       .        confirmed .          closed
confirmed  .       .        .         .          closed
closed     .       .        .         .          .
"""

ENDS_GRID = """
           may_hand_over tells_peer drains client
completed  yes           no         yes    answer
rejected   no            yes        yes    reason
cancelled  no            yes        yes    nothing
timed_out  no            yes        yes    reason
failed     no            yes        yes    reason
"""

REASON_GRID = """
                  fault   status code                         retry_s end
identity          peer    502    handoff_identity_mismatch    -       failed
tenant            client  403    ticket_of_another_tenant     -       rejected
input             client  403    ticket_for_another_input     -       rejected
computed_input    peer    502    handoff_input_mismatch       -       failed
model_layout      peer    502    model_layout_mismatch        -       failed
version           peer    502    version_mismatch             -       failed
page_index        peer    502    handoff_page_index_mismatch  -       failed
range             peer    502    handoff_range_mismatch       -       failed
generation        peer    502    handoff_generation_mismatch  -       failed
integrity         peer    502    handoff_integrity_mismatch   -       failed
peer_rejected     peer    502    prefill_rejected             -       rejected
peer_lost         peer    503    node_lost                    1       failed
missing_evidence  peer    502    missing_evidence             -       failed
expired           client  403    ticket_expired               -       rejected
replayed          client  409    ticket_already_used          -       rejected
forged            client  403    ticket_forged                -       rejected
malformed         client  400    malformed                    -       rejected
context_length    client  400    context_length_exceeded      -       rejected
capacity          load    503    route_full                   1       rejected
draining          load    503    draining                     2       rejected
tenant_share      load    429    tenant_share_exceeded        2       rejected
route_closed      load    503    route_closed                 5       rejected
timeout           load    504    timed_out                    2       timed_out
cancelled         client  499    client_left                  -       cancelled
engine            ours    500    engine_failed                -       failed
invariant         ours    500    isolation_invariant_broken   -       failed
"""


def grid(text: str) -> dict[str, dict[str, str]]:
    """Read a grid: first row the columns, then one row per name."""
    head, *rows = [line.split() for line in text.strip().splitlines()]
    return {row[0]: dict(zip(head, row[1:], strict=True)) for row in rows}


PAGES, HANDOFFS = grid(PAGE_GRID), grid(HANDOFF_GRID)
PAGE_CELLS = [(stage, verb) for stage in PageStage for verb in Verb]
HANDOFF_CELLS = [(stage, signal) for stage in HandoffStage for signal in Signal]


def test_the_grids_cover_every_name() -> None:
    assert list(PAGES) == [stage.name.lower() for stage in PageStage]
    assert all(list(row) == [verb.name.lower() for verb in Verb] for row in PAGES.values())
    assert len(PAGE_CELLS) == 12 * 13
    assert list(HANDOFFS) == [str(stage) for stage in HandoffStage]
    assert all(list(row) == [str(signal) for signal in Signal] for row in HANDOFFS.values())


@pytest.mark.parametrize(("stage", "verb"), PAGE_CELLS)
def test_a_cell_of_the_page_table(stage: PageStage, verb: Verb) -> None:
    """The table, and what a pool does with a page in that stage."""
    expected = PAGES[stage.name.lower()][verb.name.lower()]
    after = TABLE[stage].get(verb)
    assert (after.name.lower() if after is not None else ".") == expected
    pool = Pool(2, 4, Incarnation("i"))
    pool.stage[1] = stage
    pages = np.array([1], dtype=np.int32)
    if expected == ".":
        with pytest.raises(InvariantBroken, match=rf"{verb.name} on page 1 in {stage.name}"):
            pool._apply(verb, pages)
        assert pool.stage[1] == stage
    else:
        pool._apply(verb, pages)
        assert PageStage(pool.stage[1]).name.lower() == expected


def test_one_bad_page_of_a_span_stops_the_whole_verb() -> None:
    pool = Pool(3, 4, Incarnation("i"))
    pool.stage[:] = [PageStage.FILLING, PageStage.READABLE, PageStage.FILLING]
    with pytest.raises(InvariantBroken, match="SEAL on page 1 in READABLE"):
        pool._apply(Verb.SEAL, np.arange(3, dtype=np.int32))
    assert pool.stage.tolist() == [PageStage.FILLING, PageStage.READABLE, PageStage.FILLING]


def test_the_lookup_equals_the_table() -> None:
    assert LOOKUP.shape == (len(PageStage), len(Verb))
    for stage, verb in PAGE_CELLS:
        assert LOOKUP[stage, verb] == TABLE[stage].get(verb, REFUSED), (stage, verb)
    assert all(stage >= 0 for stage in PageStage), "REFUSED is no stage"


def test_the_values_of_stages_and_verbs_index_the_lookup() -> None:
    assert [int(stage) for stage in PageStage] == list(range(len(PageStage)))
    assert [int(verb) for verb in Verb] == list(range(len(Verb)))


def test_one_edge_leads_to_free() -> None:
    edges = [(s, v) for s in PageStage for v, after in TABLE[s].items() if after is PageStage.FREE]
    assert edges == [(PageStage.SCRUBBED, Verb.FREE)]


def test_every_way_from_an_owned_page_to_free_goes_through_fence_and_scrub() -> None:
    """Walk every path that does not return: fence comes before scrub before free."""

    def paths(stage: PageStage, seen: tuple[PageStage, ...]) -> list[tuple[PageStage, ...]]:
        if stage is PageStage.FREE:
            return [(*seen, stage)]
        onward = [a for a in TABLE[stage].values() if a not in seen and a is not stage]
        return [path for after in onward for path in paths(after, (*seen, stage))]

    found = paths(PageStage.RESERVED, ())
    assert len(found) > 10
    tail = (PageStage.FENCED, PageStage.SCRUBBED, PageStage.FREE)
    assert all(path[-3:] == tail for path in found)
    ended = {PageStage.DRAINING, PageStage.QUARANTINED}
    assert all(path[-4] in ended for path in found)


def test_content_ends_at_retire_and_quarantine() -> None:
    assert frozenset({Verb.RETIRE, Verb.QUARANTINE}) == CONTENT_ENDS


@pytest.mark.parametrize("verb", sorted(CONTENT_ENDS))
def test_the_generation_turns_when_a_lease_ends_and_at_no_other_verb(verb: Verb) -> None:
    pool = Pool(4, 4, Incarnation("i"))
    lease = pool.reserve(Owner("t", "r", 1), 2)
    for step in (Verb.FILL, Verb.FILL, Verb.SEAL, Verb.SHARE):
        pool.advance(lease, step, lease.pages)
        assert pool.generation.tolist() == [0, 0, 0, 0]
    pool.end(lease, verb)
    turned = pool.generation.tolist()
    assert turned == [1, 1, 0, 0]
    pool.free(pool.scrub(pool.fence(lease, lease.fence)))
    assert pool.generation.tolist() == turned


@pytest.mark.parametrize(("stage", "signal"), HANDOFF_CELLS)
def test_a_cell_of_the_hand_over_table(stage: HandoffStage, signal: Signal) -> None:
    expected = HANDOFFS[stage][signal]
    if expected == ".":
        assert signal not in HANDOFF[stage]
        with pytest.raises(InvariantBroken, match=f"{signal} in {stage}"):
            advance(stage, signal)
    else:
        assert advance(stage, signal) == HANDOFF[stage][signal] == expected


@pytest.mark.parametrize("end", End)
def test_a_row_of_the_ends_table(end: End) -> None:
    expected = grid(ENDS_GRID)[end]
    row = ENDS[end]
    assert row.may_hand_over is (expected["may_hand_over"] == "yes")
    assert row.tells_peer is (expected["tells_peer"] == "yes")
    assert row.drains is (expected["drains"] == "yes")
    assert row.client == ClientGets(expected["client"])


def test_the_ends_table_has_all_ends_and_no_other() -> None:
    assert list(ENDS) == list(End) == list(grid(ENDS_GRID))


@pytest.mark.parametrize("reason", Reason)
def test_a_row_of_the_reasons_table(reason: Reason) -> None:
    expected = grid(REASON_GRID)[reason]
    row = REASONS[reason]
    assert row.fault == Fault(expected["fault"])
    assert row.http_status == int(expected["status"])
    assert row.code == expected["code"]
    retry = "-" if row.retry_after_s is None else str(row.retry_after_s)
    assert retry == expected["retry_s"]
    assert end_for(reason) == End(expected["end"])
    assert Refusal(reason, Stage.GATEWAY, "m").row is row


def test_every_reason_is_expected_and_no_other_and_codes_differ() -> None:
    assert set(REASONS) == set(Reason) == set(grid(REASON_GRID))
    codes = [row.code for row in REASONS.values()]
    assert len(set(codes)) == len(codes)


def test_no_refusal_is_a_completion() -> None:
    assert not [reason for reason in Reason if ENDS[end_for(reason)].may_hand_over]


def test_load_reasons_say_when_to_come_back_and_client_faults_never_do() -> None:
    for row in REASONS.values():
        if row.fault is Fault.LOAD:
            assert row.retry_after_s is not None
            assert row.http_status in {429, 503, 504}
        if row.fault is Fault.CLIENT:
            assert row.retry_after_s is None
            assert 400 <= row.http_status < 500


def test_a_name_has_one_kind_in_all_events() -> None:
    kinds: dict[str, set[Kind]] = {}
    for row in (ENVELOPE, *EVENTS.values()):
        for name, field in row.items():
            kinds.setdefault(name, set()).add(field.kind)
    assert {name: found for name, found in kinds.items() if len(found) > 1} == {}


def test_every_pseudonym_says_what_it_stands_for_and_nothing_else_does() -> None:
    fields = [field for row in EVENTS.values() for field in row.values()]
    pseudonyms = [field for field in fields if field.sensitivity is Sensitivity.PSEUDONYM]
    assert {field.stands_for for field in pseudonyms} == {"tenant", "request", "scope"}
    assert {f.stands_for for f in fields if f.sensitivity is Sensitivity.OPERATIONAL} == {""}


def test_fields_that_were_renamed_are_what_their_event_has_now() -> None:
    for (schema, event), names in RENAMED.items():
        assert schema in SCHEMAS_READ
        assert set(names.values()) <= set(EVENTS[event])
        assert not set(names) & set(EVENTS[event])


def test_every_guard_has_a_row_with_roles_and_words() -> None:
    assert list(GUARDS) == list(Guard)
    for guard, row in GUARDS.items():
        assert row.roles, guard
        assert set(row.roles) <= set(Role)
        assert row.does
        assert row.without


@pytest.mark.parametrize("guard", Guard)
def test_a_guard_is_on_unless_it_is_named(guard: Guard) -> None:
    off = GuardSet(frozenset({guard}))
    assert [g for g in Guard if not off.on(g)] == [guard]
    assert not off.all_on
    assert GuardSet().all_on


def test_an_unknown_guard_is_refused() -> None:
    with pytest.raises(ValueError, match="drian"):
        Guard("drian")
