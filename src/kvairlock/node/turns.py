"""Whose turn it is: tenants in turn, and within a tenant whoever waited longest.

How much a tenant has waiting changes nothing for another: of two tenants each gets every second
turn, whether it has one thing waiting or thirty. The tenant that was served longest ago is next,
and one that comes new is before all that were served. A tenant that has nothing waiting is
remembered only until all that wait were served after it: from then on it is as good as new.

Every turn costs about the same, one chunk or one seat, so turns are counted and not weighed.
Requests that wait for pages need very unequal numbers: they have a `FairQueue`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Turns(Generic[Item]):
    """Things that wait for their turn, by tenant."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[Item]] = {}
        self._served: dict[str, int] = {}
        self._turn = 0

    def __len__(self) -> int:
        """Return how many things wait."""
        return sum(len(queue) for queue in self._waiting.values())

    def add(self, tenant: str, item: Item) -> None:
        """Let something wait, behind all else of its tenant."""
        self._waiting.setdefault(tenant, deque()).append(item)

    def keep(self, wanted: Callable[[Item], bool]) -> None:
        """Let only what is still wanted wait on, in its order; no turn is spent on the rest."""
        left = {name: deque(filter(wanted, queue)) for name, queue in self._waiting.items()}
        self._waiting = {name: queue for name, queue in left.items() if queue}

    def take(self) -> Item:
        """Take out what is next.

        Raises:
            ValueError: Nothing waits.
        """
        tenant = min(self._waiting, key=self._last_turn)
        last, queue = self._last_turn(tenant), self._waiting[tenant]
        item = queue.popleft()
        if not queue:
            del self._waiting[tenant]
        self._served = {name: turn for name, turn in self._served.items() if turn > last}
        self._turn += 1
        self._served[tenant] = self._turn
        return item

    def _last_turn(self, tenant: str) -> int:
        return self._served.get(tenant, 0)
