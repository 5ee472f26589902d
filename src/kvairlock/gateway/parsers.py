"""Bodies become requests: small ones at once, large ones in threads, one of each tenant at a time.

    small body ----------------------------------------------------> in the loop
    large body -> its tenant's line, bounded in bytes -> its turn -> one of a few threads

A megabyte of text takes a second to become tokens. Done in the loop, that would keep all others
waiting, nodes too; done in threads that any tenant may fill, other tenants' large bodies. So the
bodies of a tenant wait for each other, and tenants take turns.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import anyio
import anyio.to_thread

from kvairlock.core.errors import Reason, Refusal, Stage
from kvairlock.gateway.errors import Refused, from_refusal

INLINE_BYTES_MAX = 4 * 1024
"""What bodies up to here take is done in the loop, in a few ms; they never wait for larger ones."""

Made = TypeVar("Made")


class Aside(Protocol):
    """Does work without keeping the loop from the rest of its own."""

    async def __call__(self, work: Callable[[], Made]) -> Made:
        """Return what `work` returns; what it raises is raised here."""


@dataclass(slots=True)
class _Line:
    """The large bodies of one tenant: how many bytes they have, and whose turn it is."""

    bytes: int = 0
    turn: anyio.Lock = field(default_factory=anyio.Lock)


class Parsers:
    """The threads that large bodies are understood in.

    Args:
        threads: How many there are.
        tenant_bytes_max: What the large bodies of one tenant may have together, in bytes, those
            that wait and the one whose turn it is; at least what the largest body has.
    """

    def __init__(self, threads: int, tenant_bytes_max: int) -> None:
        self._threads = anyio.CapacityLimiter(threads)
        self._tenant_bytes_max = tenant_bytes_max
        self._lines: dict[str, _Line] = {}

    def __len__(self) -> int:
        """Return how many tenants have large bodies here."""
        return len(self._lines)

    @asynccontextmanager
    async def turn(self, tenant: str, body_bytes: int) -> AsyncIterator[Aside]:
        """Wait until it is a body's turn, which lasts as long as the context; a small one's is now.

        Args:
            tenant: Whose body it is.
            body_bytes: How large it is.

        Raises:
            Refused: 429, too much of this tenant waits already.
        """
        if body_bytes <= INLINE_BYTES_MAX:
            yield _here
            return
        line = self._enter(tenant, body_bytes)
        try:
            async with line.turn:
                yield self._in_a_thread
        finally:
            line.bytes -= body_bytes
            if not line.bytes:
                del self._lines[tenant]

    def _enter(self, tenant: str, body_bytes: int) -> _Line:
        line = self._lines.get(tenant) or _Line()
        if line.bytes + body_bytes > self._tenant_bytes_max:
            raise Refused(from_refusal(_over(line.bytes + body_bytes, self._tenant_bytes_max)))
        line.bytes += body_bytes
        self._lines[tenant] = line
        return line

    async def _in_a_thread(self, work: Callable[[], Made]) -> Made:
        return await anyio.to_thread.run_sync(work, limiter=self._threads)


async def _here(work: Callable[[], Made]) -> Made:
    return work()


def _over(asked: int, limit: int) -> Refusal:
    message = (
        f"{asked} bytes of large request bodies of this tenant would wait; it may have {limit}"
    )
    return Refusal(Reason.TENANT_SHARE, Stage.GATEWAY, message, asked, limit, "tenant_body_bytes")
