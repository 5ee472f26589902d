"""Whether a route takes requests, by what its nodes report, and if not why.

    both nodes believed? --no--> unseen, stale, lost or incompatible: which node
        | yes
    do they speak a version in common? --no--> incompatible
        | yes
    does decode hear prefill? --no--> unlinked
        | yes
    does anything fit? --no--> nothing_fits: on which node
        | yes
    is it what the commitment was made for? --no--> commitment
        | yes
       up

Everything is judged over the nodes as of one moment: whoever looks twice may see another one. What
is known against a route beside all that is its breaker's to say (`breakers`), after the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from kvairlock.core.promise.commitment import (
    Commitment,
    RouteReports,
    RouteState,
    Silence,
    Stated,
    serves,
)
from kvairlock.core.terms import NodeName, Route
from kvairlock.gateway.reports import NodeState, NodeView
from kvairlock.wire.versions import Versions, common, in_words

Nodes = Mapping[NodeName, NodeView]
"""All nodes as of one moment."""


class ClosedBy(StrEnum):
    """Why a route takes no requests."""

    UNSEEN = "unseen"
    """A node of it has not reported in this life."""
    STALE = "stale"
    """The last report of a node is too old to be believed."""
    LOST = "lost"
    """A node is not heard."""
    INCOMPATIBLE = "incompatible"
    """A node and the gateway, or both nodes, speak no version in common."""
    UNLINKED = "unlinked"
    """The decode node does not hear the prefill node."""
    NOTHING_FITS = "nothing_fits"
    """A node holds no request, however short."""
    COMMITMENT = "commitment"
    """What the nodes report is not what the commitment was made for."""
    BREAKER = "breaker"
    """Its nodes failed, and nobody has shown yet that they do not any more."""


WAITED_FOR = frozenset({ClosedBy.UNSEEN, ClosedBy.STALE, ClosedBy.LOST, ClosedBy.UNLINKED})
"""What passes by itself while a stack comes up."""


@dataclass(frozen=True, slots=True)
class Closure:
    """Why one route takes no requests.

    Args:
        by: Why.
        node: Which of its nodes that is about, or None if it is both.
        why: More about it, without names of nodes; empty if there is no more.
    """

    by: ClosedBy
    node: NodeName | None = None
    why: str = ""

    def __str__(self) -> str:
        """Return it as people read it."""
        what = f"{self.by} ({self.node})" if self.node else self.by.value
        return f"{what}: {self.why}" if self.why else what


_SILENT = {
    NodeState.UNSEEN: ClosedBy.UNSEEN,
    NodeState.STALE: ClosedBy.STALE,
    NodeState.LOST: ClosedBy.LOST,
    NodeState.INCOMPATIBLE: ClosedBy.INCOMPATIBLE,
}
"""Why a route is closed, by the state of a node that is not believed."""


def closure(route: Route, nodes: Nodes, commitment: Commitment) -> Closure | None:
    """Return why a route takes no requests, or None if it does.

    Args:
        route: The route.
        nodes: The nodes as of one moment.
        commitment: What is promised.
    """
    for name in (route.prefill, route.decode):
        if nodes[name].state in _SILENT:
            return Closure(_SILENT[nodes[name].state], name, nodes[name].why)
    if (apart := _apart(nodes[route.prefill].speaks, nodes[route.decode].speaks)) is not None:
        return Closure(ClosedBy.INCOMPATIBLE, why=apart)
    if not _linked(route, nodes):
        return Closure(ClosedBy.UNLINKED, route.prefill)
    reports = reports_of(route, nodes)
    if reports.limit is not None and not reports.limit.tokens:
        return Closure(ClosedBy.NOTHING_FITS, reports.limit.node)
    return None if serves(commitment, reports) else Closure(ClosedBy.COMMITMENT)


def reports_of(route: Route, nodes: Nodes) -> RouteReports:
    """Return a route as what its nodes report; it is closed if nothing can be served on it.

    Args:
        route: The route.
        nodes: The nodes as of one moment.
    """
    prefill, decode = _stated(route.prefill, nodes), _stated(route.decode, nodes)
    reports = RouteReports(prefill, decode, RouteState.UP)
    if _linked(route, nodes) and reports.longest_tokens:
        return reports
    return RouteReports(prefill, decode, RouteState.CLOSED)


def _stated(name: NodeName, nodes: Nodes) -> Stated:
    view = nodes[name]
    if view.believed is not None:
        return Stated(name, view.believed.report)
    stale = view.state is NodeState.STALE
    return Stated(name, Silence.STALE if stale else Silence.UNREPORTED)


def _apart(prefill: Versions, decode: Versions) -> str | None:
    """Return in words that two nodes have no version in common, or None if they have one."""
    if common(prefill, decode) is not None:
        return None
    spoken = f"{in_words(prefill)} at prefill, {in_words(decode)} at decode"
    return f"no version in common: {spoken}"


def _linked(route: Route, nodes: Nodes) -> bool:
    """Return whether both nodes are heard, by the gateway and by each other, and understood."""
    prefill, decode = nodes[route.prefill], nodes[route.decode]
    if prefill.believed is None or decode.believed is None:
        return False
    understood = common(prefill.speaks, decode.speaks) is not None
    return understood and route.prefill in decode.believed.links
