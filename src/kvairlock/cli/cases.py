"""`kvairlock cases`: public failures, and any that you write, played on the core that serves."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kvairlock.cli.output import Json, Status, document, note, plain, say, table, trouble

if TYPE_CHECKING:
    from kvairlock.sim.cases.case import Case
    from kvairlock.sim.cases.run import Judged, Row


def cases(
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FILE]...", help="Cases to play; the shipped ones if left out."),
    ] = None,
    list_only: Annotated[bool, typer.Option("--list", help="List them, and play none.")] = False,
    show: Annotated[
        bool, typer.Option("--show", help="Print what happened, step by step.")
    ] = False,
    json: Json = False,
) -> None:
    """Play failures as stories: with all guards, and without those that the failure needs absent.

    Exit status 0 if each has the right outcome with guards, and shows its failure without them.
    """
    # Here and not above: no other command has to wait until the simulator is loaded.
    from kvairlock.sim.cases.public import not_replayed, shipped
    from kvairlock.sim.cases.run import run
    from kvairlock.sim.cases.words import CaseError

    try:
        chosen = [_read(path) for path in files] if files else shipped()
        left_out = {} if files else not_replayed()
        if list_only:
            _list(chosen, left_out, json)
            return
        judged = [run(case) for case in chosen]
    except CaseError as error:
        first, *more = str(error).splitlines()
        trouble(first)
        for line in more:
            note(plain(line))
        raise typer.Exit(Status.WRONG) from None
    _report(judged, left_out, show, json)
    raise typer.Exit(Status.OK if all(each.ok for each in judged) else Status.NOT_OK)


def _read(path: Path) -> Case:
    from kvairlock.sim.cases.reader import read  # as above
    from kvairlock.sim.cases.words import CaseError

    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise CaseError(str(path), 1, "this is not text in UTF-8") from None
    return read(text, str(path))


def _list(chosen: list[Case], left_out: dict[str, str], json: bool) -> None:
    known = [(name, case.title, case.file) for case in chosen for name in case.ids]
    if json:
        rows = [{"id": name, "title": title, "file": file} for name, title, file in known]
        document({"rows": rows, "not_replayed": left_out})
        return
    table(("id", "what goes wrong"), [(name, title) for name, title, _ in known])
    if left_out:
        say("")
        table(("not replayed", "why"), list(left_out.items()))


def _report(judged: list[Judged], left_out: dict[str, str], show: bool, json: bool) -> None:
    rows = [row for each in judged for row in each.rows]
    failed = sum(not row.ok for row in rows)
    if json:
        summary = {"cases": len(rows), "failed": failed, "not_replayed": len(left_out)}
        shown = [_document(each, row, show) for each in judged for row in each.rows]
        document({"rows": shown, "summary": summary, "not_replayed": left_out})
        return
    titles = (
        "id",
        "with guards",
        "without",
        "shows then; or why nothing can be off",
        "as expected",
    )
    table(titles, [_cells(row) for row in rows])
    for each in judged:
        _tell(each, show)
    say(f"\n{len(rows)} cases, {failed} not as expected, {len(left_out)} not replayed")


def _document(judged: Judged, row: Row, show: bool) -> dict[str, Any]:
    stories = {how: list(lines) for how, lines in judged.stories}
    return asdict(row) | ({"stories": stories} if show else {})


def _cells(row: Row) -> tuple[str, ...]:
    return row.id, row.outcome, ", ".join(row.without), row.failure, "yes" if row.ok else "NO"


def _tell(judged: Judged, show: bool) -> None:
    """Print what was wrong, and if asked for all that happened."""
    names = ", ".join(row.id for row in judged.rows)
    for line in judged.rows[0].wrong:
        say(f"{names}: {line}")
    for how, lines in judged.stories if show else ():
        say(f"\n{names}, {how}")
        for line in lines:
            say(f"    {line}")
