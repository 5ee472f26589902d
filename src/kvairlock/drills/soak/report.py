"""What a soak shows: how it goes while it runs, then one table or one JSON document."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from kvairlock.drills.soak.judge import Answers, Soaked

PLAIN_LINES = 10
"""How often a log, which is no terminal, is told how far it is."""


class View:
    """Shows on stderr how a soak goes: a bar on a terminal, some lines elsewhere.

    Args:
        total: Requests to come.
    """

    def __init__(self, total: int) -> None:
        self._total, self._every = total, max(1, total // PLAIN_LINES)
        self._console = Console(file=sys.stderr, highlight=False)
        self._bar = Progress(
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.description}"),
            TimeElapsedColumn(),
            console=self._console,
            disable=not self._console.is_terminal,
        )
        self._task = self._bar.add_task("", total=total)

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Show the bar while this is open."""
        with self._bar:
            yield

    def say(self, words: str) -> None:
        """Show a line."""
        self._console.print(words, markup=False, soft_wrap=True)

    def moved(self, done: int, words: str) -> None:
        """Show how many requests have ended, and what has come so far."""
        self._bar.update(self._task, completed=done, description=words)
        if not self._console.is_terminal and done % self._every == 0:
            self.say(f"{done}/{self._total} {words}")


def so_far(answers: Answers) -> str:
    """Return in one line what has come to clients."""
    refused = answers.too_long + answers.refused.total()
    return (
        f"{answers.completed} completed, {answers.cancelled} cancelled, {refused} refused, "
        f"{answers.foreign} foreign"
    )


def document(soaked: Soaked, setting: Mapping[str, Any]) -> dict[str, Any]:
    """Return all figures as one flat document.

    Args:
        soaked: What was shown.
        setting: What it was asked for with: model, seed and the like.
    """
    answers, told, problems = soaked.answers, soaked.witness, soaked.problems()
    return {
        "ok": not problems,
        "problems": list(problems),
        **setting,
        **asdict(answers),
        "refused": dict(answers.refused),
        "broken": dict(answers.broken),
        **asdict(soaked.leftovers),
        "descriptors": {name: asdict(files) for name, files in soaked.descriptors.items()},
        "rss_mib": {
            name: {"samples": memory.mib, "growth": round(memory.growth_mib, 1)}
            for name, memory in soaked.memory.items()
        },
        "evidence": asdict(told),
        "seconds": round(soaked.seconds, 1),
        "requests_per_s": round(answers.requests / soaked.seconds, 1),
    }


def show(told: Mapping[str, Any]) -> None:
    """Print a document for people."""
    console = Console(highlight=False, markup=False)
    setting = f"{told['model']}, landing {told['landing']}, seed {told['seed']}"
    off = ", ".join(told["guards_off"]) or "none"
    console.print(f"kvairlock soak: {setting}; guards off: {off}\n")
    console.print(_figures(told))
    console.print()
    console.print(_processes(told))
    console.print()
    for problem in told["problems"]:
        console.print(f"NOT OK: {problem}", style="bold red")
    if told["ok"]:
        console.print("as it must be", style="green")


def show_json(told: Mapping[str, Any]) -> None:
    """Print a document for programs."""
    print(json.dumps(told, indent=2))


def _figures(told: Mapping[str, Any]) -> Table:
    grid = table("figure", "value")
    refused = ", ".join(f"{count} {code}" for code, count in told["refused"].items()) or "0"
    evidence = told["evidence"]
    rows = {
        "requests": f"{told['requests']} in {told['seconds']} s, {told['requests_per_s']}/s",
        "completed": f"{told['completed']}, {told['generated_tokens']} tokens generated, "
        f"{told['reused_tokens']} prompt tokens reused",
        "cancelled": f"{told['cancelled']}",
        "too long": f"{told['too_long']}, refused as they must be",
        "refused under load": refused,
        "broken": f"{sum(told['broken'].values())}",
        "own canary": f"{told['own']} of {told['completed']} completed",
        "foreign canary": f"{told['foreign']}",
        "pages": f"{told['pages_lost']} lost, {told['pages_kept']} kept as prefixes",
        "windows, requests left": f"{told['windows_left']}, {told['requests_left']}",
        "waited for pages": f"{evidence['waited']}, up to {evidence['wait_ms_max']} ms",
        "evidence": f"{evidence['records']} records, {evidence['records_lost']} lost, "
        f"ends: {evidence['ends_missing']} missing, {evidence['ends_repeated']} repeated",
    }
    for name, value in rows.items():
        grid.add_row(name, value)
    return grid


def _processes(told: Mapping[str, Any]) -> Table:
    grid = table("process", "open files before, after", "resident MiB first, middle, last")
    for name, files in told["descriptors"].items():
        mib = told["rss_mib"][name]["samples"]
        memory = f"{mib[0]:.1f}, {mib[len(mib) // 2]:.1f}, {mib[-1]:.1f}"
        grid.add_row(name, f"{files['before']}, {files['after']}", memory)
    return grid


def table(*columns: str) -> Table:
    """Return a table of a drill with these columns, and no rows yet."""
    return Table(*columns, box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
