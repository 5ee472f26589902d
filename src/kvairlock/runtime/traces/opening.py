"""The tracer of a process: none, unless its settings name an endpoint.

The OpenTelemetry SDK is an optional extra. It is imported here and only if it is wanted: whoever
traces nothing neither needs nor loads it.
"""

from __future__ import annotations

import importlib

from kvairlock.core.errors import KvairlockError
from kvairlock.core.terms import Peer
from kvairlock.runtime.traces.tracer import UNTRACED, Tracer
from kvairlock.runtime.tracing_settings import TracingSettings

EXPORT = "kvairlock.runtime.traces.export"
SDK = "opentelemetry"


class TracingUnavailable(KvairlockError):
    """Traces are wanted, and what sends them is not installed."""

    code = "tracing_unavailable"


def open_tracer(settings: TracingSettings, peer: Peer) -> Tracer:
    """Return where the spans of this process go.

    Args:
        settings: Where traces go.
        peer: This process.

    Raises:
        TracingUnavailable: An endpoint is set, and the extra that sends to it is not installed.
    """
    if not settings.endpoint:
        return UNTRACED
    try:
        export = importlib.import_module(EXPORT)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != SDK:
            raise
        raise TracingUnavailable(
            "tracing.endpoint is set, but OpenTelemetry is not installed: "
            "pip install 'kvairlock[otel]', or leave the endpoint out"
        ) from None
    tracer: Tracer = export.Export(settings, peer)
    return tracer
