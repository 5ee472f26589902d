"""The table of a cost run for people: a column for each load, a row for each figure.

The rows of refusals and of waits are those that occurred. A figure over rounds shows as its median
and, with more than one round, the least and the most below it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from rich.console import Console
from rich.table import Table

from kvairlock.drills.soak.report import table

NOTHING = "-"
WIDTH_OF_PIPES = 160

Told = Mapping[str, Any]
Cell = Callable[[Told], str]


def show(told: Told) -> None:
    """Print a document for people.

    Args:
        told: The document, see `cost_account.document`.
    """
    width = None if sys.stdout.isatty() else WIDTH_OF_PIPES
    console = Console(width=width, highlight=False, markup=False)
    console.print(
        f"kvairlock cost: {told['requests']} requests a load and round, {told['rounds']} rounds, "
        f"{told['concurrency']} at one time, seed {told['seed']}\n"
    )
    console.print(_table(told["loads"]))
    console.print()
    for problem in told["problems"]:
        console.print(f"NOT OK: {problem}", style="bold red")
    if told["ok"]:
        console.print("no foreign canary, every page back", style="green")


def _table(loads: Sequence[Told]) -> Table:
    grid = table("figure", *(load["name"] for load in loads))
    for name, cell in _rows(loads):
        grid.add_row(name, *map(cell, loads))
    return grid


def _rows(loads: Sequence[Told]) -> Iterator[tuple[str, Cell]]:
    yield from FIRST_ROWS.items()
    for code in sorted({code for load in loads for code in load["refused"]}):
        yield f"refused: {code}", partial(_refused, code)
    yield from DRAIN_ROWS.items()
    for memory, fence in sorted(
        {(w["memory"], w["fence"]) for load in loads for w in load["waits"]}
    ):
        yield f"{memory}, {fence}: ms p50, max", partial(_wait, memory, fence)
    yield from LAST_ROWS.items()


def _count(name: str, load: Told) -> str:
    return str(load[name])


def _figure(name: str, digits: int, load: Told) -> str:
    return _spread(load[name], digits)


def _held_back(role: str, which: str, load: Told) -> str:
    return _spread(load["held_back"][role][which], 1, 100)


def _refused(code: str, load: Told) -> str:
    return str(load["refused"].get(code, 0))


def _wait(memory: str, fence: str, load: Told) -> str:
    """Median and longest wait."""
    found = [w for w in load["waits"] if (w["memory"], w["fence"]) == (memory, fence)]
    return f"{found[0]['median_ms']:g}, {found[0]['max_ms']}" if found else NOTHING


def _spread(spread: Told | None, digits: int, scale: int = 1) -> str:
    if spread is None:
        return NOTHING
    middle, least, most = (
        f"{spread[name] * scale:.{digits}f}" for name in ("median", "least", "most")
    )
    return middle if least == most else f"{middle}\n{least}-{most}"


FIRST_ROWS: Mapping[str, Cell] = {
    "requests": partial(_count, "requests"),
    "answered": partial(_count, "answered"),
    "client left": partial(_count, "left"),
    "answered share": partial(_figure, "answered_share", 2),
    "answers/s": partial(_figure, "answers_per_s", 1),
    "first token ms, p50": partial(_figure, "first_ms_p50", 0),
    "first token ms, p99": partial(_figure, "first_ms_p99", 0),
    "whole answer ms, p50": partial(_figure, "total_ms_p50", 0),
    "whole answer ms, p99": partial(_figure, "total_ms_p99", 0),
}
DRAIN_ROWS: Mapping[str, Cell] = {
    "told not to retry": partial(_count, "advised_to_stop"),
    "sent/request": partial(_figure, "sent_per_request", 2),
    "submits/request": partial(_figure, "submits_per_request", 2),
    "second attempts": partial(_count, "second_attempts"),
    "draining, page-seconds": partial(_figure, "page_s_drained", 2),
    "decode drains %, mean": partial(_held_back, "decode", "mean"),
    "decode drains %, max": partial(_held_back, "decode", "max"),
    "prefill drains %, mean": partial(_held_back, "prefill", "mean"),
    "prefill drains %, max": partial(_held_back, "prefill", "max"),
    "windows draining, max": partial(_count, "windows_draining_max"),
}
LAST_ROWS: Mapping[str, Cell] = {
    "foreign canaries": partial(_count, "foreign"),
    "left over": partial(_count, "left_over"),
}
