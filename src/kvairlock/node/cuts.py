"""What keeps a node and its peers apart while a drill has its links cut.

Links are sockets of one machine: no firewall and no network namespace comes between them. So the
node that a drill has chosen does itself what a failing network between two machines would do:

    link.held      <- kept | sent later ->     to nodes; no channel is made meanwhile
    link.broken    closed, refused             to nodes; what was under way is lost
    gateway.held   <- kept | sent later ->     to gateways; what steers the drill passes

Its peers are told nothing of it: they see silence, or a channel that breaks, as they would then.
"""

from __future__ import annotations

from kvairlock.core.messages import Drill, Message
from kvairlock.core.terms import Role
from kvairlock.runtime.failpoints import Cut, Failpoints


class Cuts:
    """Which of a node's links are cut now; none can be outside of drill mode.

    Args:
        points: What drills have armed.
    """

    def __init__(self, points: Failpoints) -> None:
        self._points = points

    def holds(self, peer: Role) -> bool:
        """Return whether nothing passes between this node and peers of a role."""
        return self._points.armed(Cut.GATEWAY_HELD if peer is Role.GATEWAY else Cut.HELD)

    def keeps(self, peer: Role, message: Message) -> bool:
        """Return whether a message that has come is as if it were still on its way."""
        return not isinstance(message, Drill) and self.holds(peer)

    def breaks(self, peer: Role) -> bool:
        """Return whether channels to peers of a role break."""
        return peer is not Role.GATEWAY and self._points.armed(Cut.BROKEN)

    def admits(self, peer: Role) -> bool:
        """Return whether a channel to a peer of a role can be made.

        A gateway's always can: by it comes what ends the cut.
        """
        return peer is Role.GATEWAY or not (self.holds(peer) or self.breaks(peer))
