"""A queue whose sender never waits: what is put in one loop turn is taken by one task later.

Bounds belong to who puts: only there is it known what to do when a reader does not keep up.
"""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

import anyio

Item = TypeVar("Item")


class Mailbox(Generic[Item]):
    """Items in order, for exactly one reader."""

    def __init__(self) -> None:
        self._items: deque[Item] = deque()
        self._wake = anyio.Event()

    def __len__(self) -> int:
        """Return how many items wait."""
        return len(self._items)

    def put(self, item: Item) -> None:
        """Add an item and wake the reader."""
        self._items.append(item)
        self._wake.set()

    async def get(self) -> Item:
        """Return the next item as soon as there is one."""
        while not self._items:
            self._wake = anyio.Event()
            await self._wake.wait()
        return self._items.popleft()
