"""`kvairlock audit foreign`: candidates in the logs and metrics of vLLM and SGLang.

The exit status says what scripts need: 0 there is no candidate, 1 there is one, 3 no line was
understood, so that there is nothing to say. None of them says that a request is safe.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from kvairlock.audit.foreign.candidates import FOREIGN_RULES, GRADE, Candidate
from kvairlock.audit.foreign.counters import Growth
from kvairlock.audit.foreign.joining import pseudonym
from kvairlock.audit.foreign.report import LIMITS, ForeignReport, read_foreign, stated
from kvairlock.audit.foreign.sightings import FileRead
from kvairlock.audit.foreign.signs import Engine
from kvairlock.cli.output import Json, Status, document, fail, note, plain, say, table

NOT_UNDERSTOOD = 3
SHOWN_MAX = 100
NOTHING = "-"
FILES = ("file", "side", "engine", "lines", "recognised", "other log lines", "not understood")
CANDIDATES = ("request", "seen", "from", "to", "lines", "order by")
WINDOWS = ("counter", "events", "from", "to", "file")


class Asked(StrEnum):
    """Whose lines are looked for."""

    AUTO = "auto"
    VLLM = "vllm"
    SGLANG = "sglang"


def foreign(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE...", help="Logs and scraped metrics, packed by gzip or not."),
    ],
    engine: Annotated[
        Asked, typer.Option(help="Whose lines to look for; both if it is auto.")
    ] = Asked.AUTO,
    show_ids: Annotated[
        bool, typer.Option("--show-ids", help="Print ids of requests as logged, not as digests.")
    ] = False,
    json: Json = False,
) -> None:
    """Look for candidates in logs and metrics of vLLM and SGLang.

    Give the files of prefill and decode together: what one half did is joined with what the other
    says of the same request. A file whose name has `prefill` or `decode` in it is taken for that
    half's. All that is found is inferred, and no request is ever excluded by it.

    Exit status 0 if there is no candidate, 1 if there is one, 3 if no line was understood.
    """
    missing = [file for file in files if not file.is_file()]
    if missing:
        fail(f"{missing[0]}: there is no such file")
    note(f"reading {len(files)} file{'s' * (len(files) != 1)}")
    report = read_foreign(files, Engine if engine is Asked.AUTO else [Engine(engine)])
    if json:
        document(report.to_json(show_ids=show_ids))
    else:
        _show(report, show_ids)
    raise typer.Exit(_status(report))


def _status(report: ForeignReport) -> int:
    if report.candidates or report.windows:
        return Status.NOT_OK
    return Status.OK if report.understood else NOT_UNDERSTOOD


def _show(report: ForeignReport, show_ids: bool) -> None:
    table(FILES, [_file(file) for file in report.files])
    for line in _troubles(report.files):
        say(line)
    say("")
    _show_candidates(report.candidates, show_ids)
    _show_windows(report.windows)
    say(_verdict(report))
    for limit in LIMITS:
        say(f"  {limit}")


def _file(file: FileRead) -> tuple[str, ...]:
    return (
        file.name,
        file.side,
        ", ".join(sorted(file.engines)) or NOTHING,
        str(file.tally.lines),
        str(file.recognised),
        str(max(0, file.headed - file.recognised)),
        str(file.tally.lines - file.headed),
    )


def _troubles(files: Iterable[FileRead]) -> Iterable[str]:
    for file in files:
        for count, what in (
            (file.tally.cut, "lines were too long and were cut"),
            (file.tally.undecodable, "lines are no UTF-8"),
            (file.overflow, "signs were too many to look into"),
            (file.tally.torn, "end is missing: the packing is torn"),
        ):
            if count:
                say_count = "its" if count is True else str(count)
                yield f"  {plain(file.name)}: {say_count} {what}"


def _show_candidates(found: tuple[Candidate, ...], show_ids: bool) -> None:
    if not found:
        return
    finds = {rule.name: rule.finds for rule in FOREIGN_RULES}
    rows = [
        (
            one.request if show_ids else pseudonym(one.request),
            "; ".join(finds[name] for name in one.rules),
            stated(one.from_s) or NOTHING,
            stated(one.to_s) or NOTHING,
            ", ".join(f"{file + 1}:{line}" for file, line, _ in one.sightings[:4]),
            one.order,
        )
        for one in found[:SHOWN_MAX]
    ]
    table(CANDIDATES, rows)
    if len(found) > SHOWN_MAX:
        say(f"  and {len(found) - SHOWN_MAX} more: --json has them all")
    say("  lines: number of the file, as listed above, and line in it")
    say("")
    fired = {name for one in found for name in one.rules}
    for rule in FOREIGN_RULES:
        if rule.name in fired:
            say(f"  {rule.finds}: not proven is {rule.unproven}")
    say("")


def _show_windows(found: tuple[Growth, ...]) -> None:
    if not found:
        return
    table(WINDOWS, [_window(one) for one in found[:SHOWN_MAX]])
    for counter in dict.fromkeys(one.counter for one in found):
        say(f"  {counter.name}: {counter.means}; not proven is {counter.unproven}")
    say("")


def _window(one: Growth) -> tuple[str, ...]:
    since = "start of the process" if one.since_start else stated(one.from_s) or "not stated"
    return (one.counter.name, str(one.events), since, stated(one.to_s) or "not stated", one.file)


def _verdict(report: ForeignReport) -> str:
    if not report.understood:
        return "no line was understood: these are no logs or metrics of vLLM or SGLang"
    count, windows = len(report.candidates), len(report.windows)
    named = f"{count} request{'s' * (count != 1)} could have met another's cache"
    grown = f"{windows} counter{'s' * (windows != 1)} grew that tell of such" if windows else ""
    if not count and not windows:
        return "no candidate in what was understood"
    return "; ".join(part for part in (named, grown) if part) + f" (grade: {GRADE})"
