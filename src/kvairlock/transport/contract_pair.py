"""The two connected sides that the contract tests, and the figures that both agree on."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from kvairlock.core.terms import LandingPolicy, Pages
from kvairlock.runtime.ports import Opened, PageMemory, ReceivingSide, SendingSide, WriteEnd

FORMER = 0xA0
NEXT = 0x55
PAGES = np.array([5, 6, 7, 2, 3, 9], dtype=np.int32)
"""Where the former request lands: three runs, out of order."""
SOURCE = np.array([0, 1, 2, 3, 4, 5], dtype=np.int32)
POOL_PAGES = 12
"""A pair's two pools have this many pages each."""


class Pair(ABC):
    """Two connected sides under test. Waiting calls raise TimeoutError instead of hanging."""

    policy: LandingPolicy
    pool: PageMemory
    source: PageMemory
    receiver: ReceivingSide
    sender: SendingSide

    @abstractmethod
    def send(self, write: str, pages: Pages, opened: Opened) -> None:
        """Carry a grant to the sending side and submit the write there."""

    @abstractmethod
    def hold_after(self, pieces: int) -> None:
        """Make the next write stop after this many pieces."""

    @abstractmethod
    def wait_held(self) -> None:
        """Wait until a write stands there."""

    @abstractmethod
    def resume(self) -> None:
        """Let it run on."""

    @abstractmethod
    def ended(self) -> tuple[WriteEnd, ...]:
        """Writes that were reported as ended and not yet waited for."""

    @abstractmethod
    def wait_end(self) -> WriteEnd:
        """Wait for the next report of an end."""

    @abstractmethod
    def crowd_out(self) -> None:
        """Leave the receiving side no room for another window."""

    @abstractmethod
    def close(self) -> None:
        """Give everything up, windows included."""
