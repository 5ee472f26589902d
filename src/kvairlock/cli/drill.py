"""`kvairlock drill`: faults made on purpose, with all guards, with one alone, and without it."""

from __future__ import annotations

import json as jsonlib
import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from kvairlock.cli import places
from kvairlock.cli.drill_plan import Plan, Wanted, plan_for
from kvairlock.cli.drill_view import DrillView, list_drills, show
from kvairlock.cli.output import Json, Status, document, fail, table
from kvairlock.cli.stopping import stopped_in_order
from kvairlock.drills.library import shipped as library
from kvairlock.drills.library.drill import Level, Round
from kvairlock.drills.report.page import write_page
from kvairlock.drills.runs import beside
from kvairlock.drills.runs.retention import Note, Retention
from kvairlock.drills.runs.rows import DrillRun
from kvairlock.drills.stack import DrillFailed, workplace

SEED = 2026
DOCUMENT = "drills.json"
DELETED = "deleted at the end"
STDIN = "-"


def drill(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME",
            help="Drills, files of drills (NAME.toml), or rows of the fault matrix (fault:NAME).",
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All drills of the library.")] = False,
    rounds: Annotated[
        list[Round] | None,
        typer.Option("--round", help="Only drills of this round; may be given more than once."),
    ] = None,
    levels: Annotated[
        list[int] | None,
        typer.Option("--level", min=1, max=3, help="Only drills of this level of acceptance."),
    ] = None,
    changed: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATH",
            help="The drills that a change to this file calls for; `-` reads paths from stdin.",
        ),
    ] = None,
    faults: Annotated[bool, typer.Option("--faults", help="The whole fault matrix.")] = False,
    versions: Annotated[
        Path | None,
        typer.Option(
            metavar="OLD",
            exists=True,
            help="The table of versions, against the release at OLD: its source tree, or the "
            "interpreter of its environment.",
        ),
    ] = None,
    list_only: Annotated[
        bool, typer.Option("--list", help="List them, or what was named; start nothing.")
    ] = False,
    deployment: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.toml", help="A running deployment, instead of stacks of its own."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="What the canaries are drawn from.")] = SEED,
    report: Annotated[
        Path | None,
        typer.Option(metavar="FILE.html", help="Write a report with pictures of the evidence."),
    ] = None,
    keep: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Keep settings, logs and evidence here, until their retention is over; must be "
            "empty. Without it they are deleted at the end.",
        ),
    ] = None,
    prune: Annotated[
        bool,
        typer.Option("--prune", help="Delete kept data that is due, and show what is kept."),
    ] = False,
    json: Json = False,
) -> None:
    """Carry out drills on stacks of their own: with all guards, with one alone, and without it.

    Exit status 0 if each holds with its guards, and is seen to fail without them.
    """
    retention = Retention(places.default_state())
    deleted = retention.prune(time.time())
    if prune:
        _show_kept(deleted, retention.kept(), json)
        return
    wanted = Wanted(
        names=tuple(names or ()),
        everything=everything,
        rounds=tuple(rounds or ()),
        levels=tuple(Level(level) for level in levels or ()),
        changed=None if changed is None else tuple(_paths(changed)),
        faults=faults,
        versions=versions,
        deployment=deployment,
    )
    if list_only:
        _list(wanted, json)
        return
    plan = plan_for(wanted)
    _must_be_writable(report)
    with stopped_in_order(), _data_of(plan, keep, retention) as (folder, fate):
        run = _carry_out(plan, seed, folder)
        told = run.document(fate)
        document(told) if json else show(told)
        if keep is not None:
            (folder / DOCUMENT).write_text(jsonlib.dumps(told, indent=2) + "\n")
        if report is not None:
            write_page(report, told, run.evidence)
    raise typer.Exit(Status.OK if run.ok else Status.NOT_OK)


def _carry_out(plan: Plan, seed: int, folder: Path) -> DrillRun:
    try:
        with DrillView() as view:
            return plan.carry_out(folder, seed, view)
    except DrillFailed as failed:
        fail(f"the drills could not be carried out: {failed}", status=Status.NOT_OK)


@contextmanager
def _data_of(plan: Plan, keep: Path | None, retention: Retention) -> Iterator[tuple[Path, str]]:
    """The folder of the data, and what becomes of it.

    It is noted in any case: what a killed run leaves behind is deleted by a later one.
    """
    with workplace(keep) as folder:
        note = retention.keep(folder, plan.retention_h, time.time())
        fate = DELETED if keep is None else f"kept in {note.folder} until {_time(note)}"
        try:
            yield folder, fate
        finally:
            if keep is None:
                retention.forget(note)


def _list(wanted: Wanted, json: bool) -> None:
    """List what would be carried out; everything if nothing was named."""
    if not wanted.names_something:
        more = (*beside.fault_names(), *beside.version_names())
        list_drills(library.shipped(), more, json)
        return
    plan = plan_for(wanted)
    rows = [] if plan.faults is None else list(beside.fault_names(plan.faults))
    rows += [] if plan.versions is None else beside.version_names(plan.versions)
    list_drills(plan.drills, rows, json)


def _paths(changed: Iterable[str]) -> Iterator[str]:
    """Yield paths from the root of the repository, where the command is run."""
    for said in changed:
        for path in sys.stdin.read().splitlines() if said == STDIN else [said]:
            if path.strip():
                yield os.path.relpath(path)
            elif said != STDIN:
                fail("`--changed` names no file", f"`--changed {STDIN}` reads paths from stdin")


def _must_be_writable(report: Path | None) -> None:
    """Refuse before anything is started what would fail once everything is done."""
    if report is None:
        return
    place = report if report.exists() else report.parent
    if report.is_dir() or not os.access(place, os.W_OK):
        fail(f"{report}: cannot be written", "name a file in a directory that exists")


def _time(note: Note) -> str:
    return datetime.fromtimestamp(note.expires_unix_s, UTC).strftime("%Y-%m-%d %H:%M UTC")


def _show_kept(deleted: Sequence[Note], kept: Sequence[Note], json: bool) -> None:
    rows = [(note.folder, "deleted", _time(note)) for note in deleted]
    rows += [(note.folder, "kept", _time(note)) for note in kept]
    titles = ("folder", "data", "due")
    if json:
        document({"rows": [dict(zip(titles, row, strict=True)) for row in rows]})
        return
    table(titles, rows)
