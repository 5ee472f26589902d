"""How long requests and memory waited on a node, as nouns; `stopwatch` measures them.

    request_admitted --queue--> pages_allocated --hand-over--> verdict, or receipt_sent on prefill
    drain_began --drain--> drain_ended            the request's end --window--> window_fenced

What is counted are histograms: by the group of the prompt's length, by cause, and by the evidence
on which memory was let go. So they say what safety costs, and where.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from kvairlock.core.terms import Fence

BOUNDS_MS = (1, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000, 300_000)
"""Up to which wait each bucket counts. The last ones are the deadlines that settings begin with."""


class Wait(StrEnum):
    """What is waited for."""

    QUEUE = "queue"
    """A request for its pages."""
    HANDOVER = "handover"
    """Pages for their content: on decode until the verdict, on prefill until the receipt."""
    DRAIN = "drain"
    """Pages of an ended lease for everybody who could reach them."""
    WINDOW = "window"
    """Landing memory, after its request's end, for evidence that nobody can write into it."""


@dataclass(frozen=True, slots=True)
class Waited:
    """One histogram of waits on one node, since it started.

    Args:
        wait: What was waited for.
        length: Group of the prompt's length; `other` also where no one prompt is concerned.
        cause: Of a drain: why it began. Of a queue: whether there were pages at last. Of a
            hand-over: the verdict, the receipt's outcome, or why it came to none. Else empty.
        fence: The evidence on which memory was let go (drain and window); None of other waits.
        count: How many there were.
        sum_ms: How long they took together.
        within_ms: How many took longer than the bucket before and at most so long, by bound; empty
            buckets are left out, and what took longer than every bound is in none.
    """

    wait: Wait
    length: str
    cause: str
    fence: Fence | None
    count: int
    sum_ms: int
    within_ms: dict[int, int]
