"""The breakers of all routes: asked before a request is sent, told how it ended, kept across lives.

    routes --refuses?--> breakers <--failed-- desk: ends that nodes state
    reports --seen-----> breakers --> evidence, the file in the state directory

Whatever changes is written before it is acted on, and a gateway that cannot write does not start.
What cannot be written later does not close a breaker, since after a restart nobody would know that
it was ever open; and whoever looks is told that it is not kept.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime

import structlog

from kvairlock.core.errors import Misuse, Reason, Refusal, Stage
from kvairlock.core.promise.breaker import ADMITS, Breaker, BreakerState, Kept, Traffic
from kvairlock.core.promise.conditions import Condition, Conditions, Opening
from kvairlock.core.promise.trial import RecoveryRecord, RouteMoment
from kvairlock.core.terms import NodeName, Route
from kvairlock.gateway.breaker_file import BreakerFile, StateUnusable, Unreadable
from kvairlock.runtime import clock
from kvairlock.runtime.recording import Sink, Value

log = structlog.get_logger("kvairlock.gateway")

CHANGED = "a node of the route is another one than in the trial"
TOLD_CHARACTERS_MAX = 1000
"""Of what is kept for people: nodes have a part in it, and the file has a bound."""


def shorten(text: str) -> str:
    """Return what is kept of a text."""
    over = len(text) > TOLD_CHARACTERS_MAX
    return f"{text[: TOLD_CHARACTERS_MAX - 3]}..." if over else text


class Breakers:
    """One breaker for each route.

    Args:
        routes: The routes of the stack.
        conditions: When a breaker opens.
        file: Where they are kept.
        evidence: Where it is recorded that one opens or closes.

    Raises:
        StateUnusable: They cannot be kept.
    """

    def __init__(
        self,
        routes: Iterable[Route],
        conditions: Conditions,
        file: BreakerFile,
        evidence: Sink,
    ) -> None:
        self._file, self._evidence = file, evidence
        self._breakers: dict[Route, Breaker] = {}
        self._unwritten = ""
        for route, kept in file.read(routes).items():
            self._breakers[route] = _restored(conditions, kept)
            self._tell_start(route)
        self._write()
        if self._unwritten:
            raise StateUnusable(f"breakers cannot be kept: {file.path}: {self._unwritten}")

    def __getitem__(self, route: Route) -> Kept:
        """Return what is to be said of a route's breaker now."""
        return self._breakers[route].kept

    @property
    def all(self) -> Mapping[Route, Kept]:
        """What is to be said of all breakers now."""
        return {route: breaker.kept for route, breaker in self._breakers.items()}

    @property
    def unkept(self) -> str:
        """Why their present state is not in the file; empty if it is."""
        return self._unwritten

    def refuses(self, route: Route, traffic: Traffic) -> Refusal | None:
        """Return why a route takes no request of a kind; None if its breaker lets it through.

        Clients are told condition, time and count. What else there is to say, and the names of
        nodes, are for operators, whose drills alone may name a route.
        """
        kept = self[route]
        if traffic in ADMITS[kept.state]:
            return None
        if traffic is Traffic.DRILL:
            message = f"the route {route} takes no requests: {explained(kept)}"
        else:
            message = f"a route takes no requests: {outlined(kept)}"
        refusal = Refusal(Reason.ROUTE_CLOSED, Stage.GATEWAY, message)
        if (why := kept.opening) is None:
            return refusal
        return replace(refusal, asked=why.count, limit=why.limit, limit_name=why.condition.value)

    def misbehaved(self, node: NodeName, refusal: Refusal) -> None:
        """Take note that a node broke the protocol, on all its routes."""
        for route in self._breakers:
            if node in (route.prefill, route.decode):
                self.failed(route, refusal)

    def failed(self, route: Route, refusal: Refusal) -> None:
        """Take note that a request did not end as it should on a route."""
        now, unix_s = clock.now(), int(time.time())
        self._change(route, lambda breaker: breaker.failed(refusal, now, unix_s))

    def seen(self, route: Route, moment: RouteMoment) -> None:
        """Take note of the moment that a route is in: another one ends its trial."""
        self._change(route, lambda breaker: breaker.seen(moment), CHANGED)

    def entered(self, route: Route) -> None:
        """Take note that a request over a route's limits was sent to it."""
        self._change(route, Breaker.entered)

    def open(self, route: Route, condition: Condition, detail: str) -> None:
        """Open a breaker for what is no end of a request."""
        unix_s, told = int(time.time()), shorten(detail)
        self._change(route, lambda breaker: breaker.open(condition, unix_s, told))

    def try_out(self, route: Route, moment: RouteMoment) -> None:
        """Begin a trial, or go on with the one of this moment.

        Raises:
            Misuse: The breaker is closed.
        """
        self._change(route, lambda breaker: breaker.try_out(moment))

    def put_on_record(self, route: Route, record: RecoveryRecord) -> None:
        """Add a record to a route's trial.

        Raises:
            Misuse: There is no trial, or the record is about another moment.
        """
        record = replace(record, facts=tuple(map(shorten, record.facts)))
        self._change(route, lambda breaker: breaker.put_on_record(record))
        fields: dict[str, Value] = {
            "route": str(route),
            "record": record.kind.value,
            "facts": record.facts,
            "incarnations": (record.moment.prefill.incarnation, record.moment.decode.incarnation),
            "fingerprints": (record.moment.prefill.fingerprint, record.moment.decode.fingerprint),
            "epochs": (record.moment.prefill.epoch, record.moment.decode.epoch),
        }
        self._evidence.record("recovery_recorded", None, fields)

    def close(self, route: Route, moment: RouteMoment) -> None:
        """Close a breaker, with all three records about this moment.

        Raises:
            Misuse: It is not half-open, a record is missing, or what happens cannot be kept.
        """
        self._change(route, lambda breaker: breaker.close(moment))
        if self._unwritten:
            detail = f"{self._file.path.name} cannot be written"
            self.open(route, Condition.STATE_FILE, detail)
            raise Misuse(f"{detail}: after a restart nobody would know what was closed")

    def settle(self) -> None:
        """Write what could not be written before."""
        if self._unwritten:
            self._write()

    def _change(
        self, route: Route, move: Callable[[Breaker], object], detail: str | None = None
    ) -> None:
        breaker = self._breakers[route]
        before = breaker.kept
        move(breaker)
        if breaker.kept != before:
            self._write()
        if breaker.state is not before.state:
            self._record(route, before.state, breaker.kept, detail)

    def _write(self) -> None:
        try:
            self._file.write(self.all)
        except OSError as error:
            self._unwritten = error.strerror or type(error).__name__
            log.error("breakers cannot be kept", file=str(self._file.path), reason=str(error))
        else:
            self._unwritten = ""

    def _record(
        self, route: Route, before: BreakerState, after: Kept, detail: str | None = None
    ) -> None:
        fields: dict[str, Value] = {"route": str(route), "was": before.value}
        if after.state is BreakerState.OPEN and after.opening is not None:
            fields |= _opening_fields(after.opening, detail)
        self._evidence.record(_EVENTS[after.state], None, fields)
        log.warning("breaker moved", route=str(route), state=after.state.value)

    def _tell_start(self, route: Route) -> None:
        kept = self[route]
        if kept.state is not BreakerState.CLOSED:
            self._record(route, kept.state, kept)


_EVENTS = {
    BreakerState.CLOSED: "breaker_closed",
    BreakerState.OPEN: "breaker_opened",
    BreakerState.HALF_OPEN: "breaker_half_open",
}


def explained(kept: Kept) -> str:
    """Say for operators in which state a breaker is, and when and why it opened last."""
    said, opening = outlined(kept), kept.opening
    return f"{said}: {opening.detail}" if opening is not None and opening.detail else said


def outlined(kept: Kept) -> str:
    """Say the same for anybody, without what an operator or a node has said about it."""
    is_now, opening = kept.state.value.replace("_", "-"), kept.opening
    if opening is None:
        return f"its breaker is {is_now}, it never opened"
    at = datetime.fromtimestamp(opening.at_unix_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    said = f"its breaker is {is_now}, it opened at {at} on the condition `{opening.condition}`"
    if opening.reason is not None:
        said += f" ({opening.count} of {opening.limit}, {opening.reason} at {opening.stage})"
    return said


def _restored(conditions: Conditions, kept: Kept | Unreadable) -> Breaker:
    if isinstance(kept, Kept):
        return Breaker(conditions, kept)
    breaker = Breaker(conditions)
    breaker.open(Condition.STATE_FILE, int(time.time()), kept.why)
    return breaker


def _opening_fields(opening: Opening, detail: str | None) -> dict[str, Value]:
    return {
        "condition": opening.condition.value,
        "count": opening.count,
        "limit": opening.limit,
        "reason": opening.reason.value if opening.reason else "",
        "stage": opening.stage.value if opening.stage else "",
        "detail": opening.detail if detail is None else detail,
    }
