"""The attempts of one request: on one route, and where nothing came of it on another.

    choose -> submit -> first word: a chunk, an end  -> the client
      ^                        | lost or full, nothing was sent, the budget allows it
      +---- another route -----+

Each attempt has a number of its own, and with it a ticket, a transfer and pages of its own: what
comes late of one finds nothing open in another.
"""

from __future__ import annotations

from kvairlock.core.errors import Misuse, Reason, Refusal, Stage
from kvairlock.core.guards import Guard
from kvairlock.core.messages import Chunk, Ended
from kvairlock.core.promise.breaker import BreakerState
from kvairlock.core.terms import Owner, Route
from kvairlock.gateway.asked import Asked
from kvairlock.gateway.desk import Flight
from kvairlock.gateway.errors import refusal_of
from kvairlock.gateway.keys import Principal
from kvairlock.gateway.parts import Parts
from kvairlock.gateway.tracing import NOT_TRACED, RequestTrace
from kvairlock.runtime.recording import Value

FIRST = 1


class Attempts:
    """One request on its way to an answer.

    Args:
        parts: The gateway.
        principal: Who asks.
        request_id: The request's id.
        request: What is asked.
        forced: The only route that may be taken (drills), or None.
        believed: A ticket to send in place of the one that is signed (drills), or None.
        trace: The request's spans.
        drill: Which drill asks, empty if none does.
    """

    def __init__(
        self,
        parts: Parts,
        principal: Principal,
        request_id: str,
        request: Asked,
        forced: Route | None,
        believed: bytes | None,
        trace: RequestTrace = NOT_TRACED,
        drill: str = "",
    ) -> None:
        self._parts, self._principal, self._request_id = parts, principal, request_id
        self._request, self._forced, self._believed = request, forced, believed
        self._trace, self._drill = trace, drill
        self.number = FIRST
        self._tried: set[Route] = set()
        self._flight: Flight | None = None
        self._observed: Refusal | None = None
        """What the contract would refuse on the route that was chosen."""

    @property
    def owner(self) -> Owner:
        """Tenant, request and the present attempt."""
        return Owner(self._principal.tenant, self._request_id, self.number)

    @property
    def answered(self) -> Owner:
        """Whose answer the client gets: that of the last attempt that got to its nodes."""
        return self._sent.owner

    def begin(self) -> Flight | Refusal:
        """Send the request to its nodes, or say why that can't be."""
        sent = self._send(self._choose())
        if isinstance(sent, Refusal) and self._again(sent):
            return self._sent
        return sent

    async def first(self) -> Chunk | Ended:
        """Return the first word of the attempt that came to something; then `next` has more."""
        arrived = await self.next()
        while (refusal := _refused(arrived)) is not None and self._again(refusal):
            arrived = await self.next()
        return arrived

    async def next(self) -> Chunk | Ended:
        """Return what follows the first word."""
        arrived = await self._sent.next()
        if isinstance(arrived, Ended):
            self._trace.attempt_ended(refusal_of(arrived))
        return arrived

    def leave(self) -> None:
        """Take note that nobody waits for the answer any more."""
        self._parts.desk.leave(self._sent)

    def distrust(self, refusal: Refusal) -> None:
        """Hold against the route what its nodes stated as a success and what is none."""
        self._parts.breakers.failed(self._sent.route, refusal)

    @property
    def _sent(self) -> Flight:
        if self._flight is None:
            raise Misuse("no attempt was made yet")
        return self._flight

    def _choose(self) -> Route | Refusal:
        routes, load = self._parts.routes, self._parts.desk.load()
        chosen = routes.choose(self._request.demand, load, self._forced, self._tried)
        self._observed = None
        if not isinstance(chosen, Refusal) or chosen.reason is not Reason.CONTEXT_LENGTH:
            return chosen
        observing = routes.choose_observing(load, self._forced, self._tried)
        if observing is None:
            return chosen
        self._observed = chosen
        return observing

    def _again(self, refusal: Refusal) -> bool:
        """Try another route, if there is one and a retry may be spent; whether one took it."""
        if self._forced is not None or self._believed is not None:
            return False
        route = self._choose()
        if isinstance(route, Refusal):
            return False
        if not self._parts.retries.spend(self._principal.tenant, refusal, self.number):
            return False
        before, evidence = self.owner, self._parts.evidence
        self.number += 1
        self._parts.meter.retried(refusal)
        fields: dict[str, Value] = {
            "before": evidence.pseudonym("request", before.transfer),
            "attempt": self.number,
            "reason": refusal.reason.value,
        }
        evidence.record("request_retried", self.owner, fields)
        sent = self._send(route)
        return isinstance(sent, Flight) or self._again(sent)

    def _send(self, route: Route | Refusal) -> Flight | Refusal:
        if self._drill:
            self._parts.evidence.record("drill_requested", self.owner, {"drill": self._drill})
        if isinstance(route, Refusal):
            return record_refused(self._parts, self.owner, route)
        self._tried.add(route)
        if self._observed is not None:
            record_observed(self._parts, self.owner, route, self._observed)
        scope, desk = self._principal.ticket_scope, self._parts.desk
        trace = self._trace.attempt(self.number, route)
        sent = desk.submit(self.owner, scope, self._request, route, self._believed, trace)
        if isinstance(sent, Refusal):
            self._trace.attempt_ended(sent)
            return record_refused(self._parts, self.owner, sent)
        self._flight = sent
        self._note_entered(route)
        record_admitted(self._parts, self.owner, self._request)
        return sent

    def _note_entered(self, route: Route) -> None:
        """Take note if more is sent to a route on trial than its nodes hold."""
        parts = self._parts
        if parts.breakers[route].state is BreakerState.CLOSED:
            return
        if parts.routes.exceeds(route, self._request.demand) is not None:
            parts.breakers.entered(route)


def record_admitted(parts: Parts, owner: Owner, asked: Asked) -> None:
    """Record that the gateway has sent a request to its nodes."""
    fields: dict[str, Value] = {
        "stage": Stage.GATEWAY.value,
        "prompt_tokens": len(asked.prompt_tokens),
        "max_tokens": asked.max_tokens,
    }
    parts.evidence.record("request_admitted", owner, fields)


def record_refused(parts: Parts, owner: Owner, refusal: Refusal) -> Refusal:
    """Record that the gateway refuses a request, and return why."""
    parts.evidence.record("request_refused", owner, _figures(refusal))
    return refusal


def record_observed(parts: Parts, owner: Owner, route: Route, refusal: Refusal) -> None:
    """Record what the contract would refuse, on a route where it only observes."""
    parts.meter.would_refuse(Guard.CONTRACT, refusal)
    fields = {"guard": Guard.CONTRACT.value, "route": str(route), **_figures(refusal)}
    parts.evidence.record("would_refuse", owner, fields)


def _figures(refusal: Refusal) -> dict[str, Value]:
    return {
        "stage": refusal.stage.value,
        "reason": refusal.reason.value,
        "asked": refusal.asked,
        "limit": refusal.limit,
        "limit_name": refusal.limit_name,
    }


def _refused(arrived: Chunk | Ended) -> Refusal | None:
    return refusal_of(arrived) if isinstance(arrived, Ended) else None
