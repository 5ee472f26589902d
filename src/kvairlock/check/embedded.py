"""What the nodes of an embedded stack hold, by what its gateway passes on of their reports.

    /status      reports of the nodes, routes and why they are closed, drill mode, guards
    /v1/models   what the gateway publishes

The reports are the nodes' own, each about itself. What the gateway makes of them is not looked at:
the check judges for itself, and then whether the gateway publishes what it may.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated

import msgspec
from msgspec import Meta

from kvairlock.check.reading import NodeKind, Reading
from kvairlock.core.checks import CheckPolicy, Checks
from kvairlock.core.guards import GuardMode
from kvairlock.core.promise.capacity import CapacityReport
from kvairlock.core.promise.commitment import (
    Commitment,
    RouteReports,
    RouteState,
    Silence,
    published_tokens,
    serves,
)
from kvairlock.core.promise.violations import Violation, ViolationKind
from kvairlock.core.terms import NodeName, Role
from kvairlock.runtime.asking import Asker, NoAnswer

GATEWAY = NodeName("gateway")


UP = "up"
STALE = "stale"
"""States of a node and of a route; nothing is believed of one in any other."""


class DrillMode(StrEnum):
    """Whether failpoints can be armed and guards be off."""

    OFF = "off"
    ON = "on"


class RouteNames(msgspec.Struct):
    """A route, as a node names it."""

    prefill: str
    decode: str


class Relaxed(msgspec.Struct):
    """A guard that does not enforce on a route, or whose check is reduced."""

    route: RouteNames
    guard: str
    mode: GuardMode
    checks: Checks
    waiver: str


class NodeStatus(msgspec.Struct):
    """What is needed of a node's status."""

    report: CapacityReport
    relaxed: list[Relaxed] | None


class Node(msgspec.Struct):
    """A node, as the gateway has it."""

    role: Role
    state: str
    status: NodeStatus | None


class Status(msgspec.Struct):
    """What is needed of `/status`."""

    nodes: dict[str, Node]
    routes: dict[str, str]
    drill_mode: DrillMode
    guards_off: list[str]


class Card(msgspec.Struct):
    """The model."""

    id: str
    max_model_len: Annotated[int, Meta(ge=0)]
    max_output_tokens: Annotated[int, Meta(ge=0)] | None = None


class Models(msgspec.Struct):
    """`/v1/models`."""

    data: Annotated[list[Card], Meta(min_length=1, max_length=1)]


@dataclass(frozen=True, slots=True)
class Front:
    """One gateway, as it was found.

    Args:
        name: What it is called.
        readings: Its nodes.
        routes: Its routes, as their nodes report.
        published_tokens: The context window that it advertises.
        published_output_tokens: The `max_tokens` that it advertises, or None.
        violations: What was found in it alone.
        warnings: What is uncertain.
    """

    name: NodeName
    readings: tuple[Reading, ...]
    routes: tuple[RouteReports, ...]
    published_tokens: int
    published_output_tokens: int | None
    violations: tuple[Violation, ...]
    warnings: tuple[str, ...]


def read(name: str, asker: Asker) -> Front:
    """Ask a gateway what its nodes hold and what it publishes.

    Args:
        name: What the deployment calls it, or nothing; put before the names of its nodes.
        asker: A client of it, with an operator's key.

    Raises:
        NoAnswer: It does not say what is needed; the message names it.
    """
    status = asker.shaped("/status", Status)
    card = asker.shaped("/v1/models", Models).data[0]
    prefix = f"{name}:" if name else ""
    readings = {node: _reading(prefix, node, told) for node, told in status.nodes.items()}
    closed = [route for route, state in status.routes.items() if state != UP]
    known = NodeName(name) if name else GATEWAY
    return Front(
        name=known,
        readings=tuple(readings.values()),
        routes=tuple(_route(readings, *told) for told in status.routes.items()),
        published_tokens=card.max_model_len,
        published_output_tokens=card.max_output_tokens,
        violations=tuple(_not_enforcing(known, prefix, status)),
        warnings=tuple(f"{prefix}{route} is closed" for route in closed),
    )


def _reading(prefix: str, name: str, told: Node) -> Reading:
    node = NodeName(prefix + name)
    if told.state == STALE:
        return Reading(node, told.role, NodeKind.KVAIRLOCK, Silence.STALE)
    if told.state != UP or told.status is None:
        return Reading(node, told.role, NodeKind.KVAIRLOCK, Silence.UNREPORTED)
    report = told.status.report
    if (report.node, report.role) != (name, told.role):
        raise NoAnswer(f"/status: the report of {name} is about another node")
    return Reading(node, told.role, NodeKind.KVAIRLOCK, replace(report, node=node))


def _route(readings: dict[str, Reading], name: str, state: str) -> RouteReports:
    prefill, _, decode = name.partition("/")
    if prefill not in readings or decode not in readings:
        raise NoAnswer(f"/status: the route {name} has a node that is not among the nodes")
    known = RouteState.UP if state == UP else RouteState.CLOSED
    return RouteReports(readings[prefill].stated, readings[decode].stated, known)


def _not_enforcing(name: NodeName, prefix: str, status: Status) -> Iterator[Violation]:
    kind = ViolationKind.GUARD_NOT_ENFORCING
    if status.drill_mode is DrillMode.ON:
        message = f"{name} runs in drill mode: failpoints can be armed"
        yield Violation(ViolationKind.DRILL_MODE, message, node=name)
    for guard in status.guards_off:
        message = f"guard {guard} is switched off in the stack of {name}"
        yield Violation(kind, message, node=name, limit_name=guard)
    for told, shown in status.nodes.items():
        node, stated = NodeName(prefix + told), shown.status
        if stated is not None and stated.relaxed is None:
            message = f"{node} does not say which of its guards enforce"
            yield Violation(kind, message, node=node)
        for relaxed in (stated and stated.relaxed) or ():
            if relaxed.guard not in status.guards_off:  # or it was told above, of all nodes
                yield _relaxed(prefix, node, relaxed)


def _relaxed(prefix: str, node: NodeName, relaxed: Relaxed) -> Violation:
    route = f"{prefix}{relaxed.route.prefill}/{prefix}{relaxed.route.decode}"
    by = f"waiver {relaxed.waiver}" if relaxed.waiver else "a drill"
    whole = relaxed.checks.policy is CheckPolicy.FULL
    how = relaxed.mode if whole else f"{relaxed.mode}, with checks {relaxed.checks},"
    message = f"guard {relaxed.guard} is {how} on {node} for {route}, by {by}"
    kind = ViolationKind.GUARD_NOT_ENFORCING
    return Violation(kind, message, route, node, limit_name=relaxed.guard)


def publishing(front: Front, promised: Commitment) -> Iterator[Violation]:
    """Yield in which ways a gateway publishes something else than it may and should.

    One that has no route is such a way, whatever others hold: whoever comes to it is refused.

    Args:
        front: The gateway.
        promised: What the deployment promises.
    """
    unbounded = Commitment(reach=promised.reach, fingerprints=promised.fingerprints)
    held, published = published_tokens(unbounded, front.routes), front.published_tokens
    if published > held:
        message = (
            f"{front.name} advertises {published} tokens; by this commitment its routes hold {held}"
        )
        kind, said = ViolationKind.ADVERTISED_OVER_HELD, (published, held)
        yield Violation(kind, message, None, front.name, None, *said, "context_window")
    if not any(serves(promised, route) for route in front.routes):
        message = f"none of the {len(front.routes)} routes of {front.name} serves"
        kind, figures = ViolationKind.NO_ROUTE, (promised.context_tokens, 0)
        yield Violation(kind, message, None, front.name, None, *figures)
    wanted = min(promised.context_tokens, held)
    if published < wanted:
        yield _under(front.name, "context_window", promised.context_tokens, published)
    output = front.published_output_tokens
    if output is not None and output < promised.output_tokens:
        yield _under(front.name, "output_tokens", promised.output_tokens, output)


def _under(name: NodeName, limit_name: str, promised: int, published: int) -> Violation:
    message = f"{name} publishes {published} as {limit_name}, {promised} are promised"
    kind = ViolationKind.PUBLISHED_UNDER_PROMISED
    return Violation(kind, message, None, name, None, promised, published, limit_name)
