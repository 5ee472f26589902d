"""Spans on their way out: a bounded queue, a thread of its own, and a count of what was lost.

    ended span --room?--> queue --thread--> POST (OTLP over HTTP) --taken?--> gone
                 | no                                               | no
                 +----------------------> dropped <-----------------+

Nobody who ends a span ever waits. A span counts as on its way until its batch was taken or given
up, so that also what the thread has in its hands is bounded.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence

import structlog
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

SEND_S = 5
"""For how long one batch is tried."""

DELAY_MS = 500
"""How long a span waits for others, at most."""

BATCH_MAX = 256

log = structlog.get_logger("kvairlock.traces")


class Room:
    """How many spans are on their way, and how many were lost.

    Args:
        most: How many may be on their way.
    """

    def __init__(self, most: int) -> None:
        self._most, self._taken, self.dropped = most, 0, 0
        self._lock = threading.Lock()

    def enter(self) -> bool:
        """Let a span in, if there is room; else it counts as lost."""
        with self._lock:
            fits = self._taken < self._most
            if fits:
                self._taken += 1
            else:
                self.dropped += 1
            return fits

    def leave(self, count: int, *, taken: bool) -> None:
        """Spans are out; they are lost if nobody has taken them."""
        with self._lock:
            self._taken -= count
            self.dropped += 0 if taken else count

    def give_up(self) -> int:
        """Count what is still on its way as lost, and return how many that were."""
        with self._lock:
            left, self._taken = self._taken, 0
            self.dropped += left
            return left


class Sender(SpanExporter):
    """Posts batches, counts those that nobody took, and says so once until one is taken again."""

    def __init__(self, endpoint: str, room: Room) -> None:
        # Each failed try would be a line of the SDK's own; one of ours is enough.
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
        self._inner, self._room = OTLPSpanExporter(endpoint=endpoint, timeout=SEND_S), room
        self._fails = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Post one batch; called in the processor's thread."""
        result = self._inner.export(spans)
        taken = result is SpanExportResult.SUCCESS
        self._room.leave(len(spans), taken=taken)
        if taken is self._fails:
            self._fails = not taken
            say = log.info if taken else log.warning
            say("spans are taken again" if taken else "spans are not taken; they are dropped")
        return result

    def shutdown(self) -> None:
        """Try no more."""
        self._inner.shutdown()  # type: ignore[no-untyped-call]

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Return at once: nothing waits here."""
        return True


class Queue(BatchSpanProcessor):
    """The SDK's queue and thread, behind a door that counts."""

    def __init__(self, endpoint: str, room: Room, most: int) -> None:
        super().__init__(
            Sender(endpoint, room),
            max_queue_size=most,
            schedule_delay_millis=DELAY_MS,
            max_export_batch_size=min(BATCH_MAX, most),
        )
        self._room = room

    def on_end(self, span: ReadableSpan) -> None:
        """Take a span that has ended, if there is room."""
        if self._room.enter():
            super().on_end(span)
