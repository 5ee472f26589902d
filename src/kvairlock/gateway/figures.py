"""What the gateway shows to Prometheus: its counters, its routes, and its nodes by their reports.

Everything is read when it is asked for, in the event loop, so that the figures of one answer belong
together. What a node does not say is left out, never shown as 0, and so is everything that a node
said before it fell silent: alerts ask for what is missing.
"""

from __future__ import annotations

import time

from kvairlock import __version__
from kvairlock.core.promise.breaker import BreakerState
from kvairlock.core.promise.violations import judge
from kvairlock.core.promise.waivers import WaiverState
from kvairlock.core.terms import Role
from kvairlock.gateway.coverage import coverage, waivers
from kvairlock.gateway.parts import Parts
from kvairlock.gateway.reports import NodeState
from kvairlock.gateway.routes import Routes
from kvairlock.metrics import nodes
from kvairlock.metrics.families import Gathering
from kvairlock.runtime.guarding import Guarding
from kvairlock.runtime.settings import GATEWAY_NAME

ME = {"node": str(GATEWAY_NAME), "role": Role.GATEWAY.value}


def figures(parts: Parts) -> Gathering:
    """Return all figures of a gateway as of now."""
    into = Gathering()
    parts.meter.show(into)
    _show_itself(parts, into)
    _show_promise(parts, into)
    _show_routes(parts, into)
    show_guards(parts.routes, parts.guarding, into)
    _show_nodes(parts.routes, into)
    return into


def _show_nodes(routes: Routes, into: Gathering) -> None:
    losses = routes.losses
    for name, view in routes.nodes.items():
        node = {"node": str(name), "role": view.role.value}
        into.add("node_up", float(view.state is NodeState.UP), **node)
        into.add("node_losses", losses.get(name, 0), **node)
        if view.believed is not None:
            nodes.show(name, view.role, view.believed, into)


def _show_itself(parts: Parts, into: Gathering) -> None:
    into.add("build", 1, version=__version__, model=parts.offer.model, revision="", **ME)
    into.add("requests_in_flight", len(parts.desk))
    if parts.settings.retries.burst:
        into.add("retry_budget", parts.retries.left)
    into.add("evidence_records", parts.evidence.records, **ME)
    into.add("evidence_lost", parts.evidence.lost, **ME)
    into.add("trace_spans_dropped", parts.tracer.dropped, **ME)


def _show_promise(parts: Parts, into: Gathering) -> None:
    routes = parts.routes
    into.add("context_tokens", routes.promise())
    into.add("commitment_tokens", routes.commitment.context_tokens)
    if routes.commitment.promises:
        into.add("commitment_violations", len(judge(routes.commitment, routes.reports())))


def _show_routes(parts: Parts, into: Gathering) -> None:
    routes = parts.routes
    into.add("routes_up", len(routes.up()))
    for each in routes.reports():
        into.add("route_tokens", each.longest_tokens, route=str(each.route))
    for route, kept in parts.breakers.all.items():
        for state in BreakerState:
            into.add("breaker", float(kept.state is state), route=str(route), state=state.value)


def show_guards(routes: Routes, guarding: Guarding, into: Gathering) -> None:
    """Add what does not enforce, who does not say, and when waivers end.

    Args:
        routes: What the nodes report.
        guarding: The gateway's guards.
        into: Where it goes.
    """
    for one in coverage(routes, guarding.guards):
        into.add("guards_unstated", len(one.unstated), route=one.route)
        for stated in one.relaxed:
            into.add(
                "relaxed",
                1,
                route=one.route,
                node=str(stated.node),
                guard=stated.guard,
                mode=stated.mode,
                checks=stated.checks,
                waiver=stated.waiver,
            )
    for waiver in waivers(guarding, int(time.time())):
        if waiver.state is not WaiverState.EXPIRED:
            expiry = "waiver_expiry_timestamp_seconds"
            into.add(expiry, waiver.expires_unix_s, waiver=waiver.name)
