"""What is lost, cut, dimmed or skewed makes evidence insufficient, and never anybody excluded."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ibis.backends import BaseBackend

from kvairlock.audit.histories import INCIDENTS, History, history
from kvairlock.audit.report import Class, Report
from kvairlock.audit.spans import TO_THE_END, Gap
from kvairlock.audit.stories import answered
from kvairlock.audit.synthetic import Conversation, Row, Stack
from tests.audit.auditing_made import audited

SKEW_NS = 3_600_000_000_000
Loss = Callable[[list[Row]], list[Row]]


def of_node(rows: Iterable[Row], node: str) -> list[Row]:
    return [row for row in rows if row["node"] == node]


def but_node(rows: Iterable[Row], node: str) -> list[Row]:
    return [row for row in rows if row["node"] != node]


def middle(rows: list[Row], node: str, event: str) -> int:
    """Where a record is of some event, about half-way through a life."""
    there = [i for i, row in enumerate(rows) if row["node"] == node and row["event"] == event]
    return there[len(there) // 2]


def lost_in_the_middle(rows: list[Row]) -> list[Row]:
    at = middle(rows, "decode-0", "verdict")
    return rows[:at] + rows[at + 1 :]


def counted_as_lost(rows: list[Row]) -> list[Row]:
    at = middle(rows, "decode-0", "drain_ended")
    envelope = {name: rows[at][name] for name in list(rows[at])[:8]}
    return [*rows[:at], envelope | {"event": "evidence_lost", "records": 1}, *rows[at + 1 :]]


def node_removed(rows: list[Row]) -> list[Row]:
    return but_node(rows, "prefill-0")


def tail_cut(rows: list[Row]) -> list[Row]:
    decode = of_node(rows, "decode-0")
    return but_node(rows, "decode-0") + decode[: len(decode) // 2]


def start_cut(rows: list[Row]) -> list[Row]:
    decode = of_node(rows, "decode-0")
    return but_node(rows, "decode-0") + decode[1:]


def clock_behind(rows: list[Row]) -> list[Row]:
    prefill = [r | {"at_unix_ns": r["at_unix_ns"] - SKEW_NS} for r in of_node(rows, "prefill-0")]
    return but_node(rows, "prefill-0") + prefill


def clock_set(rows: list[Row]) -> list[Row]:
    decode = of_node(rows, "decode-0")
    half = len(decode) // 2
    later = [r | {"at_unix_ns": r["at_unix_ns"] + SKEW_NS} for r in decode[half:]]
    return but_node(rows, "decode-0") + decode[:half] + later


def silence(rows: list[Row]) -> list[Row]:
    moved = []
    for row in rows:
        late = 60_000_000_000 if row["sequence"] > 40 else 0
        moved.append(row | {name: row[name] + late for name in ("at_unix_ns", "at_boot_ns")})
    return moved


def started(rows: list[Row], node: str, **fields: Any) -> list[Row]:
    def change(row: Row) -> Row:
        here = row["node"] == node and row["event"] == "node_started"
        return row | fields if here else row

    return [change(row) for row in rows]


def guard_disabled(rows: list[Row]) -> list[Row]:
    return started(rows, "decode-0", guards_off=["range"])


def guard_observing(rows: list[Row]) -> list[Row]:
    return started(rows, "decode-0", relaxed=["prefill-0/decode-0 range observing: pilot"])


def guards_unknown(rows: list[Row]) -> list[Row]:
    return started(rows, "decode-0", guards_off=None)


def restarted(rows: list[Row]) -> list[Row]:
    """The decode node's second half is told by another life of it."""
    decode = of_node(rows, "decode-0")
    half = len(decode) // 2
    again = {"incarnation": "0123456789abcdef"}
    second = [r | again | {"sequence": i} for i, r in enumerate(decode[half:], start=2)]
    return [*but_node(rows, "decode-0"), *decode[:half], decode[0] | again, *second]


def drilled(rows: list[Row]) -> list[Row]:
    """The beat at the end of a life becomes a failpoint at its second number."""
    decode = of_node(rows, "decode-0")
    envelope = {name: decode[1][name] for name in list(decode[1])[:8]}
    mark = envelope | {"event": "failpoint", "point": "decode.step", "action": "arm"}
    return [*but_node(rows, "decode-0"), decode[0], mark, *decode[2:]]


def field_missing(rows: list[Row]) -> list[Row]:
    return [row | {"verified": None} if row["event"] == "verdict" else row for row in rows]


def number_twice(rows: list[Row]) -> list[Row]:
    at = middle(rows, "decode-0", "read_started")
    return [*rows[:at], rows[at] | {"sequence": rows[at]["sequence"] - 1}, *rows[at + 1 :]]


LOSSES: dict[Loss, set[str]] = {
    lost_in_the_middle: {"events_lost"},
    counted_as_lost: {"events_lost"},
    node_removed: {"node_missing"},
    tail_cut: {"close_missing"},
    start_cut: {"events_lost", "start_unknown"},
    clock_behind: {"clocks_skewed"},
    clock_set: {"clock_stepped", "clocks_skewed"},
    silence: {"silent"},
    guard_disabled: {"guard_disabled"},
    guard_observing: {"guard_relaxed"},
    guards_unknown: {"start_unknown"},
    restarted: {"node_restarted"},
    drilled: {"failpoint"},
    field_missing: {"fields_missing"},
    number_twice: {"numbers_repeated"},
}
"""Each loss with a reason that it must give to somebody."""

CALM = {loss: history(100 + i) for i, loss in enumerate(LOSSES)}


@pytest.fixture(scope="module")
def report(engine: BaseBackend) -> Report:
    rows = [row for loss, made in CALM.items() for row in loss(list(made.rows))]
    return audited(engine, [*rows, *history(99).rows])


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.__name__)
def test_a_loss_makes_some_insufficient_and_says_why(report: Report, loss: Loss) -> None:
    made = CALM[loss]
    found = [v for v in report.verdicts(Class.INSUFFICIENT) if v.request in made.requests]
    assert LOSSES[loss] <= {reason for verdict in found for reason in verdict.reasons}


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.__name__)
def test_a_loss_makes_nobody_affected(report: Report, loss: Loss) -> None:
    affected = {verdict.request for verdict in report.verdicts(Class.AFFECTED)}
    assert not affected & CALM[loss].requests


def test_everybody_is_excluded_where_nothing_is_lost(report: Report) -> None:
    whole = history(99).requests
    assert {v.request for v in report.verdicts(Class.EXCLUDED)} & whole == whole


def test_a_node_without_evidence_is_named_with_who_named_it(report: Report) -> None:
    named = {(missing.node, missing.named_by) for missing in report.coverage.missing}
    assert ("prefill-0", "decode-0") in named


def test_a_request_on_another_route_than_an_observing_guard_is_not_touched_by_it(
    report: Report,
) -> None:
    made = CALM[guard_observing]
    elsewhere = {
        r["request"]
        for r in made.rows
        if r["event"] == "window_granted" and r["peer"] == "prefill-1"
    }
    assert {v.request for v in report.verdicts(Class.EXCLUDED)} & elsewhere == elsewhere


@st.composite
def harms(draw: st.DrawFn) -> Loss:
    """Something that happens to evidence by itself: records go, files are cut, fields are empty."""
    kind = draw(st.sampled_from(("drop", "cut", "node", "null", "event", "schema", "number")))
    share, length, which = draw(st.floats(0, 1)), draw(st.integers(1, 6)), draw(st.integers(0, 12))
    node = draw(st.sampled_from(("gateway", "decode-0", "decode-0", "prefill-0", "prefill-1")))

    def harm(rows: list[Row]) -> list[Row]:
        of, others = of_node(rows, node), but_node(rows, node)
        at = min(int(share * len(of)), len(of) - 1)
        hurt = of[at : at + length]
        if kind == "drop":
            return others + of[:at] + of[at + length :]
        if kind == "cut":
            return others + of[:at]
        if kind == "node":
            return others
        if kind == "null":
            # One field each, of those that are not in the envelope.
            names = [list(row)[8:] for row in hurt]
            hurt = [
                row | {name[which % len(name)]: None} if name else row
                for row, name in zip(hurt, names, strict=True)
            ]
        elif kind == "event":
            hurt = [row | {"event": "not_known"} for row in hurt]
        elif kind == "schema":
            hurt = [row | {"schema": 99} for row in hurt]
        else:
            hurt = [row | {"sequence": row["sequence"] + length} for row in hurt]
        return others + of[:at] + hurt + of[at + length :]

    return harm


PLANTED = {
    seed: history(seed, INCIDENTS[name], quiet=6) for seed, name in enumerate(INCIDENTS, 200)
}


def test_a_record_that_does_not_say_whose_it_is_hides_nothing(engine: BaseBackend) -> None:
    made = history(300, INCIDENTS["a receipt used twice"])
    rows = list(made.rows)
    twice = max(
        i
        for i, r in enumerate(rows)
        if r.get("request") in made.affected and r["event"] == "verdict"
    )
    rows[twice] = rows[twice] | {"request": None}
    (affected,) = made.affected
    found = audited(engine, rows).of(affected)
    assert found is not None
    assert found.verdict is Class.INSUFFICIENT
    assert "events_lost" in found.reasons


def test_an_allocation_without_its_pages_does_not_clear_who_still_used_them(
    engine: BaseBackend,
) -> None:
    made = history(301, INCIDENTS["a read of the next owner's pages"])
    user, owner = next(iter(made.met))
    rows = [
        r | {"pages": None}
        if r.get("request") == owner and r["event"] == "pages_allocated" and r["role"] == "decode"
        else r
        for r in made.rows
    ]
    found = audited(engine, rows).of(user)
    assert found is not None
    assert found.verdict is Class.INSUFFICIENT


def classes(report: Report) -> dict[str, Class]:
    return {verdict.request: verdict.verdict for verdict in report.verdicts()}


@pytest.fixture(scope="module")
def before(engine: BaseBackend) -> dict[str, Class]:
    return classes(audited(engine, [row for made in PLANTED.values() for row in made.rows]))


@pytest.mark.slow
@settings(
    max_examples=10,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(drawn=st.lists(harms(), min_size=len(PLANTED), max_size=len(PLANTED)))
def test_harm_to_evidence_never_makes_anybody_excluded(
    engine: BaseBackend, before: dict[str, Class], drawn: list[Loss]
) -> None:
    made: list[tuple[History, Loss]] = list(zip(PLANTED.values(), drawn, strict=True))
    after = classes(audited(engine, [r for one, harm in made for r in harm(list(one.rows))]))
    wrongly = {
        request
        for request, verdict in after.items()
        if verdict is Class.EXCLUDED and before[request] is not Class.EXCLUDED
    }
    assert not wrongly


def sequences(made: History, node: str, event: str) -> list[int]:
    return [r["sequence"] for r in made.rows if (r["node"], r["event"]) == (node, event)]


def without(made: History, node: str, sequence: int) -> list[Row]:
    return [r for r in made.rows if (r["node"], r["sequence"]) != (node, sequence)]


def after(made: History, node: str, sequence: int) -> set[str]:
    """Requests of which a node has recorded nothing up to a number."""
    there = {r["request"] for r in made.rows if "request" in r and r["node"] == node}
    early = {
        r["request"]
        for r in made.rows
        if "request" in r and r["node"] == node and r["sequence"] < sequence
    }
    return there - early


def test_a_loss_reaches_to_the_next_beat_at_which_all_leases_are_known(
    engine: BaseBackend,
) -> None:
    made = history(500)
    lost, beat = sequences(made, "decode-0", "verdict")[0], sequences(made, "decode-0", "beat")[0]
    report = audited(engine, without(made, "decode-0", lost))
    (span,) = report.coverage.spans
    assert (span.gap, span.since, span.until) == (Gap.EVENTS_LOST, lost, beat)
    later = after(made, "decode-0", beat)
    assert later
    assert {v.request for v in report.verdicts(Class.EXCLUDED)} >= later
    insufficient = [v for v in report.verdicts(Class.INSUFFICIENT) if "events_lost" in v.reasons]
    assert insufficient


@pytest.mark.parametrize("leases", [[10_000], None], ids=["of a lease nobody knows", "of none"])
def test_a_beat_that_does_not_account_for_all_pages_ends_no_loss(
    engine: BaseBackend, leases: list[int] | None
) -> None:
    made = history(501)
    lost = sequences(made, "decode-0", "verdict")[0]
    rows = [
        row | {"leases": leases} if row["event"] == "beat" else row
        for row in without(made, "decode-0", lost)
    ]
    (span,) = audited(engine, rows).coverage.spans
    assert (span.since, span.until) == (lost, TO_THE_END)


def test_an_allocation_that_is_lost_keeps_its_loss_open_while_its_lease_has_pages(
    engine: BaseBackend,
) -> None:
    stack = Stack(502)
    stack.start()
    stayer, later = Conversation(stack), Conversation(stack)
    story = answered(stayer)
    next(story)
    stack.beat()
    stack.play([answered(later)])
    for _ in story:
        stack.beat()
    stack.beat()
    stack.close()
    rows = stack.rows()
    lost = next(r for r in rows if r["event"] == "pages_allocated" and r["role"] == "decode")
    beats = [r for r in rows if r["event"] == "beat" and r["role"] == "decode"]
    clean = next(r["sequence"] for r in beats if lost["lease"] not in r["leases"])
    (span,) = audited(engine, [row for row in rows if row is not lost]).coverage.spans
    assert beats[0]["sequence"] < clean
    assert (span.since, span.until) == (lost["sequence"], clean)


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ({"relaxed": ["prefill-0/decode-0 range observing: pilot"]}, "guard_relaxed"),
        ({"points": ["decode.step"]}, "failpoint"),
    ],
)
def test_what_a_beat_says_is_believed_though_the_record_that_said_it_first_is_not_there(
    engine: BaseBackend, said: Row, reason: str
) -> None:
    made = history(503)
    beats = sequences(made, "decode-0", "beat")
    rows = [
        row | said if row["node"] == "decode-0" and row["sequence"] in beats else row
        for row in made.rows
    ]
    report = audited(engine, rows)
    (span,) = report.coverage.spans
    assert (str(span.gap), span.since, span.until) == (reason, beats[0], TO_THE_END)
    assert report.by_reason()[reason] > 0
