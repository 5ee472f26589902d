"""What a node may spend on recovery: so many tokens a minute, so that faults cannot amplify load.

A token bucket: it holds one minute's worth and fills evenly. What is not there is not lent.
"""

from __future__ import annotations

from kvairlock.core.terms import Instant

NS_PER_MIN = 60 * 1_000_000_000


class Budget:
    """Tokens that may be spent, filling with time.

    Args:
        tokens_per_min: The rate, and the most that is ever there; 0 allows nothing.
    """

    def __init__(self, tokens_per_min: int) -> None:
        # In tokens times nanoseconds per minute: whole numbers, so that no small step is lost.
        self._rate = tokens_per_min
        self._left = tokens_per_min * NS_PER_MIN
        self._at = Instant(0)

    def spend(self, tokens: int, now: Instant) -> int:
        """Take `tokens` if they are there.

        Args:
            tokens: How many are needed, at least 1.
            now: When.

        Returns:
            How many were taken: all or none.
        """
        filled = self._left + (now - self._at) * self._rate
        self._left, self._at = min(filled, self._rate * NS_PER_MIN), now
        if tokens * NS_PER_MIN > self._left:
            return 0
        self._left -= tokens * NS_PER_MIN
        return tokens
