"""Whose request is granted next, and whose gives way when the queue is full: one line per tenant.

    acme   starts at 96  [a7 a8 a9 ...]   the line that starts first is next: b1. When b1 is granted
    bravo  starts at 64  [b1 b2]          20 pages, virtual time is 64, and bravo starts at 84

This is start-time fair queueing, counted in pages (P. Goyal, H. M. Vin, H. Cheng: Start-time Fair
Queuing, SIGCOMM 1996), with equal weights. Among fair queues it is the one whose bound holds at any
rate of service, and nobody knows the rate at which pages will come back. Virtual time is where the
line started that was granted last. A tenant that begins to wait starts then, or where its own last
request ended if that is later: to have been idle is neither credit nor debt.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from kvairlock.core.terms import TransferId


@dataclass(slots=True)
class _Line:
    """The requests of one tenant that wait, in order of arrival, and when the first would start."""

    start: int
    waiting: deque[TransferId] = field(default_factory=deque)


class FairQueue:
    """The requests that wait for pages.

    Over any time in which two tenants wait and neither is passed, the pages that they are granted
    differ by at most the largest request of the one plus the largest of the other.
    """

    def __init__(self) -> None:
        self._lines: dict[str, _Line] = {}
        self._tenants: dict[TransferId, str] = {}
        self._time = 0

    def __len__(self) -> int:
        """Return how many requests wait."""
        return len(self._tenants)

    def __contains__(self, name: TransferId) -> bool:
        """Return whether a request waits."""
        return name in self._tenants

    def heads(self) -> list[TransferId]:
        """Return the first request of each line, in the order in which lines are due."""
        lines = [line for line in self._lines.values() if line.waiting]
        return [line.waiting[0] for line in sorted(lines, key=lambda line: line.start)]

    def join(self, tenant: str, name: TransferId) -> None:
        """Put a request at the end of its tenant's line."""
        self._line(tenant, name).waiting.append(name)

    def join_first(self, tenant: str, name: TransferId) -> None:
        """Put a request that had its turn before at the head of its tenant's line."""
        self._line(tenant, name).waiting.appendleft(name)

    def grant(self, name: TransferId, pages: int) -> None:
        """Take a head out that is granted its pages.

        Lines that were due before it were passed; for what they could not use they get no credit.
        """
        granted = self._lines[self._tenants[name]]
        self._time = granted.start
        for line in self._lines.values():
            line.start = max(line.start, self._time)
        granted.start += pages
        self.leave(name)

    def leave(self, name: TransferId) -> None:
        """Take a request out, if it waits."""
        tenant = self._tenants.pop(name, None)
        if tenant is not None:
            self._lines[tenant].waiting.remove(name)
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

    def _forget(self) -> None:
        """Drop lines in which nobody waits, once they would start now or there is nobody to wait.

        What is left is bounded by the tenants that were granted within one largest request.
        """
        self._lines = {
            tenant: line
            for tenant, line in self._lines.items()
            if line.waiting or (self._tenants and line.start > self._time)
        }
