"""The one clock of deadlines: it goes on while the machine is suspended."""

from __future__ import annotations

import time

from kvairlock.core.terms import NS_PER_MS, Instant


def now() -> Instant:
    """Return the nanoseconds since boot, suspended time included (CLOCK_BOOTTIME, Linux)."""
    return Instant(time.clock_gettime_ns(time.CLOCK_BOOTTIME))


def elapsed_ms(since: Instant) -> int:
    """Return whole milliseconds since an instant of this process."""
    return (now() - since) // NS_PER_MS
