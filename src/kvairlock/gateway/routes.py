"""Which routes there are now, what they promise together, and which one takes a request.

    status reports of nodes ---> routes that are up ---> promise: the largest context window that
                                        |                one of them holds whole
                                        +--> choose: those that can hold this request by their own
                                             measured figures, the least loaded first

A route is up while both of its nodes are heard and the decode node hears the prefill node. Requests
are routed by length, so the promise is what the largest route holds. What is configured can lower
it, never raise it, unless a drill has switched the contract off.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial

from kvairlock.core.errors import Reason, Refusal, Stage
from kvairlock.core.guards import Guard, GuardSet
from kvairlock.core.messages import NodeStatus
from kvairlock.core.promise.admission import judge
from kvairlock.core.promise.capacity import CapacityReport, Demand
from kvairlock.core.terms import Instant, NodeName, Role

LIMIT_NAMES = {
    "prefill_pool_tokens": "route_prefill_tokens",
    "decode_pool_tokens": "route_decode_tokens",
    "landing_tokens": "route_landing_tokens",
}
"""A limit of one node, and what it is called when it is the largest of all routes."""


class NodeState(StrEnum):
    """What the gateway knows of a node."""

    UNSEEN = "unseen"
    UP = "up"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Route:
    """A prefill node and a decode node that may serve one request together."""

    prefill: NodeName
    decode: NodeName

    def __str__(self) -> str:
        """Return it as drills write it."""
        return f"{self.prefill}/{self.decode}"


@dataclass(frozen=True, slots=True)
class NodeView:
    """One node as last heard.

    Args:
        role: Prefill or decode.
        state: Whether it is heard.
        status: Its last report, kept after it was lost, or None.
        heard_at: When that came, or None.
    """

    role: Role
    state: NodeState = NodeState.UNSEEN
    status: NodeStatus | None = None
    heard_at: Instant | None = None


class Routes:
    """The live table of nodes and the routes between them.

    Args:
        nodes: All nodes of the stack, by name.
        guards: Which guards enforce.
        configured_tokens: The context window to advertise, or 0 to take what was measured.
    """

    def __init__(
        self, nodes: Mapping[NodeName, Role], guards: GuardSet, configured_tokens: int
    ) -> None:
        self._nodes = {name: NodeView(role) for name, role in nodes.items()}
        self._guards = guards
        self._configured_tokens = configured_tokens
        self.all = tuple(
            Route(prefill, decode)
            for prefill in self._named(Role.PREFILL)
            for decode in self._named(Role.DECODE)
        )

    @property
    def nodes(self) -> Mapping[NodeName, NodeView]:
        """All nodes, by name."""
        return self._nodes

    def heard(self, name: NodeName, status: NodeStatus, at: Instant) -> None:
        """Take a node's report: it is up."""
        self._nodes[name] = NodeView(self._nodes[name].role, NodeState.UP, status, at)

    def lost(self, name: NodeName) -> None:
        """Take note that a node is no longer heard."""
        seen = self._nodes[name]
        self._nodes[name] = NodeView(seen.role, NodeState.LOST, seen.status, seen.heard_at)

    def up(self) -> tuple[Route, ...]:
        """Return the routes that can take requests now."""
        return tuple(route for route in self.all if self.is_up(route))

    def is_up(self, route: Route) -> bool:
        """Return whether both nodes are heard, by the gateway and by each other."""
        decode = self._nodes[route.decode]
        if decode.state is not NodeState.UP or decode.status is None:
            return False
        linked = route.prefill in decode.status.links
        return linked and self._nodes[route.prefill].state is NodeState.UP

    def promise(self) -> int:
        """Return the context window to advertise, in tokens; 0 while no route is up."""
        measured = max((self._holds(route) for route in self.up()), default=0)
        if not self._configured_tokens:
            return measured
        if not self._guards.on(Guard.CONTRACT):
            return self._configured_tokens
        return min(self._configured_tokens, measured)

    def room_tokens(self, demand: Demand) -> int:
        """Return how long an answer there is room for, in tokens per choice; 0 if there is none.

        Args:
            demand: What the request needs; its own length does not count.
        """
        most = self.promise() - demand.prompt_tokens
        # From the first length on that no route holds, none holds a longer one.
        return bisect(range(1, most + 1), False, key=partial(self._none_holds, demand))

    def choose(
        self,
        demand: Demand,
        load: Mapping[NodeName, int],
        forced: Route | None = None,
        without: Collection[Route] = (),
    ) -> Route | Refusal:
        """Return the route for a request, or why there is none.

        Args:
            demand: What the request needs.
            load: Outstanding requests by node.
            forced: The only route that may be taken (drills), or None.
            without: Routes that may not be taken: they were tried.
        """
        allowed = [route for route in self.up() if route not in without]
        up = [route for route in allowed if forced in (None, route)]
        if not up:
            message = "no route is up" if forced is None else f"the route {forced} is not up"
            return Refusal(Reason.ROUTE_CLOSED, Stage.GATEWAY, message)
        if not self._guards.on(Guard.CONTRACT):
            return _least_loaded(up, load)
        over = self._over_window(demand)
        refusals = {route: self._judge(route, demand) for route in up}
        fitting = [route for route, refusal in refusals.items() if refusal is None]
        if not fitting:
            largest = _largest(refusal for refusal in refusals.values() if refusal is not None)
            # Whoever keeps to the limit that is named is not refused for another one next.
            return largest if over is None else min(largest, over, key=_limit)
        return over or _least_loaded(fitting, load)

    def _named(self, role: Role) -> list[NodeName]:
        return sorted(name for name, view in self._nodes.items() if view.role is role)

    def _report(self, name: NodeName) -> CapacityReport:
        status = self._nodes[name].status
        if status is None:
            raise LookupError(f"{name} has not reported")
        return status.report

    def _holds(self, route: Route) -> int:
        prefill, decode = self._report(route.prefill), self._report(route.decode)
        return min(
            prefill.tokens,
            decode.tokens,
            decode.landing_pages * decode.page_tokens,
            prefill.context_tokens,
            decode.context_tokens,
        )

    def _none_holds(self, demand: Demand, max_tokens: int) -> bool:
        longer = replace(demand, max_tokens=max_tokens)
        return all(self._judge(route, longer) is not None for route in self.up())

    def _judge(self, route: Route, demand: Demand) -> Refusal | None:
        """Return the tightest refusal of the route's nodes: below its limit the route holds."""
        both = [judge(self._report(name), demand) for name in (route.prefill, route.decode)]
        refusals = [refusal for refusal in both if refusal is not None]
        return min(refusals, key=_limit, default=None)

    def _over_window(self, demand: Demand) -> Refusal | None:
        limit = self.promise()
        if demand.context_tokens <= limit:
            return None
        return _too_long(
            demand.context_tokens, limit, "context_window", "prompt plus max_tokens need"
        )


def _least_loaded(routes: Iterable[Route], load: Mapping[NodeName, int]) -> Route:
    def key(route: Route) -> tuple[int, str]:
        return load.get(route.prefill, 0) + load.get(route.decode, 0), str(route)

    return min(routes, key=key)


def _limit(refusal: Refusal) -> int:
    return refusal.limit or 0


def _largest(refusals: Iterable[Refusal]) -> Refusal:
    """Say for all routes what the one that comes closest said."""
    closest = max(refusals, key=_limit)
    if closest.asked is None or closest.limit is None or closest.limit_name is None:
        return closest
    name = LIMIT_NAMES.get(closest.limit_name, closest.limit_name)
    return _too_long(closest.asked, closest.limit, name, "the request needs")


def _too_long(asked: int, limit: int, limit_name: str, what: str) -> Refusal:
    message = f"{what} {asked} tokens; the limit is {limit} ({limit_name})"
    return Refusal(Reason.CONTEXT_LENGTH, Stage.GATEWAY, message, asked, limit, limit_name)
