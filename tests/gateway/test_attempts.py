"""Attempts of a request: which one is answered, where a further one does not get to its nodes."""

from __future__ import annotations

from collections.abc import Collection
from types import SimpleNamespace
from typing import Any, cast

import anyio

from kvairlock.core.ends import End
from kvairlock.core.errors import Reason, Refusal, Stage
from kvairlock.core.messages import Ended
from kvairlock.core.promise.breaker import NEVER_OPENED
from kvairlock.core.terms import NS_PER_MS, Instant, NodeName, Owner, Route
from kvairlock.gateway.attempts import Attempts
from kvairlock.gateway.attribution import Voucher
from kvairlock.gateway.desk import Flight
from kvairlock.gateway.keys import Principal
from kvairlock.gateway.parts import Parts
from kvairlock.gateway.retries import Retries
from kvairlock.runtime.settings import RetrySettings
from kvairlock.sink.recorder import Recorder

from .asking import asked

FIRST = Route(NodeName("prefill-0"), NodeName("decode-0"))
SECOND = Route(NodeName("prefill-0"), NodeName("decode-1"))
FULL = Refusal(Reason.CAPACITY, Stage.DECODE_ADMISSION, "no pages")
GONE = Refusal(Reason.PEER_LOST, Stage.GATEWAY, "decode-1 is not connected")
NO_ROUTE = Refusal(Reason.ROUTE_CLOSED, Stage.GATEWAY, "no route is up")


class Desk:
    """Sends on the first route, where it is full, and cannot send on the second."""

    def load(self) -> dict[NodeName, int]:
        return {}

    def submit(
        self,
        owner: Owner,
        scope: str,
        request: object,
        route: Route,
        believed: object,
        trace: object,
    ) -> Flight | Refusal:
        if route == SECOND:
            return GONE
        due = Instant(NS_PER_MS)
        flight = Flight(owner, route, asked().demand, b"", Voucher.GATEWAY, due)
        flight.arrived.put(Ended(owner.transfer, End.REJECTED, FULL, 0, 0, 0, None))
        return flight


def choose(
    demand: object, load: object, forced: object, without: Collection[Route]
) -> Route | Refusal:
    """The first route that was not tried."""
    return next((route for route in (FIRST, SECOND) if route not in without), NO_ROUTE)


def test_an_attempt_that_was_not_sent_is_not_the_one_that_is_answered(evidence: Recorder) -> None:
    stand_in: Any = SimpleNamespace(
        routes=SimpleNamespace(choose=choose),
        desk=Desk(),
        retries=Retries(RetrySettings()),
        breakers={FIRST: NEVER_OPENED, SECOND: NEVER_OPENED},
        meter=SimpleNamespace(retried=lambda refusal: None),
        evidence=evidence,
    )
    principal = Principal("acme", "none", False)
    attempts = Attempts(cast(Parts, stand_in), principal, "cmpl-1", asked(), None, None)

    async def work() -> None:
        assert isinstance(attempts.begin(), Flight)
        answer = await attempts.first()
        assert isinstance(answer, Ended)
        assert answer.refusal == FULL

    anyio.run(work)
    assert attempts.number == 2, "a second one was tried"
    assert attempts.answered.attempt == 1, "and the first is what the client is told of"
