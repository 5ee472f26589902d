"""Spans as OpenTelemetry has them: made by its SDK, named and limited by the table.

Whether a request is traced is drawn once, at the gateway, from randomness that no client knows. The
draw travels as the `sampled` flag of the context, and who gets no context traces nothing. A
client's own flag, and its trace id, change nothing about the draw.
"""

from __future__ import annotations

import secrets
import threading

import structlog
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from kvairlock import __version__
from kvairlock.core.errors import Misuse
from kvairlock.core.terms import Peer
from kvairlock.runtime.traces.sending import Queue, Room
from kvairlock.runtime.traces.table import SPANS, Kind
from kvairlock.runtime.traces.tracer import Figure
from kvairlock.runtime.tracing_settings import ClientTrace, TracingSettings

HEADER = "traceparent"
HEADER_CHARACTERS_MAX = 128
"""Version 00 has 55; a later one may have more. What is longer is not looked at."""

FLUSH_S = 2
"""How long a process waits at its end for what is left to be sent."""

DRAWS = 1 << 53

KINDS = {
    Kind.SERVER: SpanKind.SERVER,
    Kind.CLIENT: SpanKind.CLIENT,
    Kind.INTERNAL: SpanKind.INTERNAL,
}

log = structlog.get_logger("kvairlock.traces")
_propagator = TraceContextTextMapPropagator()


class ExportedSpan:
    """A span of the SDK; see `kvairlock.runtime.traces.tracer.Span`."""

    def __init__(self, tracer: trace.Tracer, name: str, span: trace.Span) -> None:
        self._tracer, self._name, self._span = tracer, name, span

    @property
    def context(self) -> str:
        """Its name for other processes; none where the SDK was switched off from outside."""
        carrier: dict[str, str] = {}
        _propagator.inject(carrier, self._here())
        return carrier.get(HEADER, "")

    def child(self, name: str) -> ExportedSpan:
        """Begin a span under it."""
        kind = KINDS[SPANS[name].kind]
        span = self._tracer.start_span(name, self._here(), kind)
        return ExportedSpan(self._tracer, name, span)

    def note(self, attribute: str, value: Figure) -> None:
        """Say something about it that the table allows."""
        if attribute not in SPANS[self._name].attributes:
            raise Misuse(f"no span `{self._name}` has the attribute {attribute}")
        self._span.set_attribute(attribute, value)

    def fail(self, reason: str) -> None:
        """Mark it as failed."""
        self.note("error.type", reason)
        self._span.set_status(Status(StatusCode.ERROR, reason))

    def end(self) -> None:
        """It is over."""
        self._span.end()

    def _here(self) -> Context:
        return trace.set_span_in_context(self._span, Context())


class Export:
    """The tracer of a process whose traces are wanted; see `kvairlock.runtime.traces.tracer`.

    Args:
        settings: Where spans go, and how many requests have some.
        peer: This process.
    """

    def __init__(self, settings: TracingSettings, peer: Peer) -> None:
        self._settings, self._room = settings, Room(settings.queue_max)
        self._provider = TracerProvider(
            sampler=ALWAYS_ON, resource=_resource(peer), shutdown_on_exit=False
        )
        self._provider.add_span_processor(Queue(settings.endpoint, self._room, settings.queue_max))
        self._tracer = self._provider.get_tracer("kvairlock", __version__)

    @property
    def dropped(self) -> int:
        """How many spans were lost."""
        return self._room.dropped

    def request(self, name: str, client: tuple[str, ...]) -> ExportedSpan | None:
        """Begin the first span of a request, if the draw has it that it is traced."""
        if secrets.randbelow(DRAWS) >= self._settings.sampled_share * DRAWS:
            return None
        theirs = _read(client[0]) if len(client) == 1 else None
        if theirs is None or self._settings.client is ClientTrace.IGNORED:
            return self._begin(name, Context())
        if self._settings.client is ClientTrace.LINK:
            return self._begin(name, Context(), (Link(theirs),))
        return self._begin(name, _under(theirs))

    def under(self, context: str, name: str) -> ExportedSpan | None:
        """Begin a span under one of another process."""
        theirs = _read(context) if context else None
        if theirs is None or not theirs.trace_flags.sampled:
            return None
        return self._begin(name, _under(theirs))

    def close(self) -> None:
        """Send what is left, for a bounded time; the rest counts as lost."""
        ending = threading.Thread(target=self._provider.shutdown, daemon=True)
        ending.start()
        ending.join(FLUSH_S)
        left = self._room.give_up()
        if left:
            log.warning("spans were not sent before the end", spans=left)

    def _begin(self, name: str, parent: Context, links: tuple[Link, ...] = ()) -> ExportedSpan:
        kind = KINDS[SPANS[name].kind]
        span = self._tracer.start_span(name, parent, kind, links=links)
        return ExportedSpan(self._tracer, name, span)


def _resource(peer: Peer) -> Resource:
    return Resource.create(
        {
            "service.namespace": "kvairlock",
            "service.name": f"kvairlock-{peer.role.value}",
            "service.instance.id": peer.incarnation,
            "service.version": __version__,
            "kvairlock.node": peer.node,
        }
    )


def _read(text: str) -> SpanContext | None:
    """Return what a `traceparent` names, or None if it is none; its `tracestate` is not read."""
    if len(text) > HEADER_CHARACTERS_MAX:
        return None
    found = trace.get_current_span(_propagator.extract({HEADER: text}, Context()))
    context = found.get_span_context()
    return context if context.is_valid else None


def _under(theirs: SpanContext) -> Context:
    return trace.set_span_in_context(trace.NonRecordingSpan(theirs), Context())
