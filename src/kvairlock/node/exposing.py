"""A node's own `/metrics`: its status as of now, on a port of its own.

The gateway shows the same by what the node reported last. Here it can be asked when no gateway is
heard, and nothing stands in between.
"""

from __future__ import annotations

import socket
from collections.abc import Callable

from kvairlock.core.errors import KvairlockError
from kvairlock.core.messages import NodeStatus
from kvairlock.core.terms import Peer
from kvairlock.metrics import nodes, serving
from kvairlock.metrics.families import Gathering
from kvairlock.runtime.metrics_settings import MetricsSettings


class MetricsPortTaken(KvairlockError):
    """Nobody can listen where a node's metrics were to be; the message says where and why."""

    code = "metrics_port_taken"


def listener_for(settings: MetricsSettings, port: int) -> socket.socket | None:
    """Bind the socket of a node's metrics; None where they are not wanted.

    Args:
        settings: Where nodes listen.
        port: The node's port; 0 takes a free one.

    Raises:
        MetricsPortTaken: The address cannot be bound.
    """
    if not settings.nodes:
        return None
    try:
        return serving.listen(settings.host, port)
    except OSError as error:
        where = f"metrics of this node at {settings.host}, port {port}"
        raise MetricsPortTaken(
            f"{where}: {error.strerror}; set its metrics_port to 0 or to a free port"
        ) from None


async def expose(listener: socket.socket, peer: Peer, status: Callable[[], NodeStatus]) -> None:
    """Show a node's figures until cancelled.

    Args:
        listener: A bound socket.
        peer: The node.
        status: Returns its figures as of now.
    """

    def figures() -> Gathering:
        into = Gathering()
        nodes.show(peer.node, peer.role, status(), into)
        return into

    await serving.serve(listener, figures)
