"""What stands beside the drills and is carried out with them: the fault matrix, and old releases.

Each has a table of its own. Here their rows become rows like those of drills.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Protocol

from kvairlock.drills import faults
from kvairlock.drills.rows import DrillRun, Row, RunEvidence
from kvairlock.drills.versions import run as versions

FAULT, VERSION = "fault:", "versions:"
"""How names begin that are not those of drills."""

Tell = Callable[[str], None]


class Beside(Protocol):
    """A row of another table."""

    @property
    def drill(self) -> str:
        """Its name."""

    @property
    def round(self) -> str:
        """Its table."""

    @property
    def guards_off(self) -> tuple[str, ...]:
        """The guards that were off."""

    @property
    def held(self) -> bool:
        """Whether all was as it must be."""

    @property
    def failed_as_expected(self) -> bool | None:
        """Whether it has failed as it must; None where the guards were on."""

    @property
    def expected(self) -> str:
        """What had to be seen."""

    @property
    def saw(self) -> str:
        """What was seen."""

    @property
    def seconds(self) -> float:
        """How long it took."""


def names() -> tuple[str, ...]:
    """Return the names of all rows, as the command line takes them."""
    return (
        *(f"{FAULT}{name}" for name in faults.names()),
        *(f"{VERSION}{name}" for name in versions.names()),
    )


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


def _as_run(seed: int, found: Iterable[Beside], folder: Path) -> DrillRun:
    rows = tuple(map(_row, found))
    places = sorted(path for path in folder.rglob("evidence") if path.is_dir())
    evidence = (RunEvidence(str(path.parent.relative_to(folder.parent)), path) for path in places)
    return DrillRun(seed, rows, (), (), tuple(evidence))


def _row(one: Beside) -> Row:
    is_fine = one.held if one.failed_as_expected is None else one.failed_as_expected
    return Row(
        drill=one.drill,
        round=one.round,
        level=None,
        guards_off=one.guards_off,
        held=one.held,
        failed_as_expected=one.failed_as_expected,
        expected=one.expected,
        saw=one.saw,
        refusal=None,
        http_status=None,
        recorded_by="",
        seconds=one.seconds,
        message="" if is_fine else one.saw,
    )
