"""How long requests and memory waited on a node, as nouns; `stopwatch` measures them.

    request_admitted --queue--> pages_allocated --hand-over--> verdict, or receipt_sent on prefill
    drain_began --drain--> drain_ended            the request's end --window--> window_fenced

What is counted are histograms: by the group of the prompt's length, by cause, and by the evidence
on which memory was let go. So they say what safety costs, and where. All words in them are of
closed lists: they become labels of metrics, in which nobody is named.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from kvairlock.core.ends import End
from kvairlock.core.errors import Reason
from kvairlock.core.lengths import GROUPS
from kvairlock.core.terms import Fence

BOUNDS_MS = (1, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000, 300_000)
"""Up to which wait each bucket counts. The last ones are the deadlines that settings begin with."""

GRANTED, ENDED, EVICTED = "granted", "ended", "evicted"
"""How a wait in the queue came out: with pages, or, as any wait may, with the request's end; and
why the lease of a prefix ends: it makes room."""

ADMITTED = "admitted"
"""A verdict that lets pages be read."""

CAUSES = frozenset(("", GRANTED, ENDED, EVICTED, ADMITTED, *map(str, End), *map(str, Reason)))
"""Every cause of a wait."""


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

    Raises:
        ValueError: A word or a bound is none of ours, or the figures do not fit each other.
    """

    wait: Wait
    length: str
    cause: str
    fence: Fence | None
    count: int
    sum_ms: int
    within_ms: dict[int, int]

    def __post_init__(self) -> None:
        if self.length not in GROUPS or self.cause not in CAUSES:
            raise ValueError("a wait has a length and a cause of the closed lists")
        if not self.within_ms.keys() <= set(BOUNDS_MS):
            raise ValueError("a wait has the bounds of all waits")
        if min(self.count, self.sum_ms, *self.within_ms.values()) < 0:
            raise ValueError("a wait counts from 0")
        if sum(self.within_ms.values()) > self.count:
            raise ValueError("a wait is in one bucket at most")
