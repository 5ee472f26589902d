"""How often something happened within the last while, counted no further than it matters."""

from __future__ import annotations

from collections import deque

from kvairlock.core.terms import NS_PER_MS, Instant


class Recent:
    """Moments at which something happened; those that are older than the window are forgotten.

    Args:
        within_ms: The window.
        most: The largest count that anybody asks about; more moments are not kept.
    """

    def __init__(self, within_ms: int, most: int) -> None:
        self._within_ns = within_ms * NS_PER_MS
        self._moments: deque[Instant] = deque(maxlen=most)

    def add(self, now: Instant) -> int:
        """Take note that it happened, and return how often it has within the window."""
        self._moments.append(now)
        return self.count(now)

    def count(self, now: Instant) -> int:
        """Return how often it happened within the window that ends now."""
        while self._moments and self._moments[0] <= now - self._within_ns:
            self._moments.popleft()
        return len(self._moments)

    def fewer_at(self, now: Instant) -> Instant:
        """Return when the count falls by one if nothing more happens; now if it is 0."""
        return Instant(self._moments[0] + self._within_ns) if self.count(now) else now

    def clear(self) -> None:
        """Forget all of it."""
        self._moments.clear()
