"""Which routes there are now, what they promise together, and which one takes a request.

    status reports of nodes ---> routes that are up ---> promise: the largest context window that
                                        |                one of them holds whole
                                        +--> choose: those that can hold this request by their own
                                             measured figures, the least loaded first

A route is up while what both of its nodes report is believed, and is what the commitment was made
for, the decode node hears the prefill node (`closures`), and its breaker is closed. Requests are
routed by length, so the promise is what the largest route holds, or the smallest if the commitment
says `every`. What is configured can lower it, never raise it, unless a drill has switched the
contract off.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Protocol

from kvairlock.core.errors import Reason, Refusal, Stage
from kvairlock.core.guards import Guard, GuardMode, GuardSet
from kvairlock.core.messages import NodeStatus
from kvairlock.core.promise.admission import judge
from kvairlock.core.promise.breaker import Traffic
from kvairlock.core.promise.capacity import Demand
from kvairlock.core.promise.commitment import (
    Commitment,
    RouteReports,
    RouteState,
    published_output_tokens,
    published_tokens,
    serves,
)
from kvairlock.core.promise.trial import NodeMoment, RouteMoment
from kvairlock.core.terms import Incarnation, Instant, NodeName, Role, Route
from kvairlock.gateway.closures import ClosedBy, Closure, Nodes, closure, reports_of
from kvairlock.gateway.reports import LOST_MS, Belief, NodeView, Reports
from kvairlock.runtime import clock
from kvairlock.wire.versions import Versions

LIMIT_NAMES = {
    "prefill_pool_tokens": "route_prefill_tokens",
    "decode_pool_tokens": "route_decode_tokens",
    "landing_tokens": "route_landing_tokens",
}
"""A limit of one node, and what it is called when it is the largest of all routes."""


class Trust(Protocol):
    """What is known against routes, whatever their nodes report."""

    def refuses(self, route: Route, traffic: Traffic) -> Refusal | None:
        """Return why a route takes no request of a kind, or None."""

    def seen(self, route: Route, moment: RouteMoment) -> None:
        """Take note of the moment that a route is in."""


def all_routes(nodes: Mapping[NodeName, Role]) -> tuple[Route, ...]:
    """Return every prefill node with every decode node."""
    prefills, decodes = (
        sorted(name for name, role in nodes.items() if role is wanted)
        for wanted in (Role.PREFILL, Role.DECODE)
    )
    return tuple(Route(prefill, decode) for prefill in prefills for decode in decodes)


class Routes:
    """The live table of nodes and the routes between them.

    Args:
        nodes: All nodes of the stack, by name.
        guards: How guards are set at first.
        commitment: What is promised.
        trust: The breakers of the routes, or None where there are none.
        lost_ms: Age at which a node's report is no longer believed.
        now: Tells the time.
    """

    def __init__(
        self,
        nodes: Mapping[NodeName, Role],
        guards: GuardSet,
        commitment: Commitment,
        trust: Trust | None = None,
        *,
        lost_ms: int = LOST_MS,
        now: Callable[[], Instant] = clock.now,
    ) -> None:
        self._nodes = Reports(nodes, lost_ms, now)
        self.guards = guards
        self.commitment = commitment
        self._trust = trust
        self.all = all_routes(nodes)

    @property
    def nodes(self) -> Mapping[NodeName, NodeView]:
        """All nodes by name, as of now."""
        return self._nodes.views

    @property
    def losses(self) -> Mapping[NodeName, int]:
        """How often each node was lost since the gateway started; who never was is left out."""
        return self._nodes.losses

    def connected(self, name: NodeName, incarnation: Incarnation, speaks: Versions) -> None:
        """A channel leads to this life of a node: figures of another one are void."""
        self._nodes.connected(name, incarnation, speaks)

    def incompatible(self, name: NodeName, why: str) -> None:
        """Take note that the gateway and a node have no version in common."""
        self._nodes.incompatible(name, why)

    def heard(self, name: NodeName, status: NodeStatus, at: Instant) -> Belief:
        """Take a node's report: if it is believed, the node is up.

        Raises:
            PeerMisbehaved: It contradicts the report before.
        """
        belief = self._nodes.heard(name, status, at)
        self._tell_moments(name)
        return belief

    def lost(self, name: NodeName) -> None:
        """Take note that a node is no longer heard."""
        self._nodes.lost(name)

    def up(self) -> tuple[Route, ...]:
        """Return the routes that can take requests now."""
        return tuple(route for route in self.all if self.is_up(route))

    def is_up(self, route: Route) -> bool:
        """Return whether it takes requests: linked, trusted, and as the commitment has it."""
        return self.closure(route) is None

    def closure(self, route: Route) -> Closure | None:
        """Return why a route takes no requests, or None if it does."""
        by_reports = closure(route, self.nodes, self.commitment)
        if by_reports is not None or self._distrust(route, Traffic.SERVICE) is None:
            return by_reports
        return Closure(ClosedBy.BREAKER)

    def moment(self, route: Route) -> RouteMoment | None:
        """Return on which lives and reports of its nodes a route stands; None if one is silent."""
        reports = reports_of(route, self.nodes)
        if not reports.whole:
            return None
        prefill, decode = map(NodeMoment.of, reports.reports)
        return RouteMoment(prefill, decode)

    def reports(self, trusted: Route | None = None) -> tuple[RouteReports, ...]:
        """Return all routes as what their nodes report now.

        Args:
            trusted: A route to see as if nothing was known against it, or None.
        """
        nodes = self.nodes
        return tuple(self._reports(route, nodes, trusted) for route in self.all)

    def exceeds(self, route: Route, demand: Demand) -> Refusal | None:
        """Return why a route's nodes cannot hold a request, by what they report now, or None."""
        return _judge(reports_of(route, self.nodes), demand)

    def promise(self) -> int:
        """Return the context window to advertise, in tokens; 0 while no route is up."""
        return self._promise(self.reports())

    def promised_output(self) -> int:
        """Return the largest `max_tokens` to advertise; 0 if only the context limits it."""
        return published_output_tokens(self.commitment, self.promise())

    def room_tokens(self, demand: Demand) -> int:
        """Return how long an answer there is room for, in tokens per choice; 0 if there is none.

        Args:
            demand: What the request needs; its own length does not count.
        """
        most = self.promise() - demand.prompt_tokens
        if self.commitment.output_tokens:
            most = min(most, self.commitment.output_tokens)
        # From the first length on that no route holds, none holds a longer one.
        routes = self._serving()
        return bisect(range(1, most + 1), False, key=partial(_none_holds, routes, demand))

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
        serving = self._serving(self._drilled(forced))
        allowed = [reports for reports in serving if reports.route not in without]
        up = [reports for reports in allowed if forced in (None, reports.route)]
        if not up:
            return self._none_up(forced)
        if not self.guards.on(Guard.CONTRACT):
            return _least_loaded((reports.route for reports in up), load)
        promise = self._promise(serving)
        if (lengthy := self._over_output(demand, promise)) is not None:
            return lengthy
        over = _over_window(demand, promise)
        refusals = {reports.route: _judge(reports, demand) for reports in up}
        fitting = [route for route, refusal in refusals.items() if refusal is None]
        if not fitting:
            largest = _largest(refusal for refusal in refusals.values() if refusal is not None)
            # Whoever keeps to the limit that is named is not refused for another one next.
            return largest if over is None else min(largest, over, key=_limit)
        return over or _least_loaded(fitting, load)

    def choose_observing(
        self,
        load: Mapping[NodeName, int],
        forced: Route | None = None,
        without: Collection[Route] = (),
    ) -> Route | None:
        """Return a route whose contract only observes, for a request that the contract refuses.

        Args:
            load: Outstanding requests by node.
            forced: The only route that may be taken (drills), or None.
            without: Routes that may not be taken: they were tried.
        """
        serving = (reports.route for reports in self._serving(self._drilled(forced)))
        allowed = (r for r in serving if r not in without and forced in (None, r))
        modes = {route: self.guards.mode(Guard.CONTRACT, route) for route in allowed}
        observing = [route for route, mode in modes.items() if mode is GuardMode.OBSERVING]
        return _least_loaded(observing, load) if observing else None

    def _none_up(self, forced: Route | None) -> Refusal:
        """Say why no route can be chosen; breakers first, since they do not close by themselves."""
        traffic = Traffic.SERVICE if forced is None else Traffic.DRILL
        asked = self.all if forced is None else (forced,)
        distrusts = [d for route in asked if (d := self._distrust(route, traffic)) is not None]
        if len(distrusts) == 1:
            return distrusts[0]
        if distrusts:
            message = f"no route is up: {distrusts[0].message}; and {len(distrusts) - 1} more"
        else:
            message = self._none_is_up() if forced is None else self._not_up(forced)
        return Refusal(Reason.ROUTE_CLOSED, Stage.GATEWAY, message)

    def _none_is_up(self) -> str:
        """Say it to clients, to whom nodes have no names, with why if it is the same for all."""
        nodes = self.nodes
        closures = [closure(route, nodes, self.commitment) for route in self.all]
        whys = {closed.why for closed in closures if closed is not None}
        return "no route is up" + (f": {why}" if len(whys) == 1 and (why := whys.pop()) else "")

    def _not_up(self, route: Route) -> str:
        why = closure(route, self.nodes, self.commitment)
        return f"the route {route} is not up" + (f": {why}" if why else "")

    def _distrust(self, route: Route, traffic: Traffic) -> Refusal | None:
        """Return what is known against a route, if that matters to these requests."""
        return None if self._trust is None else self._trust.refuses(route, traffic)

    def _drilled(self, forced: Route | None) -> Route | None:
        """Return the route that a drill names, if its breaker lets a drill through."""
        if forced is None or self._distrust(forced, Traffic.DRILL) is not None:
            return None
        return forced

    def _tell_moments(self, name: NodeName) -> None:
        """Tell the breakers in which moment the routes of a node are now."""
        for route in self.all:
            if self._trust is None or name not in (route.prefill, route.decode):
                continue
            if (moment := self.moment(route)) is not None:
                self._trust.seen(route, moment)

    def _reports(self, route: Route, nodes: Nodes, trusted: Route | None) -> RouteReports:
        reports = reports_of(route, nodes)
        if route == trusted or self._distrust(route, Traffic.SERVICE) is None:
            return reports
        return replace(reports, state=RouteState.CLOSED)

    def _serving(self, trusted: Route | None = None) -> list[RouteReports]:
        """Return the routes that can take requests, as of one moment."""
        reports = self.reports(trusted)
        return [each for each in reports if serves(self.commitment, each)]

    def _promise(self, reports: Iterable[RouteReports]) -> int:
        if self.commitment.context_tokens and not self.guards.on(Guard.CONTRACT):
            return self.commitment.context_tokens
        return published_tokens(self.commitment, reports)

    def _over_output(self, demand: Demand, promise: int) -> Refusal | None:
        limit = published_output_tokens(self.commitment, promise)
        if not self.commitment.output_tokens or demand.max_tokens <= limit:
            return None
        return _too_long(demand.max_tokens, limit, "output_tokens", "max_tokens are")


def _none_holds(routes: Iterable[RouteReports], demand: Demand, max_tokens: int) -> bool:
    longer = replace(demand, max_tokens=max_tokens)
    return all(_judge(reports, longer) is not None for reports in routes)


def _judge(route: RouteReports, demand: Demand) -> Refusal | None:
    """Return the tightest refusal of the route's nodes: below its limit the route holds."""
    refusals = [judge(report, demand) for report in route.reports]
    return min((r for r in refusals if r is not None), key=_limit, default=None)


def _over_window(demand: Demand, limit: int) -> Refusal | None:
    if demand.context_tokens <= limit:
        return None
    return _too_long(demand.context_tokens, limit, "context_window", "prompt plus max_tokens need")


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
