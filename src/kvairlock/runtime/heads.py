"""HTTP connections that hold a descriptor for a bounded time when their client does nothing.

uvicorn ends a connection that is silent between two requests, but not one whose first request never
comes, or whose head comes byte by byte. And one that is closed while its client does not read stays
until the client has read all that was sent before.
"""

from __future__ import annotations

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_S = 30

UNREAD_S = 5.0
"""How long a closed connection waits for its client to read anything of what was sent before."""


class BoundedHead(H11Protocol):
    """One connection.

    It is closed when a head is begun, or due, and not complete in `HEAD_S`. Once it is closed, it
    is given up if its client reads nothing for `UNREAD_S`.
    """

    _deadline: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first head."""
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Take bytes; whoever sends slowly gets no more time for it."""
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no more."""
        super().connection_lost(exc)
        self._stop_waiting()
        self._is_read()

    def pause_writing(self) -> None:
        """Send no more: the client does not read."""
        super().pause_writing()
        self._look_unread()

    def resume_writing(self) -> None:
        """Send again."""
        super().resume_writing()
        self._is_read()

    def _watch(self) -> None:
        if self.conn.their_state is not h11.IDLE:
            self._stop_waiting()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(HEAD_S, self.transport.close)

    def _look_unread(self, before_bytes: int | None = None) -> None:
        closing, unread_bytes = self.transport.is_closing(), self.transport.get_write_buffer_size()
        if closing and unread_bytes == before_bytes:
            self.transport.abort()
            return
        told = unread_bytes if closing else None
        self._unread = self.loop.call_later(UNREAD_S, self._look_unread, told)

    def _is_read(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
