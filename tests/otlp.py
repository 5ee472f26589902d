"""A collector of spans, as tests need one: OTLP over HTTP on loopback, all in memory.

It reads what really came over the wire, with the protocol's own messages, so nothing of the sender
vouches for it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from kvairlock.drills.stack import wait_for

PATH = "/v1/traces"


@dataclass(frozen=True)
class Seen:
    """One span as it came."""

    name: str
    trace: str
    id: str
    parent: str
    kind: int
    start_ns: int
    end_ns: int
    attributes: dict[str, Any]
    is_error: bool
    links: tuple[str, ...]
    resource: dict[str, Any]


class Collector:
    """What has come until now."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.status = 200
        """What it answers; what it does not answer with 200 it has not taken."""
        self.raw = b""
        """All bodies, one behind the other."""
        self._seen: list[Seen] = []
        self._lock = threading.Lock()

    def take(self, body: bytes) -> int:
        request = ExportTraceServiceRequest.FromString(body)
        with self._lock:
            self.raw += body
            if self.status == 200:
                self._seen.extend(_spans(request))
            return self.status

    @property
    def spans(self) -> list[Seen]:
        with self._lock:
            return list(self._seen)

    def named(self, name: str, trace: str | None = None) -> list[Seen]:
        return [s for s in self.spans if s.name == name and trace in (None, s.trace)]

    def one(self, name: str, trace: str | None = None) -> Seen:
        """The one span of a name; asserts that there is exactly one."""
        (found,) = self.named(name, trace)
        return found

    def wait(self, what: str, wanted: Callable[[list[Seen]], bool]) -> None:
        wait_for(what, lambda: wanted(self.spans) or None)

    def wait_named(self, *names: str) -> None:
        """Wait until there is a span of each name."""
        self.wait(f"spans {names}", lambda spans: {s.name for s in spans}.issuperset(names))


def _spans(request: ExportTraceServiceRequest) -> Iterator[Seen]:
    for of in request.resource_spans:
        for scope in of.scope_spans:
            for span in scope.spans:
                yield Seen(
                    name=span.name,
                    trace=span.trace_id.hex(),
                    id=span.span_id.hex(),
                    parent=span.parent_span_id.hex(),
                    kind=span.kind,
                    start_ns=span.start_time_unix_nano,
                    end_ns=span.end_time_unix_nano,
                    attributes=_plain(span.attributes),
                    is_error=span.status.code == span.status.STATUS_CODE_ERROR,
                    links=tuple(link.trace_id.hex() for link in span.links),
                    resource=_plain(of.resource.attributes),
                )


def _plain(attributes: Iterable[Any]) -> dict[str, Any]:
    return {a.key: getattr(a.value, a.value.WhichOneof("value")) for a in attributes}


@contextmanager
def collecting() -> Iterator[Collector]:
    """Run a collector."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers["content-length"])
            body = self.rfile.read(length)
            is_ours = self.path == PATH
            self.send_response(collector.take(body) if is_ours else 404)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    collector = Collector(f"http://127.0.0.1:{server.server_address[1]}{PATH}")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield collector
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
