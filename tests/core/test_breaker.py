"""The breaker of a route: every cell of its table, each of its conditions, any order of signals."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kvairlock.core.errors import REASONS, Fault, Misuse, Reason, Refusal, Stage
from kvairlock.core.promise.breaker import (
    ADMITS,
    BREAKER,
    Breaker,
    BreakerSignal,
    BreakerState,
    Kept,
    Traffic,
)
from kvairlock.core.promise.conditions import (
    ATTRIBUTABLE,
    BREACHES,
    CONDITIONS,
    COUNTED,
    Condition,
    Conditions,
    Opening,
    Weight,
    weigh,
)
from kvairlock.core.promise.trial import (
    RECORDS,
    NodeMoment,
    RecordKind,
    RecoveryRecord,
    RouteMoment,
    Trial,
)
from kvairlock.core.terms import NS_PER_MS, Incarnation, Instant, NodeName

GRID = """
           fail   trip  try        change  close
closed     closed open  .          .       .
open       open   open  half_open  .       .
half_open  open   open  half_open  open    closed
"""
ADMITS_GRID = """
           service drill
closed     yes     yes
open       no      no
half_open  no      yes
"""
BOOTED = Instant(7_000_000 * NS_PER_MS)
"""Clocks count from the boot of the machine, not from the start of the gateway."""
WALL_S = 1_796_000_000
WITHIN_MS = 60_000
FAILURE = Refusal(Reason.PEER_REJECTED, Stage.VERDICT, "failed")
VIOLATION = Refusal(Reason.INTEGRITY, Stage.VERDICT, "violated")
BROKEN = Refusal(Reason.INVARIANT, Stage.DECODE, "broken")


def at(ms: int) -> Instant:
    return Instant(BOOTED + ms * NS_PER_MS)


def moment(decode_life: str = "d-1", epoch: int = 0, fingerprint: str = "f") -> RouteMoment:
    prefill = NodeMoment(NodeName("prefill-0"), Incarnation("p-1"), 0, "f")
    decode = NodeMoment(NodeName("decode-0"), Incarnation(decode_life), epoch, fingerprint)
    return RouteMoment(prefill, decode)


NOW = moment()
OTHERS = (moment("d-2"), moment(epoch=1), moment(fingerprint="g"))


def record(kind: RecordKind, of: RouteMoment = NOW) -> RecoveryRecord:
    return RecoveryRecord(kind, of, (f"{kind} was seen",), WALL_S)


def conditions(failures: int = 3, violations: int = 1) -> Conditions:
    return Conditions(failures, violations, WITHIN_MS)


def breaker(failures: int = 3, violations: int = 1) -> Breaker:
    return Breaker(conditions(failures, violations))


def opened() -> Breaker:
    made = breaker()
    made.open(Condition.OPERATOR, WALL_S, "by hand")
    return made


def on_trial(*kinds: RecordKind) -> Breaker:
    made = opened()
    made.try_out(NOW)
    for kind in kinds:
        made.put_on_record(record(kind))
    return made


def in_state(state: BreakerState) -> Breaker:
    match state:
        case BreakerState.CLOSED:
            return breaker()
        case BreakerState.OPEN:
            return opened()
        case BreakerState.HALF_OPEN:
            return on_trial(*RecordKind)


def tell(made: Breaker, signal: BreakerSignal) -> None:
    """Do what a signal stands for."""
    match signal:
        case BreakerSignal.FAIL:
            made.failed(FAILURE, at(0), WALL_S)
        case BreakerSignal.TRIP:
            made.open(Condition.OPERATOR, WALL_S, "again")
        case BreakerSignal.TRY:
            made.try_out(NOW)
        case BreakerSignal.CHANGE:
            made.seen(OTHERS[0])
        case BreakerSignal.CLOSE:
            made.close(NOW)


def grid(text: str) -> dict[str, dict[str, str]]:
    head, *rows = [line.split() for line in text.strip().splitlines()]
    return {row[0]: dict(zip(head, row[1:], strict=True)) for row in rows}


# The table


@pytest.mark.parametrize(
    ("state", "signal"), list(product(BreakerState, BreakerSignal)), ids=lambda word: str(word)
)
def test_every_cell_of_the_table_is_as_written_here_and_as_the_breaker_moves(
    state: BreakerState, signal: BreakerSignal
) -> None:
    expected = grid(GRID)[state][signal]
    made = in_state(state)
    if expected != ".":
        assert BREAKER[state][signal] == expected
        tell(made, signal)
        assert made.state == expected
        return
    assert signal not in BREAKER[state]
    if signal is BreakerSignal.CHANGE:  # there is no trial that a change could end
        tell(made, signal)
    else:
        with pytest.raises(Misuse, match=state):
            tell(made, signal)
    assert made.state is state


def test_the_grids_name_all_states_signals_and_traffic() -> None:
    assert list(grid(GRID)) == list(BreakerState) == list(BREAKER) == list(ADMITS)
    assert all(list(row) == list(BreakerSignal) for row in grid(GRID).values())
    admits = {
        state: {kind: "yes" if kind in ADMITS[state] else "no" for kind in Traffic}
        for state in BreakerState
    }
    assert admits == grid(ADMITS_GRID)
    assert (list(CONDITIONS), list(RECORDS)) == (list(Condition), list(RecordKind))


# What counts


def test_only_what_says_something_against_a_node_can_count() -> None:
    faults = {reason: row.fault for reason, row in REASONS.items()}
    assert {faults[reason] for reason in ATTRIBUTABLE} == {Fault.PEER, Fault.OURS}
    every = frozenset(Reason)
    for reason, stage in product(Reason, Stage):
        weight = weigh(Refusal(reason, stage, ""), every)
        if reason is Reason.INVARIANT:
            assert weight is Weight.BROKEN
        elif faults[reason] in (Fault.CLIENT, Fault.LOAD):
            assert weight is Weight.NOTHING, (reason, stage)
        else:
            expected = Weight.VIOLATION if reason in BREACHES else Weight.FAILURE
            assert weight is expected, (reason, stage)


def test_a_reason_that_is_not_listed_weighs_nothing_but_a_broken_invariant_always_does() -> None:
    assert weigh(VIOLATION, frozenset({Reason.ENGINE})) is Weight.NOTHING
    assert weigh(BROKEN, frozenset()) is Weight.BROKEN
    lost = Refusal(Reason.PEER_LOST, Stage.TRANSFER, "lost")
    assert weigh(lost, frozenset(COUNTED)) is Weight.NOTHING
    assert weigh(lost, frozenset({Reason.PEER_LOST})) is Weight.FAILURE


def test_what_clients_and_load_cause_never_opens_it() -> None:
    made = Breaker(Conditions(1, 1, WITHIN_MS, frozenset(Reason)))
    for reason in Reason:
        if REASONS[reason].fault in (Fault.CLIENT, Fault.LOAD):
            for stage in Stage:
                assert made.failed(Refusal(reason, stage, ""), at(0), WALL_S) is Weight.NOTHING
    assert made.kept == Kept(BreakerState.CLOSED)


# When it opens


def test_it_opens_at_the_failure_that_the_settings_name_and_not_before() -> None:
    made = breaker(failures=3)
    for ms in (0, 1):
        assert made.failed(FAILURE, at(ms), WALL_S) is Weight.FAILURE
        assert made.state is BreakerState.CLOSED
    made.failed(FAILURE, at(2), WALL_S + 9)
    assert made.kept.opening == Opening(
        Condition.FAILURES, WALL_S + 9, 3, 3, Reason.PEER_REJECTED, Stage.VERDICT
    )


def test_failures_count_together_only_within_the_window() -> None:
    made = breaker(failures=2)
    made.failed(FAILURE, at(0), WALL_S)
    made.failed(FAILURE, at(WITHIN_MS), WALL_S)
    assert made.state is BreakerState.CLOSED, "the first was forgotten at that very moment"
    made.failed(FAILURE, at(2 * WITHIN_MS - 1), WALL_S)
    assert made.kept.opening is not None


def test_one_violation_opens_it_or_as_many_as_the_settings_say() -> None:
    made = breaker(failures=9, violations=1)
    assert made.failed(VIOLATION, at(0), WALL_S) is Weight.VIOLATION
    expected = Opening(Condition.VIOLATIONS, WALL_S, 1, 1, Reason.INTEGRITY, Stage.VERDICT)
    assert made.kept.opening == expected
    twice = breaker(failures=9, violations=2)
    twice.failed(VIOLATION, at(0), WALL_S)
    twice.failed(FAILURE, at(1), WALL_S)
    assert twice.state is BreakerState.CLOSED
    twice.failed(VIOLATION, at(2), WALL_S)
    assert twice.kept.opening == replace(expected, count=2, limit=2)


def test_violations_that_have_no_condition_of_their_own_are_failures() -> None:
    made = breaker(failures=2, violations=0)
    made.failed(VIOLATION, at(0), WALL_S)
    assert made.state is BreakerState.CLOSED
    made.failed(VIOLATION, at(1), WALL_S)
    assert made.kept.opening is not None
    assert made.kept.opening.condition is Condition.FAILURES


def test_one_broken_invariant_opens_it_whatever_the_settings_say() -> None:
    made = Breaker(Conditions(99, 99, WITHIN_MS, frozenset()))
    made.failed(BROKEN, at(0), WALL_S)
    assert made.kept.opening is not None
    assert made.kept.opening.condition is Condition.INVARIANT


def test_missing_evidence_is_a_failure_and_no_violation() -> None:
    made = breaker(failures=2, violations=1)
    made.failed(Refusal(Reason.MISSING_EVIDENCE, Stage.TRANSFER, ""), at(0), WALL_S)
    assert made.state is BreakerState.CLOSED


def test_what_it_opened_for_stands_until_an_operator_opens_it_anew() -> None:
    made = breaker()
    made.failed(VIOLATION, at(0), WALL_S)
    first = made.kept
    made.failed(BROKEN, at(1), WALL_S + 1)
    made.open(Condition.STATE_FILE, WALL_S + 2, "full")
    assert made.kept == first
    made.entered()
    assert made.kept.entered == 1
    made.open(Condition.OPERATOR, WALL_S + 3, "corrected")
    anew = Opening(Condition.OPERATOR, WALL_S + 3, detail="corrected")
    assert made.kept == Kept(BreakerState.OPEN, anew), "and what was entered counts from then on"


# Trials and records


@pytest.mark.parametrize("missing", RecordKind)
def test_it_does_not_close_with_one_record_missing(missing: RecordKind) -> None:
    made = on_trial(*(kind for kind in RecordKind if kind is not missing))
    before = made.kept
    with pytest.raises(Misuse, match=rf"not on record: {missing}$"):
        made.close(NOW)
    assert made.kept == before
    made.put_on_record(record(missing))
    made.close(NOW)
    assert made.state is BreakerState.CLOSED


def test_all_that_is_missing_is_named() -> None:
    with pytest.raises(Misuse, match="not on record: corrected, refuses, in_effect"):
        on_trial().close(NOW)


@pytest.mark.parametrize("other", OTHERS, ids=["life", "epoch", "fingerprint"])
def test_another_moment_of_a_node_ends_the_trial_and_voids_all_records(other: RouteMoment) -> None:
    made = on_trial(*RecordKind)
    with pytest.raises(Misuse, match="another moment"):
        made.close(other)
    made.seen(NOW)
    assert made.state is BreakerState.HALF_OPEN
    opening = made.kept.opening
    made.seen(other)
    assert made.kept == Kept(BreakerState.OPEN, opening)
    made.try_out(other)
    assert made.kept.trial == Trial(other)
    with pytest.raises(Misuse, match="about another moment"):
        made.put_on_record(record(RecordKind.CORRECTED, NOW))


def test_a_trial_of_the_same_moment_goes_on_and_one_of_another_begins_anew() -> None:
    made = on_trial(RecordKind.CORRECTED)
    made.try_out(NOW)
    assert made.kept.trial == Trial(NOW, (record(RecordKind.CORRECTED),))
    made.try_out(OTHERS[0])
    assert made.kept.trial == Trial(OTHERS[0])


def test_one_failure_in_a_trial_opens_it_again_with_nothing_on_record() -> None:
    for refusal in (FAILURE, VIOLATION):
        made = on_trial(*RecordKind)
        made.failed(refusal, at(0), WALL_S + 5)
        opening = Opening(Condition.TRIAL, WALL_S + 5, 1, 1, refusal.reason, refusal.stage)
        assert made.kept == Kept(BreakerState.OPEN, opening)
    with pytest.raises(Misuse, match="not on trial"):
        made.put_on_record(record(RecordKind.REFUSES))


def test_what_clients_cause_in_a_trial_changes_nothing() -> None:
    made = on_trial(RecordKind.CORRECTED)
    before = made.kept
    made.failed(Refusal(Reason.CONTEXT_LENGTH, Stage.PREFILL_ADMISSION, ""), at(0), WALL_S)
    assert made.kept == before


def test_what_was_entered_stands_when_a_trial_fails_and_only_an_operator_counts_anew() -> None:
    made = on_trial()
    made.entered()
    made.entered()
    made.failed(FAILURE, at(0), WALL_S)
    assert (made.state, made.kept.entered) == (BreakerState.OPEN, 2)
    made.try_out(NOW)
    made.open(Condition.TRIAL, WALL_S, "not refused")
    assert made.kept.entered == 2
    made.try_out(NOW)
    made.seen(OTHERS[0])
    assert made.kept.entered == 2
    made.open(Condition.OPERATOR, WALL_S, "mended")
    assert made.kept.entered == 0


def test_what_was_entered_before_it_closed_is_of_an_opening_that_is_over() -> None:
    made = on_trial(*RecordKind)
    made.entered()
    made.close(NOW)
    made.failed(VIOLATION, at(0), WALL_S)
    assert (made.state, made.kept.entered) == (BreakerState.OPEN, 0)


def test_a_later_record_takes_the_place_of_an_earlier_one_of_its_kind() -> None:
    made = on_trial(RecordKind.CORRECTED)
    later = replace(record(RecordKind.CORRECTED), at_unix_s=WALL_S + 1)
    made.put_on_record(later)
    assert made.kept.trial == Trial(NOW, (later,))


def test_a_closed_breaker_has_forgotten_the_failures_before() -> None:
    made = breaker(failures=2, violations=0)
    made.failed(FAILURE, at(0), WALL_S)
    made.failed(FAILURE, at(1), WALL_S)
    made.try_out(NOW)
    for kind in RecordKind:
        made.put_on_record(record(kind))
    made.close(NOW)
    made.failed(FAILURE, at(2), WALL_S)
    assert made.state is BreakerState.CLOSED


def test_requests_over_the_limits_are_counted_while_it_is_not_closed() -> None:
    made = breaker()
    made.entered()
    assert made.kept.entered == 0
    made = on_trial()
    made.entered()
    assert made.kept.entered == 1


# What is kept


@pytest.mark.parametrize(
    "kept",
    [
        Kept(BreakerState.OPEN),
        Kept(BreakerState.HALF_OPEN, Opening(Condition.OPERATOR, 1)),
        Kept(BreakerState.OPEN, Opening(Condition.OPERATOR, 1), Trial(NOW)),
        Kept(BreakerState.CLOSED, None, Trial(NOW)),
        Kept(BreakerState.CLOSED, None, None, -1),
        Kept(
            BreakerState.HALF_OPEN,
            Opening(Condition.OPERATOR, 1),
            Trial(NOW, (record(RecordKind.CORRECTED, OTHERS[0]),)),
        ),
        Kept(
            BreakerState.HALF_OPEN,
            Opening(Condition.OPERATOR, 1),
            Trial(NOW, (record(RecordKind.CORRECTED), record(RecordKind.CORRECTED))),
        ),
    ],
)
def test_what_no_breaker_can_be_like_is_no_breaker(kept: Kept) -> None:
    assert not kept.is_sound
    with pytest.raises(Misuse, match="no breaker"):
        Breaker(conditions(), kept)


@pytest.mark.parametrize("state", BreakerState)
def test_one_that_was_kept_is_the_same_afterwards(state: BreakerState) -> None:
    kept = in_state(state).kept
    assert Breaker(conditions(), kept).kept == kept


# Any order


MOMENTS = st.sampled_from((NOW, *OTHERS))
ENDS = st.sampled_from(
    (FAILURE, VIOLATION, BROKEN, *(Refusal(r, Stage.PREFILL, "") for r in Reason))
)


class AnyOrder(RuleBasedStateMachine):
    """A breaker beside a model that only knows which records were made since when."""

    def __init__(self) -> None:
        super().__init__()
        self.breaker = breaker(failures=2, violations=2)
        self.moment = NOW
        self.trial: RouteMoment | None = None
        self.shown: set[RecordKind] = set()
        self.now = BOOTED

    def ended(self) -> None:
        """Forget what was shown: the breaker is open."""
        self.trial, self.shown = None, set()

    @rule(ms=st.integers(0, WITHIN_MS))
    def time_passes(self, ms: int) -> None:
        self.now = Instant(self.now + ms * NS_PER_MS)

    @rule(refusal=ENDS)
    def fails(self, refusal: Refusal) -> None:
        weight = self.breaker.failed(refusal, self.now, WALL_S)
        attributable = refusal.row.fault in (Fault.PEER, Fault.OURS)
        assert attributable or weight is Weight.NOTHING
        if weight is not Weight.NOTHING and self.trial is not None:
            self.ended()

    @rule()
    def is_opened(self) -> None:
        self.breaker.open(Condition.OPERATOR, WALL_S, "by hand")
        self.ended()

    @rule(of=MOMENTS)
    def changes(self, of: RouteMoment) -> None:
        self.moment = of
        self.breaker.seen(of)
        if self.trial not in (None, of):
            self.ended()

    @precondition(lambda self: self.breaker.state is not BreakerState.CLOSED)
    @rule()
    def is_tried(self) -> None:
        self.breaker.try_out(self.moment)
        if self.trial != self.moment:
            self.trial, self.shown = self.moment, set()

    @precondition(lambda self: self.trial is not None)
    @rule(kind=st.sampled_from(RecordKind))
    def is_shown(self, kind: RecordKind) -> None:
        self.breaker.put_on_record(record(kind, self.moment))
        self.shown.add(kind)

    @rule()
    def is_closed(self) -> None:
        before = self.breaker.kept
        if self.trial is not None and self.shown == set(RecordKind):
            self.breaker.close(self.moment)
            assert self.breaker.state is BreakerState.CLOSED
            self.ended()
            return
        with pytest.raises(Misuse):
            self.breaker.close(self.moment)
        assert self.breaker.kept == before

    @rule()
    def dies_and_is_read_again(self) -> None:
        self.breaker = Breaker(conditions(2, 2), self.breaker.kept)

    @invariant()
    def the_records_are_those_that_were_shown_since_the_trial_began(self) -> None:
        kept = self.breaker.kept
        assert kept.is_sound
        assert (kept.trial is not None) == (self.trial is not None)
        if kept.trial is not None:
            assert kept.trial.moment == self.trial == self.moment
            assert {r.kind for r in kept.trial.records} == self.shown


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
