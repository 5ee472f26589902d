"""Who looks at the console: so many at one time, and nodes are asked only while anybody does.

    first viewer --> Watch to every node, again each second --> last viewer gone: leases end

A gateway that stops ends all streams first, since a stream by itself never ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Protocol

import anyio

from kvairlock.core.errors import KvairlockError
from kvairlock.core.messages import Message, Watch
from kvairlock.core.terms import NodeName
from kvairlock.gateway.console.page_maps import PageMaps
from kvairlock.gateway.errors import ApiError, Refused

VIEWERS_MAX = 8
RENEW_S = 1.0
RETRY_AFTER_S = 5


class Post(Protocol):
    """The way to the nodes."""

    def can_say(self, name: NodeName, kind: type[Message]) -> bool:
        """Whether a node's version has a message. Raises NodeDown."""

    def post(self, name: NodeName, message: Message) -> None:
        """Queue a message. Raises NodeDown."""


class Viewers:
    """All that look at one gateway's console.

    Args:
        nodes: The way to the nodes.
        maps: What they tell of their pages.
        names: Their names.
    """

    def __init__(self, nodes: Post, maps: PageMaps, names: tuple[NodeName, ...]) -> None:
        self._nodes, self._maps, self._names = nodes, maps, names
        self._count = 0
        self._came = anyio.Event()
        self.closed = anyio.Event()

    def __len__(self) -> int:
        """Return how many look."""
        return self._count

    def check(self) -> None:
        """Refuse somebody who wants to look.

        Raises:
            Refused: 429, too many do; 503, the gateway stops.
        """
        if self.closed.is_set():
            raise Refused(ApiError(503, "gateway_stopping", "the gateway is stopping"))
        if self._count >= VIEWERS_MAX:
            raise _too_many()

    @contextmanager
    def one_more(self) -> Iterator[None]:
        """Count somebody who looks.

        Raises:
            Refused: As `check` does.
        """
        self.check()
        self._count += 1
        self._came.set()
        try:
            yield
        finally:
            self._count -= 1

    def close(self) -> None:
        """End all streams: the gateway stops."""
        self.closed.set()

    async def run(self) -> None:
        """Have nodes tell of their pages while anybody looks, until cancelled."""
        while True:
            await self._came.wait()
            while self._count:
                self._ask(self._maps.watch)
                await anyio.sleep(RENEW_S)
            # Only now: whoever came and left in that second has left nothing to wake up for.
            self._came = anyio.Event()
            self._ask(lambda name: self._maps.watch(name, lease_ms=0))
            for name in self._names:
                self._maps.forget(name)

    def _ask(self, watch: Callable[[NodeName], Watch]) -> None:
        for name in self._names:
            # Who is not connected is asked again in a second, if anybody still looks.
            with suppress(KvairlockError):
                if self._nodes.can_say(name, Watch):
                    self._nodes.post(name, watch(name))


def _too_many() -> Refused:
    message = f"{VIEWERS_MAX} viewers look at the console already; close one of them"
    headers = {"retry-after": str(RETRY_AFTER_S)}
    return Refused(ApiError(429, "console_full", message, headers=headers))
