"""What stands beside the drills and is carried out with them: the fault matrix, and old releases.

Each has a table of its own. Here their rows become rows like those of drills.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path

from kvairlock.drills.faults import run as faults
from kvairlock.drills.runs.cleanup import ended
from kvairlock.drills.runs.rows import DrillRun, Row, RunEvidence
from kvairlock.drills.table_row import TableRow
from kvairlock.drills.versions import run as versions

FAULT, VERSION = "fault:", "versions:"
"""How names begin that are not those of drills."""

Tell = Callable[[str], None]


def fault_names(only: Collection[str] = ()) -> tuple[str, ...]:
    """Return the names of rows of the fault matrix, as the command line takes them.

    Args:
        only: Names or shell patterns, without `fault:`; all if empty.
    """
    return tuple(f"{FAULT}{name}" for name in _matching(faults.names(), only))


def version_names(only: Collection[str] = ()) -> tuple[str, ...]:
    """Return the names of rows of the table of versions, as the command line takes them.

    Args:
        only: Names or shell patterns, without `versions:`; all if empty.
    """
    return tuple(f"{VERSION}{name}" for name in _matching(versions.names(), only))


def _matching(names: Iterable[str], only: Collection[str]) -> Iterator[str]:
    for name in names:
        if not only or any(fnmatchcase(name, pattern) for pattern in only):
            yield name


def run_faults(seed: int, folder: Path, only: Collection[str], tell: Tell) -> DrillRun:
    """Carry out the fault matrix.

    Args:
        seed: Of the drills that it is carried out with.
        folder: Where settings, logs and evidence go.
        only: Names or shell patterns of rows, without `fault:`; all if empty.
        tell: Told each row before it is carried out.

    Raises:
        DrillFailed: A stack does not start.
    """
    return _as_run(seed, faults.run_faults(tell, folder, only), folder)


def run_versions(seed: int, folder: Path, only: Collection[str], tell: Tell, old: Path) -> DrillRun:
    """Carry out the table of versions.

    Args:
        seed: Of the drills that it is carried out with.
        folder: Where settings, logs and evidence go.
        only: Names or shell patterns of rows, without `versions:`; all if empty.
        tell: Told each row before it is carried out.
        old: The earlier release.

    Raises:
        DrillFailed: There is no earlier release there.
    """
    return _as_run(seed, versions.run_versions(old, tell, folder, only), folder)


def _as_run(seed: int, found: Iterable[TableRow], folder: Path) -> DrillRun:
    rows = tuple(map(_row, found))
    places = sorted(path for path in folder.rglob("evidence") if path.is_dir())
    evidence = (RunEvidence(str(path.parent.relative_to(folder.parent)), path) for path in places)
    cleaned = ended(folder.name, [row.drill for row in rows], folder)
    return DrillRun(seed, rows, (), (cleaned,), tuple(evidence))


def _row(one: TableRow) -> Row:
    return Row(
        drill=one.drill,
        round=one.round,
        level=None,
        guards_off=one.guards_off,
        held=one.held,
        failed_as_expected=one.failed_as_expected,
        expected=one.expected,
        saw=one.saw,
        refusal=one.refusal,
        http_status=one.http_status,
        recorded_by="",
        seconds=one.seconds,
        message="" if one.ok else one.saw,
    )
