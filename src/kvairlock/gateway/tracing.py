"""The spans of one request at the gateway: itself, its admission, and each of its attempts.

    request --+-- admit       key, body, parameters
              +-- attempt 1   one route; its context goes to the decode node
              +-- attempt 2   another route, if there was one

Nothing that a client sent is put on a span: figures, the one model's name, and reasons.
"""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.types import Message, Send

from kvairlock.core.ends import End, end_for
from kvairlock.core.errors import Reason, Refusal
from kvairlock.core.messages import Ended
from kvairlock.core.terms import Route
from kvairlock.gateway.asked import Asked
from kvairlock.gateway.endpoints import Endpoint
from kvairlock.runtime.traces.tracer import NO_SPAN, Span, Tracer

FAILED = "internal_error"
"""The code of an answer that failed by the gateway's own doing."""

HEADER = "traceparent"

OPERATIONS = {"/v1/completions": "text_completion", "/v1/chat/completions": "chat"}
"""What OpenTelemetry's conventions for generative AI call an endpoint."""


class RequestTrace:
    """The spans of one request.

    Args:
        root: The first of them.
    """

    def __init__(self, root: Span) -> None:
        self._root = root
        self._step: Span = root.child("admit")
        """What is under way now: the admission, then one attempt after the other."""
        self._end: End | None = None

    @classmethod
    def begin(cls, tracer: Tracer, endpoint: Endpoint, headers: Headers) -> RequestTrace:
        """Begin the spans of a request that has come, if it is traced.

        Args:
            tracer: Where spans go.
            endpoint: The endpoint that was asked.
            headers: The request's head.
        """
        root = tracer.request("request", tuple(headers.getlist(HEADER)))
        if root is None:
            return NOT_TRACED
        root.note("http.request.method", "POST")
        root.note("http.route", endpoint.path)
        root.note("gen_ai.operation.name", OPERATIONS[endpoint.path])
        root.note("gen_ai.provider.name", "kvairlock")
        return cls(root)

    def watch(self, send: Send) -> Send:
        """Return a way to the client that notes the status of what is sent."""
        if self._root is NO_SPAN:
            return send

        async def watched(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._root.note("http.response.status_code", message["status"])
            await send(message)

        return watched

    def admitted(self, asked: Asked) -> None:
        """The request is one that can be served."""
        self._root.note("gen_ai.request.model", asked.model)
        self._root.note("gen_ai.request.max_tokens", asked.max_tokens)
        self._root.note("gen_ai.request.choice.count", asked.n)
        self._root.note("gen_ai.request.stream", asked.stream)
        self._root.note("kvairlock.prompt_tokens", len(asked.prompt_tokens))
        self._end_step()

    def rejected(self, code: str) -> None:
        """It was never a request, or the gateway failed over it."""
        self._end = End.FAILED if code == FAILED else End.REJECTED
        self._step.fail(code)
        self._root.fail(code)

    def attempt(self, number: int, route: Route) -> str:
        """Begin an attempt; return the context that its nodes are told."""
        self._step = self._root.child("attempt")
        self._step.note("kvairlock.attempt", number)
        self._step.note("kvairlock.route", str(route))
        return self._step.context

    def attempt_ended(self, refusal: Refusal | None) -> None:
        """An attempt is over, with or without an answer."""
        if refusal is not None:
            _refuse(self._step, refusal)
        self._end_step()

    def refused(self, refusal: Refusal) -> None:
        """The client is refused."""
        self._end = end_for(refusal.reason)
        _refuse(self._root, refusal)

    def completed(self, ended: Ended) -> None:
        """The client has its whole answer."""
        self._end = End.COMPLETED
        self._root.note("gen_ai.usage.input_tokens", ended.computed_tokens)
        self._root.note("gen_ai.usage.output_tokens", ended.generated_tokens)
        self._root.note("gen_ai.usage.cache_read.input_tokens", ended.reused_tokens)

    def end(self) -> None:
        """All is said; if nothing was decided, the client has left."""
        if self._end is None:
            self._end = End.CANCELLED
            self._step.fail(Reason.CANCELLED)
            self._root.fail(Reason.CANCELLED)
        self._root.note("kvairlock.end", self._end)
        self._end_step()
        self._root.end()

    def _end_step(self) -> None:
        self._step.end()
        self._step = NO_SPAN


def _refuse(span: Span, refusal: Refusal) -> None:
    span.fail(refusal.reason)
    span.note("kvairlock.refusal.stage", refusal.stage)
    for name in ("asked", "limit", "limit_name"):
        figure = getattr(refusal, name)
        if figure:
            span.note(f"kvairlock.refusal.{name}", figure)


NOT_TRACED = RequestTrace(NO_SPAN)
