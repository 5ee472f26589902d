"""`/metrics` of a node: a small HTTP server on a port of its own, in the node's event loop.

Nothing else is served there, to nobody by name. The descriptors of the node are worth more than an
answer: a connection over the few that there may be is closed at once, and so is one that sends more
than a head has; one that says nothing is closed in time. The server ends with the node, without
waiting for anybody.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from starlette.applications import Starlette
from starlette.routing import Route

from kvairlock.metrics.exposition import Exposition
from kvairlock.metrics.families import Gathering
from kvairlock.metrics.table import PATH
from kvairlock.runtime.heads import BoundedHead
from kvairlock.runtime.http import Server, configured

CONNECTIONS_MAX = 16
HEAD_BYTES_MAX = 16 * 1024
KEEP_ALIVE_S = 90
"""Longer than the minute that Prometheus scrapes by when nobody says otherwise."""


def listen(host: str, port: int) -> socket.socket:
    """Bind the socket; port 0 takes a free one.

    Raises:
        OSError: The address cannot be bound.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family)


def url_of(listener: socket.socket) -> str:
    """Return where a bound socket is reached, with the path."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}{PATH}" if ":" in host else f"http://{host}:{port}{PATH}"


class FewHeads(BoundedHead):
    """One connection of at most `CONNECTIONS_MAX`, on which nothing but heads is sent."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Close it at once if there are too many."""
        super().connection_made(transport)
        if len(self.connections) > CONNECTIONS_MAX:
            transport.abort()

    def data_received(self, data: bytes) -> None:
        """Take bytes, unless they are more than a head has."""
        if len(data) > HEAD_BYTES_MAX:
            self.transport.abort()
        else:
            super().data_received(data)


async def serve(listener: socket.socket, figures: Callable[[], Gathering]) -> None:
    """Answer until cancelled.

    Args:
        listener: A bound socket.
        figures: Returns what is shown, as of now; called in the event loop.
    """
    config = configured(
        Starlette(routes=[Route(PATH, Exposition(figures).answer)]),
        head_bytes_max=HEAD_BYTES_MAX,
        keep_alive_s=KEEP_ALIVE_S,
        shutdown_s=0,
        connection=FewHeads,
        backlog=CONNECTIONS_MAX,
    )
    await Server(config).serve(sockets=[listener])
