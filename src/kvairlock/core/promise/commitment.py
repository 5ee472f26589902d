"""What the service promises, against what its nodes report that they hold."""

from __future__ import annotations

from enum import StrEnum


class Reach(StrEnum):
    """Which routes must hold what is promised."""

    TIERED = "tiered"
    """Requests are routed by length: one route that holds it is enough."""
    EVERY = "every"
    """Any route may be taken, so the smallest one limits the promise."""
