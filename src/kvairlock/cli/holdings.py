"""What nodes hold, read from a gateway's `/status`: as figures, as one document, as tables.

What is in the drain or lands counts as used: it is memory that nobody else can have now. Figures of
a node that is stale or lost are not shown as if they still held.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import msgspec

from kvairlock.cli.output import say, table
from kvairlock.core.promise.capacity import CapacityReport
from kvairlock.core.promise.commitment import LengthClass
from kvairlock.core.terms import Role

ON_THE_WAY = ("draining", "quarantined", "fenced", "scrubbed")
"""Stages of pages whose request has ended and that are not free yet."""

NODE_TITLES = ("node", "role", "state", "pages", "free", "used", "draining", "withdrawn", "windows")
BASIS_TITLES = ("node", "epoch", "fingerprint", "model", "dtype", "pool MiB", "build", "speaks")
SPARE = frozenset({"role", "withdrawn", "windows", "landing", "pool MiB", "build", "speaks"})

UP = "up"
"""The state of a node whose report is believed."""


class NodeStatus(msgspec.Struct, frozen=True):
    """What is needed of a node's status."""

    report: CapacityReport
    pages: dict[str, int]
    windows: int
    windows_draining: int


class Shown(msgspec.Struct, frozen=True):
    """A node, as the gateway shows it."""

    role: Role
    state: str
    status: NodeStatus | None


class Closure(msgspec.Struct, frozen=True):
    """Why a route is closed."""

    by: str
    node: str | None
    why: str


class Promised(msgspec.Struct, frozen=True):
    """What is needed of the commitment."""

    classes: tuple[LengthClass, ...]


class Stack(msgspec.Struct, frozen=True):
    """What is needed of `/status`."""

    nodes: dict[str, Shown]
    routes: dict[str, str]
    closed: dict[str, Closure]
    route_tokens: dict[str, int]
    promise_tokens: int
    commitment: Promised


@dataclass(frozen=True, slots=True)
class Held:
    """What one node reports that it holds.

    Args:
        report: Its report.
        pages: Number of pages by stage.
        windows: Windows that may still be written into.
        windows_draining: Those of them whose request has ended.
    """

    report: CapacityReport
    pages: Mapping[str, int]
    windows: int
    windows_draining: int

    @property
    def mapped(self) -> int:
        """Pages that it has mapped, whoever may have them."""
        return sum(self.pages.values())

    @property
    def free(self) -> int:
        """Pages that nobody has."""
        return self.pages.get("free", 0)

    @property
    def withdrawn(self) -> int:
        """Pages that nobody can have."""
        return self.pages.get("withdrawn", 0)

    @property
    def used(self) -> int:
        """Pages that somebody has, or that are on their way back."""
        return self.mapped - self.free - self.withdrawn

    @property
    def draining(self) -> int:
        """Those of the used pages whose request has ended."""
        return sum(self.pages.get(stage, 0) for stage in ON_THE_WAY)

    @property
    def surplus(self) -> int:
        """Used pages that are withdrawn as soon as they come back."""
        return max(0, self.mapped - self.withdrawn - self.report.pages)


def lengths_promised(stack: Stack) -> set[int]:
    """Return the lengths that a gateway promises: its context window, and that of each class."""
    classes = {each.context_tokens for each in stack.commitment.classes}
    return {tokens for tokens in (stack.promise_tokens, *classes) if tokens}


def held_by(stack: Stack, name: str) -> Held | None:
    """Return what a node holds, or None if nothing that it reported is believed."""
    shown = stack.nodes.get(name)
    if shown is None or shown.state != UP or shown.status is None:
        return None
    status = shown.status
    return Held(status.report, status.pages, status.windows, status.windows_draining)


def as_document(stack: Stack, lengths: Sequence[int]) -> dict[str, Any]:
    """Return what a gateway's nodes and routes hold, as JSON values.

    Args:
        stack: What the gateway shows.
        lengths: At which lengths to state the concurrency, in tokens.
    """
    held = _all_held(stack)
    nodes = [
        {
            "node": name,
            "role": shown.role,
            "state": shown.state,
            **({} if (holds := held[name]) is None else figures(holds, lengths)),
        }
        for name, shown in stack.nodes.items()
    ]
    routes = [
        {
            "route": route,
            "state": state,
            "closed_by": msgspec.to_builtins(stack.closed.get(route)),
            "longest_tokens": stack.route_tokens.get(route, 0),
            "concurrency": _together(route, held, lengths),
        }
        for route, state in stack.routes.items()
    ]
    return {
        "ok": not stack.closed,
        "published_tokens": stack.promise_tokens,
        "nodes": nodes,
        "routes": routes,
    }


def figures(held: Held, lengths: Sequence[int] = ()) -> dict[str, Any]:
    """Return all figures of a node, with its concurrency at some lengths."""
    report = held.report
    return {
        "pages": report.pages,
        "mapped": held.mapped,
        "free": held.free,
        "used": held.used,
        "draining": held.draining,
        "withdrawn": held.withdrawn,
        "surplus": held.surplus,
        "windows": held.windows,
        "windows_draining": held.windows_draining,
        "landing_pages": report.landing_pages,
        "longest_tokens": report.longest_tokens,
        "concurrency": {str(tokens): report.concurrency(tokens) for tokens in lengths},
        "epoch": report.epoch,
        "fingerprint": report.fingerprint,
        "basis": None if report.basis is None else asdict(report.basis),
    }


def _together(
    route: str, held: Mapping[str, Held | None], lengths: Sequence[int]
) -> dict[str, int]:
    """Return how many requests of each length both nodes of a route hold at one time."""
    both = [held.get(name) for name in route.split("/")]
    reports = [each.report for each in both if each is not None]
    if len(reports) < len(both):
        return {str(tokens): 0 for tokens in lengths}
    return {str(tokens): min(r.concurrency(tokens) for r in reports) for tokens in lengths}


def _all_held(stack: Stack) -> dict[str, Held | None]:
    return {name: held_by(stack, name) for name in stack.nodes}


def print_tables(stack: Stack, lengths: Sequence[int]) -> None:
    """Print the same as tables; see `as_document` for the arguments."""
    held, counted = _all_held(stack), tuple(f"of {tokens}" for tokens in lengths)
    titles = (*NODE_TITLES, "landing", "longest", *counted)
    nodes = stack.nodes.items()
    rows = [_row(name, shown, held[name], lengths, len(titles)) for name, shown in nodes]
    table(titles, rows, SPARE)
    say("")
    heads = ("route", "state", "longest", *counted, "closed by")
    table(heads, [_route_row(stack, route, held, lengths) for route in stack.routes])
    believed = [each for each in held.values() if each is not None]
    if believed:
        say("")
        table(BASIS_TITLES, [_basis_row(each.report) for each in believed], SPARE)
    legend = "; `of N`: requests of N tokens at one time" if lengths else ""
    say(f"\npublished: a context of {stack.promise_tokens} tokens{legend}")


def _row(
    name: str, shown: Shown, held: Held | None, lengths: Sequence[int], width: int
) -> tuple[str, ...]:
    first = (name, shown.role, shown.state)
    if held is None:
        return first + ("-",) * (width - len(first))
    report = held.report
    windows = f"{held.windows} ({held.windows_draining} draining)" if held.windows else "0"
    return (
        *first,
        f"{report.pages} of {held.mapped}",
        *map(str, (held.free, held.used, held.draining, held.withdrawn)),
        windows,
        str(report.landing_pages) if report.landing_pages else "-",
        str(report.longest_tokens),
        *(str(report.concurrency(tokens)) for tokens in lengths),
    )


def _route_row(
    stack: Stack, route: str, held: Mapping[str, Held | None], lengths: Sequence[int]
) -> tuple[str, ...]:
    together = _together(route, held, lengths)
    return (
        route,
        stack.routes[route],
        str(stack.route_tokens.get(route, 0)),
        *(str(together[str(tokens)]) for tokens in lengths),
        _why(stack.closed.get(route)),
    )


def _why(closure: Closure | None) -> str:
    """Say why a route is closed: of what, and whatever else is known."""
    if closure is None:
        return ""
    node = f" ({closure.node})" if closure.node else ""
    more = f": {closure.why}" if closure.why else ""
    return f"{closure.by}{node}{more}"


def _basis_row(report: CapacityReport) -> tuple[str, ...]:
    basis = report.basis
    first = (report.node, str(report.epoch), report.fingerprint)
    if basis is None:
        return first + ("-",) * (len(BASIS_TITLES) - len(first))
    mib = f"{basis.memory_bytes / 2**20:.1f}"
    return (*first, basis.model, basis.dtype, mib, basis.build, basis.protocols)
