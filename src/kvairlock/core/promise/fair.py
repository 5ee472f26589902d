"""Whose request is granted next, and whose gives way when the queue is full: one line per tenant.

    acme   starts at 96  [a7 a8 a9 ...]   the line that starts first is next: b1. When b1 is granted
    bravo  starts at 64  [b1 b2]          20 pages, virtual time is 64, and bravo starts at 84

This is start-time fair queueing, counted in pages (P. Goyal, H. M. Vin, H. Cheng: Start-time Fair
Queuing, SIGCOMM 1996), with equal weights. Among fair queues it is the one whose bound holds at any
rate of service, and nobody knows the rate at which pages will come back. Virtual time is where the
line started that was charged last. A tenant that begins to wait starts then, or where its own last
request ended if that is later: to have been idle is neither credit nor debt.

A request that is due and does not fit keeps all others waiting, also if it gives up in the end. Its
line pays for it as for a grant, or what does not fit would be due again and again. That *debt*
stays until the others have had as much, also over times in which nobody waits. What cannot fit even
when all is free leads no line: nobody waits for it, and it waits for its end alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from kvairlock.core.terms import TransferId


@dataclass(slots=True)
class _Line:
    """The requests of one tenant that wait, in order of arrival, and when the first would start."""

    start: int
    waiting: deque[TransferId] = field(default_factory=deque)
    returned: int = 0
    """How many of them, at its head, had their turn before."""
    debt: int = 0
    """Pages that its last charge was for, if others waited for them and it was not granted any."""


class FairQueue:
    """The requests that wait for pages.

    Over any time in which two tenants wait and neither is passed, the pages that they are granted,
    or keep others waiting for, differ by at most the largest request of the one plus the largest of
    the other.
    """

    def __init__(self) -> None:
        self._lines: dict[str, _Line] = {}
        self._tenants: dict[TransferId, str] = {}
        self._time = 0
        self._awaited: TransferId | None = None

    def __len__(self) -> int:
        """Return how many requests wait."""
        return len(self._tenants)

    def __contains__(self, name: TransferId) -> bool:
        """Return whether a request waits."""
        return name in self._tenants

    def heads(self, may_lead: Callable[[TransferId], bool] = lambda _: True) -> list[TransferId]:
        """Return the first request of each line, in the order in which lines are due.

        Args:
            may_lead: Says of a request whether anybody is to wait for it; those behind one for
                which nobody is come first.
        """
        lines = sorted(self._lines.values(), key=lambda line: line.start)
        firsts = (next(filter(may_lead, line.waiting), None) for line in lines)
        return [name for name in firsts if name is not None]

    def join(self, tenant: str, name: TransferId) -> None:
        """Put a request at the end of its tenant's line."""
        self._line(tenant, name).waiting.append(name)

    def join_first(self, tenant: str, name: TransferId) -> None:
        """Put a request that had its turn before in front of those of its tenant that had not."""
        line = self._line(tenant, name)
        line.waiting.insert(line.returned, name)
        line.returned += 1

    def wait_for(self, name: TransferId) -> None:
        """Take note that a head is due and does not fit: whoever else waits, waits for it."""
        if self.waiting(self._tenants[name]) < len(self):
            self._awaited = name

    def grant(self, name: TransferId, pages: int) -> None:
        """Take a head out that is granted its pages.

        Lines that were due before it were passed; for what they could not use they get no credit.
        A tenant in debt that is granted pages while nobody else waits remains in debt.
        """
        line = self._lines[self._tenants[name]]
        if not line.debt or len(line.waiting) < len(self):
            self._charge(line, pages)
        self.leave(name)

    def give_up(self, name: TransferId, pages: int) -> None:
        """Take a request out that ends without pages, if it waits; it pays if others waited for it.

        Args:
            name: The request.
            pages: What it would have been granted.
        """
        if name == self._awaited:
            line = self._lines[self._tenants[name]]
            self._charge(line, pages)
            line.debt = pages
        self.leave(name)

    def leave(self, name: TransferId) -> None:
        """Take a request out, if it waits."""
        tenant = self._tenants.pop(name, None)
        if tenant is not None:
            line = self._lines[tenant]
            line.returned -= line.waiting.index(name) < line.returned
            line.waiting.remove(name)
            if name == self._awaited:
                self._awaited = None
            self._forget()

    # A full queue

    def waiting(self, tenant: str) -> int:
        """Return how many requests of a tenant wait."""
        line = self._lines.get(tenant)
        return len(line.waiting) if line else 0

    def longest(self) -> str:
        """Return the tenant of whom most requests wait; somebody must."""
        return max(self._lines, key=self.waiting)

    def youngest(self, tenant: str) -> TransferId:
        """Return the last request in the line of a tenant that waits."""
        return self._lines[tenant].waiting[-1]

    def places_each(self, places: int) -> int:
        """Return how many places each tenant has if all that wait have equally many; somebody must.

        Args:
            places: Requests that may wait.
        """
        tenants = sum(1 for line in self._lines.values() if line.waiting)
        return max(1, places // tenants)

    def _line(self, tenant: str, name: TransferId) -> _Line:
        self._tenants[name] = tenant
        return self._lines.setdefault(tenant, _Line(self._time))

    def _charge(self, line: _Line, pages: int) -> None:
        self._time = line.start
        for other in self._lines.values():
            if other.start <= self._time:
                other.start, other.debt = self._time, 0
        line.start += pages

    def _forget(self) -> None:
        """Drop lines in which nobody waits, once they would start now or there is nobody to wait.

        While there is a debt all are kept, so that it counts down as others are granted pages. What
        is left is bounded by the tenants that were charged within one largest request.
        """
        counts = self._tenants or any(line.debt for line in self._lines.values())
        self._lines = {
            tenant: line
            for tenant, line in self._lines.items()
            if line.waiting or (counts and line.start > self._time)
        }
