"""What `kvairlock drill` is asked to carry out, made of its options: nothing is started yet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kvairlock.cli.drill_view import DrillView
from kvairlock.cli.output import fail
from kvairlock.drills.library import shipped as library
from kvairlock.drills.library.drill import Drill, Level, Round
from kvairlock.drills.library.selection import Table, called_for, narrowed
from kvairlock.drills.runs import beside
from kvairlock.drills.runs.deployed import run_on
from kvairlock.drills.runs.deployment import Deployment, load
from kvairlock.drills.runs.rows import DrillRun, Skipped, joined
from kvairlock.drills.runs.runner import run_drills

RETENTION_H = 24
"""Of data of the tables beside the drills, which say nothing of it."""


OLD_IS_NAMED = "`--versions OLD` names the earlier release"
NOT_THERE = "break processes: not on a deployment"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What was asked for.

    Args:
        names: Names of drills, files, and rows of other tables.
        everything: Whether all drills were asked for.
        rounds: Only these; all if empty.
        levels: Only these; all if empty.
        changed: Paths of a change, or None.
        faults: Whether the fault matrix was asked for.
        versions: The earlier release for the table of versions, or None.
        deployment: The file of a deployment, or None.
    """

    names: tuple[str, ...]
    everything: bool
    rounds: tuple[Round, ...]
    levels: tuple[Level, ...]
    changed: tuple[str, ...] | None
    faults: bool
    versions: Path | None
    deployment: Path | None

    @property
    def names_something(self) -> bool:
        """Whether anything was asked for, and be it that what a change calls for is nothing."""
        named = self.names or self.everything or self.rounds or self.levels or self.faults
        return bool(named) or self.changed is not None or self.versions is not None

    def beside(self, prefix: str) -> tuple[str, ...]:
        """Return the names that begin so, without it."""
        return tuple(n.removeprefix(prefix) for n in self.names if n.startswith(prefix))


@dataclass(frozen=True, slots=True)
class Plan:
    """What is carried out.

    Args:
        drills: The drills, each once.
        faults: Rows of the fault matrix; empty for all, None for none.
        versions: Rows of the table of versions; empty for all, None for none.
        old: The earlier release, or None.
        deployment: Where the drills are carried out; None for stacks of their own.
        skipped: What was called for and cannot be carried out.
    """

    drills: tuple[Drill, ...]
    faults: tuple[str, ...] | None
    versions: tuple[str, ...] | None
    old: Path | None
    deployment: Deployment | None
    skipped: tuple[Skipped, ...]

    @property
    def retention_h(self) -> int:
        """How long data may be kept: as short as the shortest of what was agreed on."""
        agreed = [drill.limits.retention_h for drill in self.drills]
        if self.deployment is not None:
            agreed.append(self.deployment.limits.retention_h)
        return min(agreed, default=RETENTION_H)

    def carry_out(self, folder: Path, seed: int, view: DrillView) -> DrillRun:
        """Carry out all of it, one after another.

        Args:
            folder: Where settings, logs and evidence go.
            seed: What the canaries are drawn from.
            view: Shows how far it has come.

        Raises:
            DrillFailed: A stack that is needed for everything does not start.
        """
        return joined(self._parts(folder, seed, view), seed)

    def _parts(self, folder: Path, seed: int, view: DrillView) -> Iterator[DrillRun]:
        yield DrillRun(seed, (), self.skipped, (), ())
        if self.deployment is not None:
            yield run_on(self.deployment, self.drills, seed, view)
        elif self.drills:
            yield run_drills(self.drills, folder, seed, view)
        if self.faults is not None:
            yield beside.run_faults(seed, folder / "faults", self.faults, view.line)
        if self.versions is not None and self.old is not None:
            place = folder / "versions"
            yield beside.run_versions(seed, place, self.versions, view.line, self.old)


def plan_for(wanted: Wanted) -> Plan:
    """Return what is to be carried out; end the command if that is nothing that makes sense.

    Raises:
        DrillWrong: A drill cannot be used.
        DeploymentWrong: The file of the deployment cannot be used.
        typer.Exit: Nothing was asked for, or what does not go together; why is on stderr.
    """
    known = library.shipped()
    called = called_for(wanted.changed or (), known)
    # Who asks for some rounds or levels asks for drills: what is beside them has none.
    tables = frozenset() if wanted.rounds or wanted.levels else called.tables
    skipped = {table: why for table in sorted(tables) if (why := _why_not(table, wanted))}
    plan = Plan(
        drills=_drills(wanted, known, called.drills),
        faults=_rows(wanted, beside.FAULT, wanted.faults or Table.FAULTS in tables - set(skipped)),
        versions=_rows(wanted, beside.VERSION, wanted.versions is not None),
        old=wanted.versions,
        deployment=None if wanted.deployment is None else load(wanted.deployment),
        skipped=tuple(Skipped(table, why) for table, why in skipped.items()),
    )
    _must_make_sense(plan, wanted)
    return plan


def _must_make_sense(plan: Plan, wanted: Wanted) -> None:
    if wanted.everything and wanted.names:
        fail("all drills or some by name, not both", "leave out `--all`, or the names")
    if plan.versions is not None and plan.old is None:
        fail("rows of the table of versions need an earlier release", OLD_IS_NAMED)
    if plan.deployment is not None and (plan.faults is not None or plan.versions is not None):
        fail(f"the fault matrix and the table of versions {NOT_THERE}")
    nothing = plan.faults is None and plan.versions is None and not plan.drills
    if nothing and wanted.changed is None:
        fail("no drill is chosen", "name some, or `--all`; `--list` shows them")


def _why_not(table: Table, wanted: Wanted) -> str:
    """Return why a table that a change calls for cannot be carried out; empty if it can."""
    if wanted.deployment is not None:
        return f"what is beside the drills {NOT_THERE}"
    return OLD_IS_NAMED if table is Table.VERSIONS and wanted.versions is None else ""


def _rows(wanted: Wanted, prefix: str, whole: bool) -> tuple[str, ...] | None:
    named = wanted.beside(prefix)
    return named if named or whole else None


def _drills(wanted: Wanted, known: Sequence[Drill], called: Sequence[Drill]) -> tuple[Drill, ...]:
    """Return the drills that are named or called for; all where only rounds or levels are."""
    beside_them = (beside.FAULT, beside.VERSION)
    named = [_drill(name) for name in wanted.names if not name.startswith(beside_them)]
    chosen = {drill.name: drill for drill in (*named, *called)}
    narrows = bool(wanted.rounds or wanted.levels)
    if wanted.everything or (narrows and not wanted.names and wanted.changed is None):
        chosen |= {drill.name: drill for drill in known}
    return narrowed(chosen.values(), wanted.rounds, wanted.levels)


def _drill(name: str) -> Drill:
    if name.endswith(library.SUFFIX):
        return library.read(Path(name))
    return library.drill(name)
