"""Carries out drills on stacks of their own: each in all its modes, on as few stacks as will do.

    drills -> runs (guarded, alone, off) -> groups that can share a stack -> rows, in drills' order

Runs share a stack if they need the same nodes and guards; one that breaks it on purpose has it for
itself. After a run that did not come to its end the rest of its group gets a fresh one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from kvairlock.core.guards import Guard
from kvairlock.drills.canaries import Canaries, Marked
from kvairlock.drills.client import Client
from kvairlock.drills.library.drill import Drill, Mode, Run, without
from kvairlock.drills.library.topology import Topology
from kvairlock.drills.records import Records
from kvairlock.drills.runs.cleanup import broken, gone, look
from kvairlock.drills.runs.once import Once, carry_out, nothing
from kvairlock.drills.runs.player import Site
from kvairlock.drills.runs.rows import Cleaned, DrillRun, Row, RunEvidence
from kvairlock.drills.stack import DrillFailed, Keys, Running, make_keys, running

SCOPE = "private"
"""Of the drills' tenants: they share with themselves where a stack keeps prefixes at all."""


class Progress(Protocol):
    """Is told how far drills have come."""

    def began(self, number: int, of: int, title: str) -> None:
        """Take note of what begins, the `number`-th `of` so many."""

    def ended(self, row: Row) -> None:
        """Take note of what became of it."""


@dataclass(frozen=True, slots=True)
class Group:
    """Runs that can share a stack.

    Args:
        topology: Its nodes.
        off: The guards that are off there.
        runs: What is carried out on it, in order.
    """

    topology: Topology
    off: frozenset[Guard]
    runs: tuple[Run, ...]

    @property
    def stays_whole(self) -> bool:
        """Whether its books must add up in the end: nothing breaks it, and pages are zeroed."""
        broken = any(run.mode is Mode.OFF for run in self.runs)
        return not broken and Guard.SCRUB not in self.off


def groups_of(drills: Iterable[Drill]) -> tuple[Group, ...]:
    """Return the runs of drills in groups, in the order of each group's first run."""
    found: dict[tuple[Topology, frozenset[Guard], str], list[Run]] = {}
    for run in (run for drill in drills for run in drill.runs()):
        alone = run.drill.name if run.mode is Mode.OFF else ""
        found.setdefault((run.drill.stack, run.off, alone), []).append(run)
    return tuple(Group(stack, off, tuple(runs)) for (stack, off, _), runs in found.items())


def run_drills(drills: Sequence[Drill], folder: Path, seed: int, progress: Progress) -> DrillRun:
    """Carry out drills on stacks of their own.

    Args:
        drills: Which.
        folder: Where settings, logs and evidence go.
        seed: What the canaries are drawn from.
        progress: Is told how far it has come.

    Raises:
        DrillFailed: There are no keys to carry them out with.
    """
    tenants = dict.fromkeys(tenant for drill in drills for tenant in drill.tenants)
    runner = _Runner(folder, make_keys(folder, tenants, SCOPE), seed, progress)
    runner.carry_out(groups_of(drills))
    rows = [runner.rows[drill.name, run.mode] for drill in drills for run in drill.runs()]
    return DrillRun(seed, tuple(rows), (), tuple(runner.cleaned), tuple(runner.evidence))


class _Runner:
    """Carries out groups, one after another."""

    def __init__(self, folder: Path, keys: Keys, seed: int, progress: Progress) -> None:
        self._folder, self._keys, self._seed, self._progress = folder, keys, seed, progress
        self._stacks = self._runs = 0
        self.rows: dict[tuple[str, Mode], Row] = {}
        self.cleaned: list[Cleaned] = []
        self.evidence: list[RunEvidence] = []

    def carry_out(self, groups: Sequence[Group]) -> None:
        """Carry out all runs of groups."""
        self._runs = sum(len(group.runs) for group in groups)
        for group in groups:
            waiting = deque(group.runs)
            while waiting:
                self._on_a_stack(group, waiting)

    def _on_a_stack(self, group: Group, waiting: deque[Run]) -> None:
        """Take runs from those that wait, for as long as their stack can be used."""
        self._stacks += 1
        place = self._folder / f"stack-{self._stacks:02}"
        with ExitStack() as ends:
            try:
                settings = group.topology.settings(group.off)
                stack = ends.enter_context(running(settings, self._keys, place))
            except DrillFailed as failed:
                while waiting:
                    self._one(waiting.popleft(), partial(nothing, why=str(failed)))
                return
            cleaned = self._use(group, stack, place, waiting)
        self.cleaned.append(gone(cleaned, stack.pids.values()))

    def _use(self, group: Group, stack: Running, place: Path, waiting: deque[Run]) -> Cleaned:
        records = Records(stack.evidence, self._keys.pseudonyms)
        site = Site(Client(stack, self._keys), records, stack)
        known: tuple[Marked, ...] = ()
        done: list[str] = []
        is_whole = group.stays_whole
        while waiting:
            run = waiting.popleft()
            canaries = Canaries(f"{self._seed} {run.title}", known)
            done.append(run.drill.name)
            if not self._one(run, partial(carry_out, site=site, canaries=canaries)):
                is_whole = False
                break
            known = canaries.given
        self.evidence.append(RunEvidence(_title(group, done), stack.evidence))
        return look(place.name, done, site) if is_whole else broken(place.name, done)

    def _one(self, run: Run, do: Callable[[Run], Once]) -> bool:
        """Do one run; return whether its stack can be used on."""
        self._progress.began(len(self.rows) + 1, self._runs, run.title)
        once = do(run)
        self.rows[run.drill.name, run.mode] = once.row
        self._progress.ended(once.row)
        return once.carried_out


def _title(group: Group, done: Iterable[str]) -> str:
    return f"{', '.join(dict.fromkeys(done))}: {without(group.off)}"
