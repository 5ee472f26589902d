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
        self._most = tokens_per_min
        self._left = float(tokens_per_min)
        self._at = Instant(0)

    def spend(self, tokens: int, now: Instant) -> int:
        """Take `tokens` if they are there.

        Args:
            tokens: How many are needed, at least 1.
            now: When.

        Returns:
            How many were taken: all or none.
        """
        filled = (now - self._at) * self._most / NS_PER_MIN
        self._left, self._at = min(self._left + filled, float(self._most)), now
        if tokens > self._left:
            return 0
        self._left -= tokens
        return tokens
