"""One request over HTTP, from its headers to the last byte of its answer; completion or chat.

    key -> tenant | body -> request | demand -> route | ticket -> decode node | chunks -> answer

Until the first chunk is there nothing was sent, so a refusal keeps its status, also in a stream.
After it, an error is the stream's last event, and the stream ends without `[DONE]`. When the client
leaves, at any time, its request is cancelled at the nodes.
"""

from __future__ import annotations

import math
import secrets
from functools import partial

import anyio
from starlette.datastructures import Headers
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from kvairlock.core.ends import End, end_for
from kvairlock.core.errors import Refusal
from kvairlock.core.guards import Guard
from kvairlock.core.messages import Chunk, Ended
from kvairlock.core.terms import Owner
from kvairlock.gateway.answers import Answer, event
from kvairlock.gateway.asked import Asked
from kvairlock.gateway.auth import authenticate
from kvairlock.gateway.bodies import ClientLeft, read_body, read_object, while_connected
from kvairlock.gateway.desk import Flight
from kvairlock.gateway.drills import (
    ROUTE_HEADER,
    SHOW_TICKET_HEADER,
    TICKET_HEADER,
    drill_header,
    route_named,
    ticket_text,
)
from kvairlock.gateway.endpoints import Endpoint
from kvairlock.gateway.errors import Refused, from_refusal, refusal_of
from kvairlock.gateway.keys import Principal
from kvairlock.gateway.parameters import parse
from kvairlock.gateway.parts import Parts
from kvairlock.gateway.routes import Route
from kvairlock.gateway.steering import believed_ticket, strip
from kvairlock.gateway.unsupported import header_names

ATTEMPT = 1
"""The gateway makes one attempt; who wants another sends another request."""

EVENT_STREAM = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-store",
    "x-accel-buffering": "no",
}


class Serving:
    """An endpoint as an ASGI application.

    Args:
        parts: The gateway.
        endpoint: The endpoint.
    """

    def __init__(self, parts: Parts, endpoint: Endpoint) -> None:
        self._parts, self._endpoint = parts, endpoint

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        await Exchange(self._parts, self._endpoint, scope, receive, send).run()


class Exchange:
    """One request and its answer.

    Args:
        parts: The gateway.
        endpoint: The endpoint that was asked.
        scope: The request's head.
        receive: Its body, then news of its client.
        send: Where the answer goes.
    """

    def __init__(
        self, parts: Parts, endpoint: Endpoint, scope: Scope, receive: Receive, send: Send
    ) -> None:
        self._parts, self._endpoint = parts, endpoint
        self._scope, self._receive, self._send = scope, receive, send
        self._request_id = f"{endpoint.id_prefix}-{secrets.token_hex(16)}"
        self._answer_headers = {"x-request-id": self._request_id}
        self._outcome = End.CANCELLED

    async def run(self) -> None:
        """Answer, with an error if need be."""
        try:
            flight, request = await self._start()
        except ClientLeft:
            return
        except Refused as refused:
            self._parts.meter.invalid()
            await self._respond(refused.error.response(self._answer_headers))
            return
        if isinstance(flight, Refusal):
            self._parts.meter.ended(end_for(flight.reason), len(request.prompt_tokens))
            await self._respond(self._refused(flight))
            return
        await self._follow(flight, request)

    async def _start(self) -> tuple[Flight | Refusal, Asked]:
        headers = Headers(scope=self._scope)
        principal = authenticate(headers, self._parts.keys)
        owner = Owner(principal.tenant, self._request_id, ATTEMPT)
        request, believed = await self._read(owner, headers)
        named = drill_header(self._parts, headers, principal, ROUTE_HEADER)
        forced = route_named(self._parts.routes, named)
        shown = drill_header(self._parts, headers, principal, SHOW_TICKET_HEADER)
        flight = self._submit(owner, principal, request, forced, believed)
        if shown is not None and isinstance(flight, Flight):
            self._answer_headers[TICKET_HEADER] = ticket_text(flight.ticket)
        return flight, request

    async def _read(self, owner: Owner, headers: Headers) -> tuple[Asked, bytes | None]:
        """Return what the body asks for, and the ticket in it that is believed, if any."""
        most = self._parts.settings.gateway.body_bytes_max
        body = await read_body(headers, self._receive, most)
        async with self._parts.parsers.turn(owner.tenant, len(body)) as aside:
            fields = await aside(partial(read_object, body))
            believed = self._strip(owner, fields)
            asked = await aside(partial(parse, fields, self._parts.offer, self._endpoint.form))
        if asked.ignored:
            self._answer_headers["x-kvairlock-ignored"] = header_names(asked.ignored)
        return asked.within(self._parts.routes.room_tokens(asked.demand)), believed

    def _strip(self, owner: Owner, fields: dict[str, object]) -> bytes | None:
        """Take transfer parameters out; only with the guard off is a ticket in them believed."""
        stripped = strip(fields)
        if not self._parts.settings.guards.on(Guard.STRIP):
            return believed_ticket(stripped)
        if stripped:
            names = tuple(stripped)
            self._parts.evidence.record("parameters_stripped", owner, {"names": names})
            self._parts.meter.stripped()
            self._answer_headers["x-kvairlock-stripped"] = header_names(names)
        return None

    def _submit(
        self,
        owner: Owner,
        principal: Principal,
        request: Asked,
        forced: Route | None,
        believed: bytes | None,
    ) -> Flight | Refusal:
        desk = self._parts.desk
        chosen = self._parts.routes.choose(request.demand, desk.load(), forced)
        if isinstance(chosen, Refusal):
            return self._record_refused(owner, chosen)
        flight = desk.submit(owner, principal.ticket_scope, request, chosen, believed)
        if isinstance(flight, Refusal):
            return self._record_refused(owner, flight)
        asked = {"prompt_tokens": len(request.prompt_tokens), "max_tokens": request.max_tokens}
        self._parts.evidence.record("request_admitted", owner, {"stage": "gateway", **asked})
        return flight

    def _record_refused(self, owner: Owner, refusal: Refusal) -> Refusal:
        fields = {
            "stage": refusal.stage.value,
            "reason": refusal.reason.value,
            "asked": refusal.asked,
            "limit": refusal.limit,
            "limit_name": refusal.limit_name,
        }
        self._parts.evidence.record("request_refused", owner, fields)
        return refusal

    async def _follow(self, flight: Flight, request: Asked) -> None:
        try:
            await while_connected(self._receive, partial(self._answer, flight, request))
        finally:
            self._parts.desk.leave(flight)
            self._parts.meter.ended(self._outcome, len(request.prompt_tokens))

    async def _answer(self, flight: Flight, request: Asked) -> None:
        answer = Answer(self._request_id, request, self._endpoint.shape)
        arrived = await flight.next()
        if request.stream and isinstance(arrived, Chunk):
            await self._stream(flight, answer, arrived)
            return
        while isinstance(arrived, Chunk):
            answer.take(arrived)
            arrived = await flight.next()
        refusal = self._end(arrived, answer)
        if refusal is None:
            whole = answer.whole(arrived)
            await self._respond(JSONResponse(whole, headers=self._answer_headers))
        else:
            await self._respond(self._refused(refusal))

    async def _stream(self, flight: Flight, answer: Answer, first: Chunk) -> None:
        """Send events as chunks come; a client that does not read for `decode_ms` is left."""
        arrived: Chunk | Ended = first
        with anyio.CancelScope() as patience:
            await self._put_head()
            while isinstance(arrived, Chunk):
                await self._put(answer.take(arrived), patience)
                arrived = await flight.next()
            refusal = self._end(arrived, answer)
            if refusal is None:
                await self._put(answer.last_events(arrived), patience)
            else:
                self._parts.meter.refused(refusal)
                await self._put(event({**from_refusal(refusal).body()}), patience)
            await self._send({"type": "http.response.body", "body": b""})

    async def _put_head(self) -> None:
        headers = {**EVENT_STREAM, **self._answer_headers}
        encoded = [(name.encode(), value.encode()) for name, value in headers.items()]
        await self._send({"type": "http.response.start", "status": 200, "headers": encoded})

    async def _put(self, data: bytes, patience: anyio.CancelScope) -> None:
        if not data:
            return
        patience.deadline = anyio.current_time() + self._parts.settings.limits.decode_ms / 1000
        await self._send({"type": "http.response.body", "body": data, "more_body": True})
        patience.deadline = math.inf

    def _end(self, ended: Ended, answer: Answer) -> Refusal | None:
        """Take note of how it ended, and return why, if it did not complete."""
        refusal = refusal_of(ended) or answer.unfinished()
        self._outcome = End.COMPLETED if refusal is None else end_for(refusal.reason)
        return refusal

    def _refused(self, refusal: Refusal) -> Response:
        self._parts.meter.refused(refusal)
        return from_refusal(refusal).response(self._answer_headers)

    async def _respond(self, response: Response) -> None:
        await response(self._scope, self._receive, self._send)
