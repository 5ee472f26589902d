"""How drills are shown: what moves while they run, and the table of what came out."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from kvairlock.cli.output import document, plain, say, table
from kvairlock.core.guards import Guard
from kvairlock.drills.library.drill import LEVELS, ROUNDS, Drill
from kvairlock.drills.runs.rows import Row

TITLES = ("drill", "round", "guards off", "saw", "recorded by", "result")
LISTED = ("drill", "round", "level", "guards", "also off", "what is done")
SPARE = frozenset({"round", "recorded by", "also off"})


class DrillView:
    """Shows on stderr how far drills have come: a bar on a terminal, plain lines elsewhere."""

    def __init__(self) -> None:
        self._console = Console(file=sys.stderr, soft_wrap=True, highlight=False, markup=False)
        self._bar = Progress(
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.description}", markup=False),
            console=self._console,
            disable=not self._console.is_terminal,
            transient=True,
        )
        self._task = self._bar.add_task("starting a stack", total=None)

    def __enter__(self) -> DrillView:
        """Start the bar, on a terminal."""
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Take the bar away."""
        self._bar.stop()

    def began(self, number: int, of: int, title: str) -> None:
        """Show what begins."""
        if self._console.is_terminal:
            self._bar.update(self._task, description=title, completed=number - 1, total=of)
        else:
            self.line(f"[{number}/{of}] {title}")

    def ended(self, row: Row) -> None:
        """Show what did not come out as it must, at once."""
        if not row.ok:
            self.line(f"{row.drill}: {result_of(row.held, row.failed_as_expected)}: {row.message}")

    def line(self, text: str) -> None:
        """Show a line above the bar."""
        self._console.print(plain(text.splitlines()[0] if text else ""))


def result_of(held: bool, failed_as_expected: bool | None) -> str:
    """Return what became of a row, in words; what must not be is in capitals."""
    if failed_as_expected is None:
        return "held" if held else "DID NOT HOLD"
    return "failed, as it must" if failed_as_expected else "DID NOT FAIL"


def list_drills(drills: Sequence[Drill], more: Sequence[str], json: bool) -> None:
    """Print what there is to be carried out.

    Args:
        drills: The drills.
        more: Names of what stands beside them.
        json: As one JSON document.
    """
    if json:
        document({"rows": [_listed(drill) for drill in drills], "beside": list(more)})
        return
    table(LISTED, [_line(drill) for drill in drills], SPARE)
    say("")
    for level, means in LEVELS.items():
        say(f"level {int(level)}: {means}")
    for round_, means in ROUNDS.items():
        say(f"{round_}: {means}")
    tables = Counter(name.partition(":")[0] for name in more)
    for name, count in tables.items():
        say(f"beside them: {count} rows {name}:NAME")


def _listed(drill: Drill) -> dict[str, Any]:
    return {
        "drill": drill.name,
        "round": drill.round,
        "level": int(drill.level),
        "guards": sorted(drill.about),
        "shadows": sorted(drill.shadows),
        "title": drill.title,
    }


def _line(drill: Drill) -> tuple[str, ...]:
    guards = drill.guards if isinstance(drill.guards, str) else ", ".join(drill.guards)
    shadows = ", ".join(drill.shadows)
    return drill.name, drill.round, str(int(drill.level)), guards, shadows, drill.title


def show(told: Mapping[str, Any]) -> None:
    """Print a document of drills for people."""
    if not told["rows"] and not told["skipped"]:
        say("nothing that was changed calls for a drill")
        return
    rows = told["rows"]
    if rows:
        table(TITLES, [_cells(row) for row in rows], SPARE)
    for row in rows:
        if row["message"]:
            say(f"\n{row['drill']}: expected {plain(row['expected'])}")
            say(f"  {plain(row['message'])}")
    if told["skipped"]:
        say("")
        table(("skipped", "why"), [(each["drill"], each["why"]) for each in told["skipped"]])
    _show_end(told)


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    off = row["guards_off"]
    return (
        row["drill"],
        row["round"],
        "all" if len(off) == len(Guard) else ", ".join(off),
        row["saw"],
        row["recorded_by"],
        result_of(row["held"], row["failed_as_expected"]),
    )


def _show_end(told: Mapping[str, Any]) -> None:
    cleanup = told["cleanup"]
    for place in cleanup["places"]:
        if not place["verified"]:
            say(f"\n{place['place']}: NOT clean: {plain(place['how'])}: {place['figures']}")
    clean = "verified" if cleanup["verified"] else "NOT verified"
    say(f"\ncleaned up: {clean} in {len(cleanup['places'])} places; data: {cleanup['data']}")
    say(f"{_verdict(told)}; canaries from seed {told['seed']}")
    say("\nWhat this does not prove:")
    for sentence in told["canaries_do_not_prove"]:
        say(f"- {sentence}")


def _verdict(told: Mapping[str, Any]) -> str:
    rows = told["rows"]
    if not rows:
        return "nothing was carried out"
    wrong = sum(not is_fine(row) for row in rows)
    verdict = "all as they must be" if told["ok"] else f"{wrong} NOT as they must be"
    return f"{len(rows)} runs, {verdict}"


def is_fine(row: Mapping[str, Any]) -> bool:
    """Whether a row of a document came out as it must."""
    failed = row["failed_as_expected"]
    return bool(row["held"] if failed is None else failed)
