"""What `kvairlock drill` is asked to carry out, made of its options: nothing is started yet."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kvairlock.cli.drill_view import DrillView
from kvairlock.cli.output import fail
from kvairlock.drills import beside, library
from kvairlock.drills.deployed import run_on
from kvairlock.drills.deployment import Deployment, load
from kvairlock.drills.drill import Drill, Level, Round
from kvairlock.drills.rows import DrillRun, joined
from kvairlock.drills.runner import run_drills
from kvairlock.drills.selection import called_for, narrowed

RETENTION_H = 24
"""Of data of the tables beside the drills, which say nothing of it."""


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
    """

    drills: tuple[Drill, ...]
    faults: tuple[str, ...] | None
    versions: tuple[str, ...] | None
    old: Path | None
    deployment: Deployment | None

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
    plan = Plan(
        drills=_drills(wanted),
        faults=_rows(wanted, beside.FAULT, wanted.faults),
        versions=_rows(wanted, beside.VERSION, wanted.versions is not None),
        old=wanted.versions,
        deployment=None if wanted.deployment is None else load(wanted.deployment),
    )
    if plan.versions is not None and plan.old is None:
        fail("rows of the table of versions need an earlier release", "`--versions OLD` names it")
    if plan.deployment is not None and (plan.faults is not None or plan.versions is not None):
        fail("the fault matrix and the table of versions break processes: not on a deployment")
    nothing = plan.faults is None and plan.versions is None and not plan.drills
    if nothing and wanted.changed is None:
        fail("no drill is chosen", "name some, or `--all`; `--list` shows them")
    return plan


def _rows(wanted: Wanted, prefix: str, whole: bool) -> tuple[str, ...] | None:
    named = wanted.beside(prefix)
    return named if named or whole else None


def _drills(wanted: Wanted) -> tuple[Drill, ...]:
    beside_them = (beside.FAULT, beside.VERSION)
    names = dict.fromkeys(name for name in wanted.names if not name.startswith(beside_them))
    known = library.shipped()
    chosen = {found.name: found for found in map(_drill, names)}
    if wanted.changed is not None:
        chosen |= {found.name: found for found in called_for(wanted.changed, known)}
    narrows = bool(wanted.rounds or wanted.levels)
    if wanted.everything or (narrows and not chosen and wanted.changed is None):
        chosen |= {found.name: found for found in known}
    return narrowed(chosen.values(), wanted.rounds, wanted.levels)


def _drill(name: str) -> Drill:
    if name.endswith(library.SUFFIX):
        return library.read(Path(name))
    return library.drill(name)
