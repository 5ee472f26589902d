"""Which share of page reads was covered by which check, and what does not enforce, route by route.

Decode nodes count their reads, all nodes and the gateway state how their guards are set. What a
node does not state, because it is not heard or speaks version 1, is unknown, and never counts as
covered.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kvairlock.core.checks import Cover, Coverage
from kvairlock.core.guards import GUARDS, GuardSet, Relaxed
from kvairlock.core.promise.waivers import Waiver, WaiverState
from kvairlock.core.terms import NodeName, Role, Route
from kvairlock.gateway.reports import NodeView
from kvairlock.gateway.routes import Routes
from kvairlock.runtime.guarding import Guarding
from kvairlock.runtime.settings import GATEWAY_NAME

Views = Mapping[NodeName, NodeView]


@dataclass(frozen=True, slots=True)
class StatedRelaxed:
    """Something that does not enforce or is checked in part, and who says so.

    Args:
        node: Who states it.
        guard: Which guard.
        mode: How it is set there.
        checks: Which landed pages it digests, where that is `integrity`.
        waiver: The waiver that allows it; empty in drills.
    """

    node: NodeName
    guard: str
    mode: str
    checks: str
    waiver: str


@dataclass(frozen=True, slots=True)
class RouteCoverage:
    """What covers one route.

    Args:
        route: The route.
        pages_read: Page reads since the decode node started; None if it does not state them.
        reads: The same by what vouched for the pages.
        relaxed: What does not enforce, by each process that states it.
        unstated: Nodes that do not state how their guards are set.
    """

    route: str
    pages_read: int | None
    reads: Mapping[Cover, int]
    relaxed: tuple[StatedRelaxed, ...]
    unstated: tuple[NodeName, ...]


@dataclass(frozen=True, slots=True)
class ShownWaiver:
    """A waiver as operators see it; `seconds_left` is 0 once it has expired."""

    name: str
    state: WaiverState
    relaxes: tuple[str, ...]
    conditions: str
    owner: str
    expires_unix_s: int
    seconds_left: int
    evidence: str


def coverage(routes: Routes, guards: GuardSet) -> tuple[RouteCoverage, ...]:
    """Return what covers each route now.

    Args:
        routes: What the nodes report.
        guards: How the gateway's own are set.
    """
    views = routes.nodes
    return tuple(_route(route, views, guards) for route in routes.all)


def waivers(guarding: Guarding, now_unix_s: int) -> tuple[ShownWaiver, ...]:
    """Return all waivers of the settings, with the time that is left of each.

    Args:
        guarding: The gateway's guards.
        now_unix_s: The wall clock.
    """
    states = guarding.waivers.states.items()
    return tuple(_waiver(waiver, state, now_unix_s) for waiver, state in states)


def _route(route: Route, views: Views, guards: GuardSet) -> RouteCoverage:
    counted = _counted(route, views[route.decode])
    stated = {GATEWAY_NAME: _acting(guards.not_enforcing((route,)), route, Role.GATEWAY)}
    for name in (route.prefill, route.decode):
        status = views[name].believed
        if status is not None and status.relaxed is not None:
            stated[name] = _acting(status.relaxed, route, views[name].role)
    return RouteCoverage(
        route=str(route),
        pages_read=counted.pages_read if counted else None,
        reads=counted.by_cover if counted else {},
        relaxed=tuple(_stated(name, one) for name, every in stated.items() for one in every),
        unstated=tuple(name for name in (route.prefill, route.decode) if name not in stated),
    )


def _counted(route: Route, view: NodeView) -> Coverage | None:
    status = view.believed
    if status is None or status.coverage is None:
        return None
    return next((one for one in status.coverage if one.route == route), None)


def _acting(relaxed: Iterable[Relaxed], route: Route, role: Role) -> tuple[Relaxed, ...]:
    """Return what is relaxed on a route of the guards that a process of this role has."""
    return tuple(r for r in relaxed if r.route == route and role in GUARDS[r.guard].roles)


def _stated(node: NodeName, one: Relaxed) -> StatedRelaxed:
    return StatedRelaxed(node, one.guard, one.mode, str(one.checks), one.waiver)


def _waiver(waiver: Waiver, state: WaiverState, now_unix_s: int) -> ShownWaiver:
    expired = state is WaiverState.EXPIRED
    return ShownWaiver(
        name=waiver.name,
        state=state,
        relaxes=tuple(map(str, waiver.relaxes)),
        conditions=waiver.conditions,
        owner=waiver.owner,
        expires_unix_s=waiver.expires_unix_s,
        seconds_left=0 if expired else waiver.expires_unix_s - now_unix_s,
        evidence=waiver.evidence,
    )
