"""The simulator's mutants with live processes: refused with the guard on, seen with it off.

A stack is started once for all schedules that need the same nodes and guards; the schedules that
break it on purpose have one each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from kvairlock.core.guards import Guard
from kvairlock.drills.canaries import Canaries
from kvairlock.drills.client import Client
from kvairlock.drills.live import Live, Mode, Topology, carry_out
from kvairlock.drills.live_player import Player
from kvairlock.drills.live_schedules import TENANTS
from kvairlock.drills.live_steps import Arm
from kvairlock.drills.live_table import LIVE
from kvairlock.drills.records import Records
from kvairlock.drills.stack import Keys, Running, running
from kvairlock.runtime.failpoints import Flaw
from kvairlock.sim import setup
from kvairlock.sim.mutants import MUTANTS

from .served import SEED, issue_keys

Key = tuple[Topology, frozenset[Guard], Guard | None]
BY_MOVES = {setup.Flaw.NONE, setup.Flaw.HANGS, setup.Flaw.EARLY}
"""Flaws that need no word for live processes: `hangs` is a held write, `early` no mutant's."""


def key(live: Live, mode: Mode) -> Key:
    """What a stack is for: with a guard off, for one schedule alone, since it is broken by it."""
    return live.topology, live.off(mode), live.guard if mode is Mode.OFF else None


class Stacks:
    """Starts each stack when it is first needed, and stops it after its last schedule."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._keys = issue_keys(folder, dict.fromkeys(TENANTS, "private"), operators=True)
        self._uses = Counter(key(live, mode) for live in LIVE for mode in Mode)
        self._open: dict[Key, tuple[ExitStack, Running]] = {}

    def player(self, live: Live, mode: Mode) -> tuple[Player, Client]:
        wanted = key(live, mode)
        if wanted not in self._open:
            self._open[wanted] = self._start(live, mode)
        return player(self._open[wanted][1], self._keys)

    def done(self, live: Live, mode: Mode) -> None:
        used = key(live, mode)
        self._uses[used] -= 1
        if not self._uses[used]:
            self._open.pop(used)[0].close()

    def close(self) -> None:
        for stack, _ in self._open.values():
            stack.close()

    def _start(self, live: Live, mode: Mode) -> tuple[ExitStack, Running]:
        stack, place = ExitStack(), self._folder / f"{live.guard}-{mode}"
        return stack, stack.enter_context(
            running(live.topology.settings(live.off(mode)), self._keys, place)
        )


def player(stack: Running, keys: Keys) -> tuple[Player, Client]:
    client = Client(stack, keys)
    return Player(client, Canaries(SEED), Records(stack.evidence, keys.ring)), client


@pytest.fixture(scope="module")
def stacks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stacks]:
    started = Stacks(tmp_path_factory.mktemp("live"))
    try:
        yield started
    finally:
        started.close()


each_guard = pytest.mark.parametrize("live", LIVE, ids=[live.guard for live in LIVE])


@pytest.mark.slow
@each_guard
def test_with_the_guard_on_it_does_not_get_through_and_nothing_remains(
    live: Live, stacks: Stacks
) -> None:
    play, client = stacks.player(live, Mode.ON)
    try:
        result = carry_out(live, play, Mode.ON)
        assert result.ok, result
        client.idle()
    finally:
        stacks.done(live, Mode.ON)


@pytest.mark.slow
@each_guard
def test_with_the_guard_off_it_is_seen(live: Live, stacks: Stacks) -> None:
    play, _ = stacks.player(live, Mode.OFF)
    try:
        result = carry_out(live, play, Mode.OFF)
        assert result.ok, result
    finally:
        stacks.done(live, Mode.OFF)


def test_there_is_a_schedule_for_every_guard_and_another_sight_without_it() -> None:
    assert [live.guard for live in LIVE] == list(Guard)
    assert [live for live in LIVE if live.held is live.shows] == []


def test_schedules_have_the_shadows_of_their_mutants_or_say_why_not() -> None:
    mutants = {mutant.guard: mutant.shadows for mutant in MUTANTS}
    other = [
        live.guard for live in LIVE if live.shadows != mutants[live.guard] and not live.differs
    ]
    assert other == []
    assert all(live.guard not in live.shadows for live in LIVE)


def test_every_flaw_of_the_simulator_can_be_done_by_a_process_and_every_one_here_is() -> None:
    assert {flaw.name for flaw in setup.Flaw} - {flaw.name for flaw in Flaw} == {
        flaw.name for flaw in BY_MOVES
    }
    armed = {step.point for live in LIVE for step in live.steps if isinstance(step, Arm)}
    assert set(Flaw) <= armed


def test_every_flaw_and_guard_is_in_the_page_about_them() -> None:
    page = (Path(__file__).parents[2] / "docs" / "live.md").read_text()
    rows = [line.split("|")[1].strip() for line in page.splitlines() if line.startswith("| `")]
    assert rows == [f"`{name}`" for name in (*Flaw, *Guard)]
