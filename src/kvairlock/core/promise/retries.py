"""What may be tried again: a share of what succeeded, so that retries can't amplify a fault.

    success --share--> [ saved, at most burst ] --one each--> retry

When nothing succeeds, no more than `burst` retries are made, however many requests fail. In the
steady state the load is at most (1 + share) times what clients send. The idea and its figures are
those of Finagle's RetryBudget (https://twitter.github.io/finagle/guide/Clients.html#retries).
"""

from __future__ import annotations

UNITS = 1_000
"""Of one retry: whole numbers, so that no small share is lost."""


class RetryBudget:
    """Retries that are saved up.

    Args:
        share: Retries for each success, in [0, 1].
        burst: Retries that may be saved up, and that there are at first.
    """

    def __init__(self, share: float, burst: int) -> None:
        self._deposit = round(share * UNITS)
        self._most = burst * UNITS
        self._saved = self._most

    @property
    def left(self) -> int:
        """Retries that could be made now."""
        return self._saved // UNITS

    @property
    def used(self) -> int:
        """Retries that were made and that no success has made up for."""
        return -(-(self._most - self._saved) // UNITS)

    def succeeded(self) -> None:
        """Save what a success is worth."""
        self._saved = min(self._most, self._saved + self._deposit)

    def spend(self) -> int:
        """Take one retry if there is one.

        Returns:
            How many were taken: 1 or 0.
        """
        if self._saved < UNITS:
            return 0
        self._saved -= UNITS
        return 1
