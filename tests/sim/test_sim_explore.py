"""Small worlds are explored to their end; what is wrong is found, the shortest schedule first."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvairlock.core.guards import Guard
from kvairlock.sim.explore import Explorer, explore, judge_run
from kvairlock.sim.family import explore_family, explore_mutants
from kvairlock.sim.outcome import Fault, Violation
from kvairlock.sim.setup import Ask, Direction, Setup
from kvairlock.sim.state import Budget, Kind
from kvairlock.sim.world import World
from kvairlock.sim.worlds import SMALL, WORLDS, Named, named
from tests.sim.stories import ALICE, BOB, TWO

QUICK = (
    "forger",
    "line",
    "team-crash",
    "recovery",
    "seal-copies",
    "direct",
    "crashes",
    "pull-trust-crash",
    "pull-pages",
)
WITHOUT_DRAIN = replace(TWO, guards_off=frozenset({Guard.DRAIN}))


@pytest.mark.parametrize("name", QUICK)
def test_a_world_of_the_family_is_explored_to_its_end(name: str) -> None:
    (place,) = named(name)
    found = explore(World(place.setup, place.budget))
    assert found.violation is None
    assert found.complete
    assert found.ends > 1


def test_the_family_has_every_fault_and_every_world_two_tenants() -> None:
    most = Budget(*map(max, *(place.budget for place in WORLDS)))
    assert all(most)
    assert most.crashes >= 1 <= most.drops
    assert most.cancels + most.timeouts >= 2
    for place in WORLDS:
        assert len({ask.tenant for ask in place.setup.asks}) == 2
        assert (place.setup.prefill_pages, place.setup.decode_pages) == (3, 3)
    assert len({place.name for place in WORLDS}) == len(WORLDS)
    assert named(SMALL) == WORLDS
    assert named("no such world") == ()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_whole_family_is_complete_and_adequate() -> None:
    found = explore_family()
    assert found.violations == 0
    assert found.complete
    assert found.missed == []
    assert all(row.caught for row in explore_mutants())


def test_what_is_wrong_is_found_with_its_shortest_schedule() -> None:
    seeks = frozenset({Fault.LEAK})
    found = Explorer(World(WITHOUT_DRAIN, Budget(cancels=1)), seeks).run()
    assert found.violation is not None
    assert found.violation.fault is Fault.LEAK
    assert not found.complete
    assert sum(move.kind is Kind.CANCEL for move in found.schedule) == 1
    longer = Explorer(World(WITHOUT_DRAIN, Budget(cancels=2)), seeks).run()
    assert len(longer.schedule) == len(found.schedule)


def test_the_schedule_that_is_found_shows_the_violation_when_it_is_played() -> None:
    world = World(WITHOUT_DRAIN, Budget(cancels=1))
    found = Explorer(world, frozenset({Fault.LEAK})).run()
    state = world.start()
    shown: list[Violation] = []
    for move in found.schedule:
        assert move in world.moves(state)
        step = world.step(state, move)
        shown += step.violations
        state = step.state
    assert found.violation in shown


def test_the_evidence_shows_a_drain_that_did_not_wait() -> None:
    """The second path finds by records alone what the first sees in the pages."""
    seeks = frozenset({Fault.EVIDENCE})
    without = Explorer(World(WITHOUT_DRAIN, Budget(cancels=1)), seeks).run()
    assert without.violation is not None
    assert without.violation.detail == "prefill: write_ended: page 0 is not allocated to a/1"


def test_a_run_without_faults_leaves_evidence_without_faults() -> None:
    world = World(TWO, Budget())
    state, moves = world.start(), []
    while menu := world.moves(state):
        moves.append(menu[0])
        state = world.step(state, menu[0]).state
    assert judge_run(world, tuple(moves)) == []


def test_an_exploration_that_is_given_up_is_not_complete() -> None:
    found = Explorer(World(TWO, Budget(cancels=2))).run(states_max=50)
    assert not found.complete
    assert found.violation is None


def test_requests_that_are_alike_are_sent_in_one_order() -> None:
    def first(*asks: Ask) -> list[int]:
        world = World(Setup(asks), Budget())
        return [m.at for m in world.moves(world.start()) if m.kind is Kind.SUBMIT]

    assert first(ALICE, BOB) == [0]
    assert first(ALICE, replace(BOB, tokens=3)) == [0, 1]
    assert first(ALICE, replace(BOB, scope="bob")) == [0, 1]
    assert first(ALICE, Ask("alice", "a2", 2), BOB) == [0, 2]


def test_a_world_says_what_it_is() -> None:
    assert all(isinstance(place, Named) and place.about for place in WORLDS)
    assert any(place.setup.direction is Direction.PULL for place in WORLDS)
