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

ON_THE_WAY = ("draining", "quarantined", "fenced", "scrubbed")
"""Stages of pages whose request has ended and that are not free yet."""

NODE_TITLES = ("node", "role", "state", "pages", "free", "used", "draining", "withdrawn", "windows")
BASIS_TITLES = ("node", "epoch", "fingerprint", "model", "dtype", "pool MiB", "build", "speaks")


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
    def withdrawn(self) -> int:
        """Pages that nobody can have."""
        return self.pages.get("withdrawn", 0)

    @property
    def used(self) -> int:
        """Pages that somebody has, or that are on their way back."""
        return self.mapped - self.pages["free"] - self.withdrawn

    @property
    def draining(self) -> int:
        """Those of the used pages whose request has ended."""
        return sum(self.pages.get(stage, 0) for stage in ON_THE_WAY)

    @property
    def surplus(self) -> int:
        """Used pages that are withdrawn as soon as they come back."""
        return max(0, self.mapped - self.withdrawn - self.report.pages)


def lengths_promised(status: Mapping[str, Any]) -> set[int]:
    """Return the lengths that a gateway promises: its context window, and that of each class."""
    classes = {each["context_tokens"] for each in status["commitment"]["classes"]}
    return {tokens for tokens in (status["promise_tokens"], *classes) if tokens}


def held_by(shown: Mapping[str, Any] | None) -> Held | None:
    """Return what a node holds, or None if nothing that it reported is believed."""
    if shown is None or shown["state"] != "up":
        return None
    status = shown["status"]
    report = msgspec.convert(status["report"], CapacityReport)
    return Held(report, status["pages"], status["windows"], status["windows_draining"])


def as_document(status: Mapping[str, Any], lengths: Sequence[int]) -> dict[str, Any]:
    """Return what a gateway's nodes and routes hold, as JSON values.

    Args:
        status: The gateway's `/status`.
        lengths: At which lengths to state the concurrency, in tokens.
    """
    held = _all_held(status)
    nodes = [
        {
            "node": name,
            "role": shown["role"],
            "state": shown["state"],
            **({} if (holds := held[name]) is None else figures(holds, lengths)),
        }
        for name, shown in status["nodes"].items()
    ]
    routes = [
        {
            "route": route,
            "state": state,
            "closed_by": status["closed"].get(route),
            "longest_tokens": status["route_tokens"][route],
            "concurrency": _together(route, held, lengths),
        }
        for route, state in status["routes"].items()
    ]
    return {
        "ok": not status["closed"],
        "promise_tokens": status["promise_tokens"],
        "nodes": nodes,
        "routes": routes,
    }


def figures(held: Held, lengths: Sequence[int] = ()) -> dict[str, Any]:
    """Return all figures of a node, with its concurrency at some lengths."""
    report = held.report
    return {
        "pages": report.pages,
        "mapped": held.mapped,
        "free": held.pages["free"],
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
    both = [held[name] for name in route.split("/")]
    reports = [each.report for each in both if each is not None]
    if len(reports) < len(both):
        return {str(tokens): 0 for tokens in lengths}
    return {str(tokens): min(r.concurrency(tokens) for r in reports) for tokens in lengths}


def _all_held(status: Mapping[str, Any]) -> dict[str, Held | None]:
    return {name: held_by(shown) for name, shown in status["nodes"].items()}


def print_tables(status: Mapping[str, Any], lengths: Sequence[int]) -> None:
    """Print the same as tables; see `as_document` for the arguments."""
    held = _all_held(status)
    titles = (*NODE_TITLES, "landing", "longest", *(f"of {tokens}" for tokens in lengths))
    nodes = status["nodes"].items()
    table(titles, [_row(name, shown, held[name], lengths, len(titles)) for name, shown in nodes])
    say("")
    routes = status["routes"]
    heads = ("route", "state", "longest", *(f"of {tokens}" for tokens in lengths), "closed by")
    table(heads, [_route_row(status, route, held, lengths) for route in routes])
    say("")
    believed = [each for each in held.values() if each is not None]
    table(BASIS_TITLES, [_basis_row(each.report) for each in believed])
    say(f"\npromised: {status['promise_tokens']} tokens; `of N`: requests of N tokens at one time")


def _row(
    name: str, shown: Mapping[str, Any], held: Held | None, lengths: Sequence[int], width: int
) -> tuple[str, ...]:
    first = (name, shown["role"], shown["state"])
    if held is None:
        return first + ("-",) * (width - len(first))
    report = held.report
    windows = f"{held.windows} ({held.windows_draining} draining)" if held.windows else "0"
    return (
        *first,
        f"{report.pages} of {held.mapped}",
        *map(str, (held.pages["free"], held.used, held.draining, held.withdrawn)),
        windows,
        str(report.landing_pages) if report.landing_pages else "-",
        str(report.longest_tokens),
        *(str(report.concurrency(tokens)) for tokens in lengths),
    )


def _route_row(
    status: Mapping[str, Any],
    route: str,
    held: Mapping[str, Held | None],
    lengths: Sequence[int],
) -> tuple[str, ...]:
    together = _together(route, held, lengths)
    return (
        route,
        status["routes"][route],
        str(status["route_tokens"][route]),
        *(str(together[str(tokens)]) for tokens in lengths),
        _why(status["closed"].get(route)),
    )


def _why(closure: Mapping[str, Any] | None) -> str:
    """Say why a route is closed: of what, and whatever else is known."""
    if closure is None:
        return ""
    node = f" ({closure['node']})" if closure.get("node") else ""
    more = f": {closure['why']}" if closure.get("why") else ""
    return f"{closure['by']}{node}{more}"


def _basis_row(report: CapacityReport) -> tuple[str, ...]:
    basis = report.basis
    first = (report.node, str(report.epoch), report.fingerprint)
    if basis is None:
        return first + ("-",) * (len(BASIS_TITLES) - len(first))
    mib = f"{basis.memory_bytes / 2**20:.1f}"
    return (*first, basis.model, basis.dtype, mib, basis.build, basis.protocols)
