"""A time axis on which every step can be seen: the order is exact, widths are not.

Between two edges of a hand-over lie microseconds or seconds. A longer time is drawn longer, but
only by its logarithm, so that neither is lost:

    0.1 ms |-|     10 ms |---|     1,000 ms |-------|
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate, pairwise
from math import log1p

from kvairlock.core.terms import NS_PER_MS

LEAST = 1.0
"""Width of the shortest step, beside which a millisecond is about as wide again."""


class Axis:
    """Where times of a scene are, in pixels.

    Args:
        times_ns: The times at which something changes, in order.
        left: Place of the first.
        right: Place of the last.
    """

    def __init__(self, times_ns: tuple[int, ...], left: float, right: float) -> None:
        self._times = times_ns
        steps = (LEAST + log1p((b - a) / NS_PER_MS) for a, b in pairwise(times_ns))
        ways = [0.0, *accumulate(steps)]
        scale = (right - left) / (ways[-1] or 1.0)
        self._places = [left + way * scale for way in ways]

    def x(self, at_ns: int) -> float:
        """Return the place of a time; what lies outside of the scene is at its border."""
        index = bisect_right(self._times, at_ns)
        return self._places[max(index - 1, 0)]

    def ticks(self, apart: float) -> Iterator[tuple[int, float]]:
        """Yield times to label, with their places, at least so many pixels apart."""
        latest = float("-inf")
        for at_ns, place in zip(self._times, self._places, strict=False):
            if place - latest >= apart:
                latest = place
                yield at_ns, place
