"""What the console shows beside the page maps: figures of the whole stack, as of one moment.

Everything comes from what the gateway knows anyway: the reports of the nodes, the gate, the
breakers, the guards, the counters. Nothing of it names a tenant or a request. What a node does not
state is None, and shown as unknown: it is never shown as nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

from kvairlock.core.errors import REASONS, Reason
from kvairlock.core.messages import PageMap
from kvairlock.core.promise.commitment import RouteReports
from kvairlock.core.promise.violations import Violation
from kvairlock.core.terms import NodeName
from kvairlock.core.waits import BOUNDS_MS, Wait, Waited
from kvairlock.gateway.breakers import outlined
from kvairlock.gateway.coverage import ShownWaiver, coverage, waivers
from kvairlock.gateway.nodes import NodeDown
from kvairlock.gateway.parts import Parts
from kvairlock.gateway.reports import NodeView
from kvairlock.gateway.route_views import missing

Json = dict[str, Any]
NOT_TOLD = "it speaks a version of the messages that tells nothing of pages"


def figures(parts: Parts) -> Json:
    """Return all figures as of now."""
    return {
        "stack": _stack(parts),
        "nodes": [_node(parts, name, view) for name, view in parts.routes.nodes.items()],
        **_counts(parts),
        "routes": _routes(parts),
        "violations": [_violation(each) for each in parts.gate.look().violations],
        "coverage": coverage(parts.routes, parts.guarding.guards),
        "waivers": [_waiver(each) for each in waivers(parts.guarding, int(time.time()))],
        "drills": parts.console.drills.shown(),
    }


def _stack(parts: Parts) -> Json:
    judged, drill = parts.gate.look(), parts.settings.drill
    return {
        "model": parts.offer.model,
        "routes": len(parts.routes.all),
        "routes_up": len(parts.routes.up()),
        "in_flight": len(parts.desk),
        "commitment": judged.outcome,
        "promised_tokens": parts.routes.commitment.context_tokens,
        "published_tokens": judged.published_tokens,
        "drill_mode": "on" if drill.enabled else "off",
        "guards_off": sorted(drill.guards_off),
    }


def _node(parts: Parts, name: NodeName, view: NodeView) -> Json:
    told: Json = {
        "node": name,
        "role": view.role,
        "state": view.state,
        "map": _map(parts, name),
    }
    status = view.status
    if status is None:
        return told
    return told | {
        "pages": status.pages,
        "requests": status.requests,
        "windows_draining": status.windows_draining,
        "drains": _drains(status.waits),
    }


def _map(parts: Parts, name: NodeName) -> str:
    """Say why there is no map of a node's pages; empty if there is one, or one is coming."""
    try:
        said = parts.nodes.can_say(name, PageMap)
    except NodeDown:
        return "the gateway has no channel to it"
    return parts.console.maps.why_none(name) if said else NOT_TOLD


def _drains(waits: Iterable[Waited] | None) -> list[Json] | None:
    """Return the drains that ended, by cause and evidence; None if the node does not state them."""
    if waits is None:
        return None
    sums: dict[tuple[str, str], Json] = {}
    for one in waits:
        if one.wait is not Wait.DRAIN:
            continue
        key = one.cause, str(one.fence or "")
        kept = sums.setdefault(
            key, {"count": 0, "sum_ms": 0, "within_ms": dict.fromkeys(BOUNDS_MS, 0)}
        )
        kept["count"] += one.count
        kept["sum_ms"] += one.sum_ms
        for bound, count in one.within_ms.items():
            kept["within_ms"][bound] += count
    return [{"cause": c, "fence": f, **_waited(kept)} for (c, f), kept in sorted(sums.items())]


def _waited(kept: Mapping[str, Any]) -> Json:
    return {
        "count": kept["count"],
        "mean_ms": kept["sum_ms"] / kept["count"] if kept["count"] else None,
        "p95_ms": _bound(kept["within_ms"], 0.95 * kept["count"]),
    }


def _bound(within_ms: Mapping[int, int], rank: float) -> int | None:
    """Return the bucket up to which so many waits were; None if they were longer than any."""
    total = 0
    for bound, count in within_ms.items():
        total += count
        if total >= rank:
            return bound
    return None


def _counts(parts: Parts) -> Json:
    refused = parts.meter.totals("refusals", "reason", "stage")
    outcomes = parts.meter.totals("requests", "outcome")
    return {
        "outcomes": {name: n for (name,), n in sorted(outcomes.items())},
        "retries": sum(parts.meter.totals("retries").values()),
        "refusals": [
            {"reason": reason, "stage": stage, "fault": REASONS[Reason(reason)].fault, "count": n}
            for (reason, stage), n in sorted(refused.items(), key=lambda item: -item[1])
        ],
    }


def _routes(parts: Parts) -> list[Json]:
    return [_route(parts, reports) for reports in parts.routes.reports()]


def _route(parts: Parts, reports: RouteReports) -> Json:
    route, limit = reports.route, reports.limit
    kept, closure = parts.breakers[route], parts.routes.closure(route)
    return {
        "route": str(route),
        "closed": None if closure is None else str(closure),
        "longest_tokens": reports.longest_tokens,
        "limit": None if limit is None else f"{limit.name} of {limit.node}",
        "breaker": kept.state,
        "outlined": outlined(kept),
        "missing": missing(kept),
        "unkept": parts.breakers.unkept,
    }


def _violation(violation: Violation) -> Json:
    return {
        "kind": violation.kind,
        "message": violation.message,
        "route": None if violation.route is None else str(violation.route),
        "node": violation.node,
    }


def _waiver(waiver: ShownWaiver) -> Json:
    """Return a waiver without the time that is left: that would be new with every look."""
    return {
        "name": waiver.name,
        "state": waiver.state,
        "relaxes": waiver.relaxes,
        "conditions": waiver.conditions,
        "owner": waiver.owner,
        "expires_unix_s": waiver.expires_unix_s,
    }
