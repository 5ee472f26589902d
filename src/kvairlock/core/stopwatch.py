"""Measures how long a node's requests and memory waited, from what the node records.

Nothing is measured that is not evidence as well: the stopwatch reads each record once, together
with the time at which it was made, and forgets a request with its end. It holds one entry for each
request, lease and window that is under way, and one histogram for each kind of wait that came up.

What it tells of a histogram are whole steps (`core.lengths`): as it was when it last had one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from kvairlock.core.effects import Record, Value
from kvairlock.core.lengths import OTHER, in_steps, length_class
from kvairlock.core.terms import NS_PER_MS, Fence, Instant, Owner
from kvairlock.core.waits import BOUNDS_MS, ENDED, GRANTED, Wait, Waited

Key = tuple[Wait, str, str, Fence | None]


@dataclass(slots=True)
class _Histogram:
    """What a `Waited` is made from.

    Args:
        step: The fewest waits by which what is shown may rise.
        shown: What it was with its last whole step: number, sum in milliseconds, and buckets.
    """

    step: int
    count: int = 0
    sum_ms: int = 0
    within_ms: Counter[int] = field(default_factory=Counter)
    shown: tuple[int, int, dict[int, int]] = (0, 0, {})

    def add(self, wait_ms: int) -> None:
        self.count += 1
        self.sum_ms += wait_ms
        place = bisect_left(BOUNDS_MS, wait_ms)
        if place < len(BOUNDS_MS):
            self.within_ms[BOUNDS_MS[place]] += 1
        if in_steps(self.count, self.step) == self.count:
            self.shown = self.count, self.sum_ms, dict(sorted(self.within_ms.items()))


@dataclass(slots=True)
class _Underway:
    """A request that has not ended here.

    Args:
        length: Its group.
        wait: What it waits for; None once its pages are judged, or where it fills them itself.
        since: Since when.
        next: What it waits for once it has its pages.
    """

    length: str
    wait: Wait | None
    since: Instant
    next: Wait | None = Wait.HANDOVER


class Stopwatch:
    """The waits of one node.

    Args:
        requests_min: The fewest waits by which a histogram may rise.
    """

    def __init__(self, requests_min: int) -> None:
        self._step = requests_min
        self._histograms: dict[Key, _Histogram] = {}
        self._underway: dict[Owner, _Underway] = {}
        self._leases: dict[Value, tuple[str, str]] = {}
        """The length and, once it has ended, the cause of each lease."""
        self._windows: dict[Value, str] = {}
        self._steps: dict[str, Callable[[Record, Owner, Instant], None]] = {
            "request_admitted": self._admitted,
            "request_recomputed": self._recomputed,
            "pages_allocated": self._allocated,
            "window_granted": self._granted,
            "verdict": self._judged,
            "receipt_sent": self._judged,
            "request_ended": self._ended,
            "drain_began": self._drain_began,
            "drain_ended": self._drain_ended,
            "window_fenced": self._fenced,
        }

    def note(self, record: Record, now: Instant) -> None:
        """Read one record, made now."""
        step = self._steps.get(record.event)
        if step is not None and record.owner is not None:
            step(record, record.owner, now)

    def waited(self) -> tuple[Waited, ...]:
        """Return all histograms that have something to show."""
        return tuple(self._each())

    def _each(self) -> Iterator[Waited]:
        for (wait, length, cause, fence), found in self._histograms.items():
            if found.shown[0]:
                yield Waited(wait, length, cause, fence, *found.shown)

    # A request on its way

    def _admitted(self, record: Record, owner: Owner, now: Instant) -> None:
        length = length_class(_number(record, "prompt_tokens"))
        self._underway[owner] = _Underway(length, Wait.QUEUE, now)

    def _allocated(self, record: Record, owner: Owner, now: Instant) -> None:
        underway = self._underway.get(owner)
        self._leases[record.fields["lease"]] = (underway.length if underway else OTHER, "")
        if underway is not None and underway.wait is Wait.QUEUE:
            self._close(underway, GRANTED, now)
            underway.wait, underway.since = underway.next, now

    def _granted(self, record: Record, owner: Owner, now: Instant) -> None:
        underway = self._underway.get(owner)
        self._windows[record.fields["window"]] = underway.length if underway else OTHER

    def _judged(self, record: Record, owner: Owner, now: Instant) -> None:
        underway = self._underway.get(owner)
        if underway is not None and underway.wait is Wait.HANDOVER:
            self._close(underway, str(record.fields["outcome"]), now)

    def _recomputed(self, record: Record, owner: Owner, now: Instant) -> None:
        """It queues again, for pages that it fills itself: nothing is handed over any more."""
        underway = self._underway.get(owner)
        if underway is not None:
            self._close(underway, str(record.fields["reason"]), now)
            self._underway[owner] = _Underway(underway.length, Wait.QUEUE, now, next=None)

    def _ended(self, record: Record, owner: Owner, now: Instant) -> None:
        underway = self._underway.pop(owner, None)
        if underway is not None:
            self._close(underway, ENDED, now)

    def _close(self, underway: _Underway, cause: str, now: Instant) -> None:
        """What it waited for has come, or will not come any more."""
        if underway.wait is not None:
            wait_ms = (now - underway.since) // NS_PER_MS
            self._add((underway.wait, underway.length, cause, None), wait_ms)
            underway.wait = None

    # Memory on its way back

    def _drain_began(self, record: Record, owner: Owner, now: Instant) -> None:
        lease = record.fields["lease"]
        length, _ = self._leases.get(lease, (OTHER, ""))
        self._leases[lease] = length, str(record.fields["cause"])

    def _drain_ended(self, record: Record, owner: Owner, now: Instant) -> None:
        length, cause = self._leases.pop(record.fields["lease"], (OTHER, ""))
        self._add((Wait.DRAIN, length, cause, _fence(record)), _number(record, "wait_ms"))

    def _fenced(self, record: Record, owner: Owner, now: Instant) -> None:
        length = self._windows.pop(record.fields["window"], OTHER)
        self._add((Wait.WINDOW, length, "", _fence(record)), _number(record, "wait_ms"))

    def _add(self, key: Key, wait_ms: int) -> None:
        self._histograms.setdefault(key, _Histogram(self._step)).add(wait_ms)


def _number(record: Record, name: str) -> int:
    value = record.fields[name]
    return value if isinstance(value, int) else 0


def _fence(record: Record) -> Fence:
    return Fence(str(record.fields["fence"]))
