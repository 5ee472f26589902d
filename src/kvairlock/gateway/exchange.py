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
from http import HTTPStatus

import anyio
from starlette.datastructures import Headers
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from kvairlock.core.ends import End, end_for
from kvairlock.core.errors import Refusal
from kvairlock.core.guards import Guard
from kvairlock.core.lengths import OTHER, length_class
from kvairlock.core.messages import Chunk, Ended
from kvairlock.core.terms import Owner
from kvairlock.gateway.answers import Answer, event
from kvairlock.gateway.asked import Asked
from kvairlock.gateway.attempts import FIRST, Attempts, record_refused
from kvairlock.gateway.auth import authenticate
from kvairlock.gateway.bodies import ClientLeft, read_body, read_object, while_connected
from kvairlock.gateway.drills import (
    SHOW_TICKET_HEADER,
    TICKET_HEADER,
    drill_header,
    forced_route,
    ticket_text,
)
from kvairlock.gateway.endpoints import Endpoint
from kvairlock.gateway.errors import ApiError, Refused, from_refusal, refusal_of
from kvairlock.gateway.parameters import parse
from kvairlock.gateway.parts import Parts
from kvairlock.gateway.retries import declared
from kvairlock.gateway.steering import believed_ticket, strip
from kvairlock.gateway.tally import is_fault
from kvairlock.gateway.told import Told
from kvairlock.gateway.tracing import FAILED, RequestTrace
from kvairlock.gateway.unsupported import header_names

ATTEMPT_HEADER = "x-kvairlock-attempt"
"""Which attempt was answered, if it was not the first."""

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
        self._trace = RequestTrace.begin(parts.tracer, endpoint, Headers(scope=scope))
        self._told = Told(parts.evidence, send)
        self._scope, self._receive = scope, receive
        self._send = self._trace.watch(self._told.send)
        self._request_id = f"{endpoint.id_prefix}-{secrets.token_hex(16)}"
        self._answer_headers = {"x-request-id": self._request_id}
        self._shows_ticket = False
        self._owner: Owner | None = None
        self._outcome = End.CANCELLED
        self._length = OTHER

    async def run(self) -> None:
        """Answer, with an error if need be."""
        try:
            await self._run()
        except Exception:
            self._trace.rejected(FAILED)
            raise
        finally:
            self._told.record()
            self._trace.end()

    async def _run(self) -> None:
        try:
            attempts, request = await self._start()
        except ClientLeft:
            return
        except Refused as refused:
            self._parts.meter.invalid()
            self._blame_error(refused.error)
            self._trace.rejected(refused.error.code)
            await self._respond(refused.error.response(self._answer_headers))
            return
        sent = attempts.begin()
        self._told.owner = attempts.owner
        if isinstance(sent, Refusal):
            self._parts.meter.ended(end_for(sent.reason), self._length)
            await self._respond(self._refused(attempts, sent))
            return
        if self._shows_ticket:
            self._answer_headers[TICKET_HEADER] = ticket_text(sent.ticket)
        await self._follow(attempts, request)

    async def _start(self) -> tuple[Attempts, Asked]:
        headers = Headers(scope=self._scope)
        principal = authenticate(headers, self._parts.keys)
        owner = Owner(principal.tenant, self._request_id, FIRST)
        self._admit(owner)
        request, believed = await self._read(owner, headers)
        self._length = length_class(len(request.prompt_tokens))
        self._parts.retries.arrived(principal.tenant, declared(headers))
        forced = forced_route(self._parts, headers, principal)
        shown = drill_header(self._parts, headers, principal, SHOW_TICKET_HEADER)
        self._shows_ticket = shown is not None
        self._trace.admitted(request)
        drill = self._parts.marks.named(headers)
        made = Attempts(
            self._parts, principal, self._request_id, request, forced, believed, self._trace, drill
        )
        return made, request

    def _admit(self, owner: Owner) -> None:
        """Refuse a tenant whose clients were at fault too often; nothing of it is read."""
        refused = self._parts.tally.refuses(owner.tenant)
        if refused is not None:
            refusal, error = refused
            record_refused(self._parts, owner, refusal)
            self._told.owner = owner
            self._parts.meter.refused(refusal)
            raise Refused(error)
        self._owner = owner

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

    async def _follow(self, attempts: Attempts, request: Asked) -> None:
        try:
            await while_connected(self._receive, partial(self._answer, attempts, request))
        finally:
            attempts.leave()
            self._parts.meter.ended(self._outcome, self._length)

    async def _answer(self, attempts: Attempts, request: Asked) -> None:
        answer = Answer(self._request_id, request, self._endpoint.shape)
        arrived = await attempts.first()
        self._told.owner = attempts.answered
        if attempts.answered.attempt > FIRST:
            self._answer_headers[ATTEMPT_HEADER] = str(attempts.answered.attempt)
        if request.stream and isinstance(arrived, Chunk):
            await self._stream(attempts, answer, arrived)
            return
        while isinstance(arrived, Chunk):
            answer.take(arrived)
            arrived = await attempts.next()
        refusal = self._end(attempts, arrived, answer)
        if refusal is None:
            whole = answer.whole(arrived)
            self._told.answered(answer.finish, answer.stated(arrived))
            await self._respond(JSONResponse(whole, headers=self._answer_headers))
        else:
            await self._respond(self._refused(attempts, refusal))

    async def _stream(self, attempts: Attempts, answer: Answer, first: Chunk) -> None:
        """Send events as chunks come; a client that does not read for `decode_ms` is left."""
        arrived: Chunk | Ended = first
        with anyio.CancelScope() as patience:
            await self._put_head()
            while isinstance(arrived, Chunk):
                await self._put(answer.take(arrived), patience)
                arrived = await attempts.next()
            refusal = self._end(attempts, arrived, answer)
            if refusal is None:
                self._told.answered(answer.finish, answer.stated(arrived))
                await self._put(answer.last_events(arrived), patience)
            else:
                self._count(attempts, refusal)
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

    def _end(self, attempts: Attempts, ended: Ended, answer: Answer) -> Refusal | None:
        """Take note of how it ended, and return why, if it did not complete."""
        refusal = refusal_of(ended)
        if refusal is None and (refusal := answer.unfinished()) is not None:
            attempts.distrust(refusal)
        self._outcome = End.COMPLETED if refusal is None else end_for(refusal.reason)
        if refusal is None:
            self._parts.retries.succeeded(attempts.owner.tenant)
            self._trace.completed(ended)
        return refusal

    def _count(self, attempts: Attempts, refusal: Refusal) -> None:
        """Count a refusal, and against its tenant if its client is to blame."""
        self._parts.meter.refused(refusal, self._length)
        self._trace.refused(refusal)
        if is_fault(refusal):
            self._parts.tally.add(attempts.owner, refusal.reason.value)

    def _blame_error(self, error: ApiError) -> None:
        """Count what was never a request against the tenant whose client sent it; load is none."""
        theirs = error.status < HTTPStatus.INTERNAL_SERVER_ERROR
        if self._owner is None or not theirs or error.status == HTTPStatus.TOO_MANY_REQUESTS:
            return
        self._parts.tally.add(self._owner, error.code)

    def _refused(self, attempts: Attempts, refusal: Refusal) -> Response:
        self._count(attempts, refusal)
        advice = self._parts.retries.advice(attempts.owner.tenant, refusal)
        return from_refusal(refusal).response({**self._answer_headers, **advice})

    async def _respond(self, response: Response) -> None:
        await response(self._scope, self._receive, self._send)
