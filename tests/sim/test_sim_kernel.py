"""The kernel: sites are values, turns are computed once, and nothing depends on the process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from kvairlock.sim.explore import explore
from kvairlock.sim.live import LiveTurns
from kvairlock.sim.setup import Direction, Setup
from kvairlock.sim.state import Budget, Move, State
from kvairlock.sim.world import World
from tests.sim.stories import ALICE, BOB, TWO

PULL = Setup((ALICE, BOB), direction=Direction.PULL)


def first_moves(world: World, most: int = 200) -> tuple[list[Move], State]:
    """Take the first move that there is until there is none."""
    moves: list[Move] = []
    state = world.start()
    while (menu := world.moves(state)) and len(moves) < most:
        moves.append(menu[0])
        state = world.step(state, menu[0]).state
    return moves, state


@pytest.mark.parametrize("setup", [TWO, PULL], ids=["push", "pull"])
def test_without_faults_everybody_is_served(setup: Setup) -> None:
    world = World(setup, Budget())
    _, state = first_moves(world)
    assert [progress.name for progress in state.progress] == ["COMPLETED", "COMPLETED"]
    assert world.judge_end(state) == []


@pytest.mark.parametrize("setup", [TWO, PULL], ids=["push", "pull"])
def test_a_site_that_was_written_down_goes_on_as_one_that_lives(setup: Setup) -> None:
    kept, alive = World(setup, Budget()), World(setup, Budget(), LiveTurns())
    moves, _ = first_moves(kept)
    one, other = kept.start(), alive.start()
    for move in moves:
        assert move in alive.moves(other)
        step, live = kept.step(one, move), alive.step(other, move)
        assert [turn.endings for _, turn in step.turns] == [turn.endings for _, turn in live.turns]
        assert step.sometimes == live.sometimes
        one, other = step.state, live.state
    assert one.progress == other.progress
    assert alive.moves(other) == []


def test_a_turn_is_computed_once() -> None:
    world = World(TWO, Budget())
    moves, state = first_moves(world)
    turns = len(world.turns)
    again = world.start()
    for move in moves:
        again = world.step(again, move).state
    assert again == state
    assert len(world.turns) == turns


def test_states_that_are_reached_in_two_ways_are_one() -> None:
    world = World(TWO, Budget(suspensions=1))
    found = explore(world)
    assert found.violation is None
    assert found.transitions > found.states > 100


def explored_in_another_process(hash_seed: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "kvairlock", "explore", "--world", "team-crash", "--json"]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(ran.stdout)
    for of in (found, *found["worlds"]):
        of.pop("seconds")
        of.pop("per_second")
    return found


def test_two_processes_find_the_same() -> None:
    assert explored_in_another_process("1") == explored_in_another_process("2")
