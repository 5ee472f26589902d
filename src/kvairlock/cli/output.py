"""How commands speak: documents and tables on stdout, one line of trouble on stderr.

Everything that reports can do so as JSON. The exit status says the same as the text:

    0  it is as it should be
    1  what was reported on is not: a row came out wrong, a process would not stay up
    2  the command line or a file that the user wrote is wrong; nothing was started
    3  nothing is known to be wrong, and for some of it there is too little evidence
    70  kvairlock itself failed, and says nothing of what it was to report on
"""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Sequence
from enum import IntEnum
from itertools import compress
from shutil import get_terminal_size
from typing import Annotated, Any, NoReturn

import typer
from rich import box
from rich.console import Console
from rich.table import Table

WIDTH_OF_PIPES = 160
ROOMY_COLUMNS = 120
"""A narrower terminal shows less of each row, so that what it shows can be read."""


class Status(IntEnum):
    """Exit statuses of every command."""

    OK = 0
    NOT_OK = 1
    WRONG = 2
    UNTOLD = 3
    FAILED = 70


Json = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")]


def document(value: Any) -> None:
    """Print a value as one indented JSON document on stdout."""
    say(json.dumps(value, indent=2, ensure_ascii=False))


def say(text: str) -> None:
    """Print a line on stdout exactly as it is, never wrapped: it may be copied."""
    typer.echo(text)


def note(text: str) -> None:
    """Print a line for the person at the terminal on stderr, so that stdout can be piped."""
    typer.echo(text, err=True)


def table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], spare: Collection[str] = ()
) -> None:
    """Print rows under column titles on stdout; a pipe gets wide lines, a terminal its own width.

    Args:
        columns: Titles.
        rows: Cells of each row, as many as there are columns.
        spare: Titles of the columns that a narrow terminal does without.
    """
    shown = [_is_roomy() or title not in spare for title in columns]
    grid = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, highlight=False)
    for title in compress(columns, shown):
        grid.add_column(title, overflow="fold")
    for row in rows:
        grid.add_row(*(plain(cell) for cell in compress(row, shown)))
    width = None if sys.stdout.isatty() else WIDTH_OF_PIPES
    Console(width=width, markup=False, highlight=False, emoji=False).print(grid)


def _is_roomy() -> bool:
    """Whether there is room for all columns; always in a pipe."""
    return not sys.stdout.isatty() or get_terminal_size().columns >= ROOMY_COLUMNS


def fail(message: str, hint: str = "", status: Status = Status.WRONG) -> NoReturn:
    """End the command with a line about what is wrong, and one about what to do next.

    Raises:
        typer.Exit: Always, with `status`.
    """
    trouble(message, hint)
    raise typer.Exit(status)


def trouble(message: str, hint: str = "") -> None:
    """Print one line that says what is wrong on stderr, and one that says what to do next."""
    note(f"kvairlock: {plain(message)}")
    if hint:
        note(f"  next: {hint}")


def plain(text: str) -> str:
    """Return text without control characters: what a file or a process says moves no cursor."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
