"""Trust in one route: when it is withdrawn, and what must be shown before it is given again.

    CLOSED -trip-> OPEN -try-> HALF_OPEN -close-> CLOSED
                   HALF_OPEN -fail, trip, change-> OPEN

A breaker that is closed lets requests through, one that is open lets none, one that is half-open
only an operator's drills. It opens on conditions that were written down before (`conditions`), and
closes on three records about the route as it is now (`trial`). Half-open, one failure opens it
again, and so does a node that is another one than the records are about.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from kvairlock.core.errors import Misuse, Refusal
from kvairlock.core.promise.conditions import Condition, Conditions, Opening, Weight, weigh
from kvairlock.core.promise.recent import Recent
from kvairlock.core.promise.trial import RecoveryRecord, RouteMoment, Trial
from kvairlock.core.terms import Instant


class BreakerState(StrEnum):
    """Whether requests get through."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class BreakerSignal(StrEnum):
    """What moves a breaker."""

    FAIL = "fail"
    """A request failed by its nodes' doing, and no condition is met by that."""
    TRIP = "trip"
    """A condition is met."""
    TRY = "try"
    """An operator begins a trial."""
    CHANGE = "change"
    """A node is another one than in the trial: another life, report or fingerprint."""
    CLOSE = "close"
    """An operator closes it, with all records."""


_B, _S = BreakerState, BreakerSignal

BREAKER: dict[BreakerState, dict[BreakerSignal, BreakerState]] = {
    _B.CLOSED: {_S.FAIL: _B.CLOSED, _S.TRIP: _B.OPEN},
    _B.OPEN: {_S.FAIL: _B.OPEN, _S.TRIP: _B.OPEN, _S.TRY: _B.HALF_OPEN},
    _B.HALF_OPEN: {
        _S.FAIL: _B.OPEN,
        _S.TRIP: _B.OPEN,
        _S.TRY: _B.HALF_OPEN,
        _S.CHANGE: _B.OPEN,
        _S.CLOSE: _B.CLOSED,
    },
}


class Traffic(StrEnum):
    """Whose requests want through."""

    SERVICE = "service"
    """Of tenants, and of whoever names no route."""
    DRILL = "drill"
    """Of an operator, who named this route."""


ADMITS: dict[BreakerState, frozenset[Traffic]] = {
    _B.CLOSED: frozenset(Traffic),
    _B.OPEN: frozenset(),
    _B.HALF_OPEN: frozenset({Traffic.DRILL}),
}
"""What gets through in which state."""


@dataclass(frozen=True, slots=True)
class Kept:
    """All of a breaker that outlives its process.

    Args:
        state: Its state.
        opening: Why it opened last; None if it never did.
        trial: The trial that it is in; None unless it is half-open.
        entered: Requests over the route's limits that were sent to it since it opened.
    """

    state: BreakerState
    opening: Opening | None = None
    trial: Trial | None = None
    entered: int = 0

    @property
    def is_sound(self) -> bool:
        """Whether a breaker can be like this."""
        if self.state is not _B.CLOSED and self.opening is None:
            return False
        if self.trial is None:
            return self.entered >= 0 and self.state is not _B.HALF_OPEN
        return self.entered >= 0 and self.state is _B.HALF_OPEN and self.trial.is_sound


NEVER_OPENED = Kept(BreakerState.CLOSED)


class Breaker:
    """The breaker of one route.

    Args:
        conditions: When it opens.
        kept: What was kept of it.

    Raises:
        Misuse: No breaker can be like what was kept.
    """

    def __init__(self, conditions: Conditions, kept: Kept = NEVER_OPENED) -> None:
        if not kept.is_sound:
            raise Misuse(f"no breaker can be {kept.state} like this")
        self._conditions = conditions
        self._failures = Recent(conditions.within_ms, conditions.failures)
        self._violations = Recent(conditions.within_ms, max(1, conditions.violations))
        self.kept = kept

    @property
    def state(self) -> BreakerState:
        """Whether requests get through."""
        return self.kept.state

    def failed(self, refusal: Refusal, now: Instant, unix_s: int) -> Weight:
        """Take note of an end that a node of the route stated, and say what it weighs.

        Args:
            refusal: Why the request did not complete.
            now: When.
            unix_s: When, by the wall clock.
        """
        weight = weigh(refusal, self._conditions.reasons)
        if weight is Weight.NOTHING:
            return weight
        met = self._count(weight, now)
        condition, count, limit = met or (Condition.TRIAL, 1, 1)
        opening = Opening(condition, unix_s, count, limit, refusal.reason, refusal.stage)
        self._tell(_S.TRIP if met else _S.FAIL, opening)
        return weight

    def open(self, condition: Condition, unix_s: int, detail: str) -> None:
        """Open it for what is no end of a request.

        Args:
            condition: Why.
            unix_s: When, by the wall clock.
            detail: What there is to say, for people.
        """
        self._tell(_S.TRIP, Opening(condition, unix_s, detail=detail))

    def try_out(self, moment: RouteMoment) -> None:
        """Begin a trial with nothing on record, or go on with one of the same moment.

        Raises:
            Misuse: It is closed.
        """
        state, trial = self._after(_S.TRY), self.kept.trial
        if trial is None or trial.moment != moment:
            trial = Trial(moment)
        self.kept = replace(self.kept, state=state, trial=trial)

    def seen(self, moment: RouteMoment) -> None:
        """Take note of the moment that the route is in; another than the trial's ends the trial."""
        trial = self.kept.trial
        if trial is not None and trial.moment != moment:
            self.kept = replace(self.kept, state=self._after(_S.CHANGE), trial=None)

    def entered(self) -> None:
        """Take note that a request over the route's limits was sent to it."""
        if self.state is not _B.CLOSED:
            self.kept = replace(self.kept, entered=self.kept.entered + 1)

    def put_on_record(self, record: RecoveryRecord) -> None:
        """Add a record to the trial.

        Raises:
            Misuse: There is no trial, or the record is about another moment.
        """
        self.kept = replace(self.kept, trial=self._trial().having(record))

    def close(self, moment: RouteMoment) -> None:
        """Close it, with all records about the moment that the route is in.

        Raises:
            Misuse: It is not half-open, the moment is another one, or a record is missing, which
                the message names.
        """
        trial = self._trial()
        if trial.moment != moment:
            raise Misuse("the route is in another moment than its trial")
        if trial.missing:
            raise Misuse(f"not on record: {', '.join(trial.missing)}")
        self._failures.clear()
        self._violations.clear()
        self.kept = replace(self.kept, state=self._after(_S.CLOSE), trial=None)

    def _trial(self) -> Trial:
        if self.kept.trial is None:
            raise Misuse(f"a breaker that is {self.state} is not on trial")
        return self.kept.trial

    def _count(self, weight: Weight, now: Instant) -> tuple[Condition, int, int] | None:
        """Count a failure; return the condition that it meets, the count, and the limit."""
        figures = self._conditions
        failures = self._failures.add(now)
        violations = self._violations.add(now) if weight is Weight.VIOLATION else 0
        if weight is Weight.BROKEN:
            return Condition.INVARIANT, 1, 1
        if self.state is _B.HALF_OPEN:
            return None  # One is enough, and what failed before the trial is not held against it.
        if figures.violations and violations >= figures.violations:
            return Condition.VIOLATIONS, violations, figures.violations
        if failures >= figures.failures:
            return Condition.FAILURES, failures, figures.failures
        return None

    def _tell(self, signal: BreakerSignal, opening: Opening) -> None:
        """Move it. What it opened for stands while it is open, until an operator opens it anew."""
        before, after = self.state, self._after(signal)
        again = before is _B.OPEN and opening.condition is not Condition.OPERATOR
        if after is _B.OPEN and not again:
            # What was sent over its limits stands against it until an operator says it is mended.
            anew = before is _B.CLOSED or opening.condition is Condition.OPERATOR
            self.kept = Kept(after, opening, entered=0 if anew else self.kept.entered)

    def _after(self, signal: BreakerSignal) -> BreakerState:
        after = BREAKER[self.state].get(signal)
        if after is None:
            raise Misuse(f"a breaker that is {self.state} cannot be told: {signal}")
        return after
