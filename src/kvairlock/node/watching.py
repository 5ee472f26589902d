"""Gateways that look at this node's pages, and what each of them has been told.

    Watch(view, lease) --> onlooker --look(), at most every so often--> PageMap, PageMap ...
                              |
                              +-- the lease is over: forgotten

Nothing is kept or compared while nobody looks. A lease that is not renewed ends by itself, so an
onlooker that does not read any more costs no more than the maps of one lease.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import anyio

from kvairlock.core.memory.page_map import PAGES_MAX, PageView
from kvairlock.core.memory.pool import Pool
from kvairlock.core.messages import PageMap, Watch
from kvairlock.core.terms import NS_PER_MS, Instant, NodeName
from kvairlock.runtime import clock

LEASE_MS_MAX = 10_000
EVERY_MS_MIN = 50


@dataclass(slots=True)
class Onlooker:
    """One gateway that looks.

    Args:
        name: The name of its view.
        view: What it has been told.
        until: When its lease is over.
        every_ms: Time between two maps, at least.
        due: When the next map may go.
        number: The next map's number.
    """

    name: str
    view: PageView
    until: Instant
    every_ms: int
    due: Instant
    number: int = 0


class Watching:
    """All onlookers of one node.

    Args:
        pool: What they look at.
        send: Sends a message to a gateway.
        now: Tells the time.
    """

    def __init__(
        self,
        pool: Pool,
        send: Callable[[NodeName, PageMap], None],
        now: Callable[[], Instant] = clock.now,
    ) -> None:
        self._pool, self._send, self._now = pool, send, now
        self._onlookers: dict[NodeName, Onlooker] = {}
        self._begun = anyio.Event()

    def __len__(self) -> int:
        """Return how many gateways look."""
        return len(self._onlookers)

    def asked(self, gateway: NodeName, watch: Watch) -> None:
        """Begin, renew or end the lease of a gateway."""
        if watch.lease_ms <= 0:
            self._onlookers.pop(gateway, None)
            return
        now, known = self._now(), self._onlookers.get(gateway)
        until = Instant(now + min(watch.lease_ms, LEASE_MS_MAX) * NS_PER_MS)
        every_ms = max(watch.every_ms, EVERY_MS_MIN)
        if known is not None and known.name == watch.view:
            known.until, known.every_ms = until, every_ms
        else:
            view = PageView(self._pool.pages)
            self._onlookers[gateway] = Onlooker(watch.view, view, until, every_ms, now)
        self._begun.set()

    def look(self) -> None:
        """Send what is due, and forget whose lease is over."""
        now = self._now()
        for gateway, onlooker in list(self._onlookers.items()):
            if onlooker.until <= now:
                del self._onlookers[gateway]
            elif onlooker.due <= now:
                onlooker.due = Instant(now + onlooker.every_ms * NS_PER_MS)
                self._tell(gateway, onlooker)

    async def run(self) -> None:
        """Look as long as anybody does, until cancelled."""
        while True:
            await self._begun.wait()
            self._begun = anyio.Event()
            while self._onlookers:
                self.look()
                await anyio.sleep(EVERY_MS_MIN / 1000)

    def _tell(self, gateway: NodeName, onlooker: Onlooker) -> None:
        changes = onlooker.view.changes(self._pool.stage, self._pool.generation, PAGES_MAX)
        if not changes:
            return
        packed = changes.pack()
        message = PageMap(
            view=onlooker.name,
            number=onlooker.number,
            pool_pages=self._pool.pages,
            spans=packed.spans,
            stages=packed.stages,
            generations=packed.generations,
            rest=changes.rest,
        )
        onlooker.number += 1
        self._send(gateway, message)
