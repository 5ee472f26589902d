"""The settings of traces: where they go, and how many requests have one."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta


class ClientTrace(StrEnum):
    """What becomes of the trace that a client says its request belongs to (`traceparent`)."""

    PARENT = "parent"
    LINK = "link"
    IGNORED = "ignored"


class TracingSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Traces of requests over all processes (OpenTelemetry); see docs/tracing.md."""

    endpoint: Annotated[
        str,
        Meta(
            description="Where spans are sent, as OTLP over HTTP, e.g. "
            "`http://127.0.0.1:4318/v1/traces`; empty traces nothing. Needs `kvairlock[otel]`."
        ),
    ] = ""
    sampled_share: Annotated[
        float,
        Meta(
            ge=0,
            le=1,
            description="Share of requests that are traced, drawn by the gateway; no client can "
            "raise or lower it.",
        ),
    ] = 1.0
    client: Annotated[
        ClientTrace,
        Meta(
            description="A client's own trace: `link` begins another that names it, `parent` "
            "continues it, so that the client chooses the trace id, `ignored` takes no notice."
        ),
    ] = ClientTrace.LINK
    queue_max: Annotated[
        int,
        Meta(
            ge=1,
            le=1_000_000,
            description="Spans of one process that may wait to be sent; more are dropped and "
            "counted (`kvairlock_trace_spans_dropped_total`).",
        ),
    ] = 2048

    def problems(self) -> Iterator[str]:
        """Say why it can't be used, if so."""
        if not self.endpoint:
            return
        try:
            url = urlsplit(self.endpoint)
            host, _ = url.hostname, url.port
        except ValueError as error:
            yield f"endpoint is no URL: {error}"
            return
        if url.scheme not in ("http", "https") or not host:
            yield "endpoint must be an http or https URL with a host"
        if url.username is not None or url.password is not None:
            yield "endpoint must hold no user or password: OTEL_EXPORTER_OTLP_HEADERS is for that"
