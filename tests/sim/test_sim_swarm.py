"""The swarm: runs are repeatable, end healed, and what fails is made short."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvairlock.core.guards import Guard
from kvairlock.core.terms import LandingPolicy
from kvairlock.sim.crowd import NOTHING, Share, Swarmed, make, make_share
from kvairlock.sim.draw import FLAWS
from kvairlock.sim.setup import Flaw
from kvairlock.sim.shrink import reduce, shrink
from kvairlock.sim.state import Budget, Kind
from kvairlock.sim.swarm import Plan, Run, plan_of, replay, run
from tests.sim.stories import TWO

SEED = "test"


@pytest.mark.parametrize("number", range(24))
def test_a_random_run_breaks_nothing_and_comes_to_its_end(number: int) -> None:
    made = run(f"{SEED}/{number}")
    assert made.violation is None, f"kvairlock swarm --again {SEED}/{number}"
    assert made.steps >= len(made.moves)


def test_a_seed_makes_the_same_run_again() -> None:
    one, other = run("again"), run("again")
    assert (one.moves, one.steps, one.sometimes) == (other.moves, other.steps, other.sometimes)
    assert plan_of("again") == plan_of("again")
    assert plan_of("again") != plan_of("another")


def test_a_schedule_is_replayed_as_it_was() -> None:
    made = run("replayed")
    again = replay(plan_of("replayed"), made.moves)
    assert (again.moves, again.steps) == (made.moves, made.steps)


def test_a_move_that_is_not_possible_is_passed_over() -> None:
    plan = plan_of("replayed")
    made = run("replayed")
    wake = made.moves[0]._replace(kind=Kind.WAKE, at=0)
    assert replay(plan, [wake, *made.moves]).moves == made.moves


def test_all_worlds_together_have_every_flaw_policy_and_fault() -> None:
    plans = [plan_of(f"{SEED}/{number}") for number in range(200)]
    flaws = {ask.flaw for plan in plans for ask in plan.setup.asks}
    assert flaws == {*FLAWS, Flaw.NONE}
    assert {plan.setup.policy for plan in plans} == set(LandingPolicy)
    assert all(max(most) > 0 for most in zip(*(plan.budget for plan in plans), strict=True))
    assert {3, 12} <= {len(plan.setup.asks) for plan in plans}


def failing() -> tuple[Plan, Run]:
    """A world without the drain, and a long schedule that leaves evidence of it."""
    setup = replace(TWO, guards_off=frozenset({Guard.DRAIN}), policy=LandingPolicy.DIRECT)
    plan = Plan(setup, Budget(cancels=1, timeouts=2, duplicates=2))
    for number in range(400):
        made = run(f"failing/{number}", plan)
        if made.violation is not None and len(made.moves) > 20:
            return plan, made
    raise AssertionError("no run showed it")


def test_a_failing_schedule_is_made_short_and_fails_the_same_way() -> None:
    plan, made = failing()
    assert made.violation is not None
    short = shrink(plan, made, made.violation.fault)
    assert short.violation is not None
    assert short.violation.fault is made.violation.fault
    assert len(short.moves) < len(made.moves)
    again = replay(plan, short.moves)
    assert again.violation == short.violation


def test_lists_are_reduced_to_what_fails() -> None:
    tried = []

    def fails(numbers: list[int]) -> bool:
        tried.append(numbers)
        return {3, 11} <= set(numbers)

    assert reduce(list(range(20)), fails) == [3, 11]
    assert len(tried) < 80


def test_shares_of_processes_are_added_up() -> None:
    one = make("added/0")
    assert (one.runs, one.failures) == (1, ())
    assert one + NOTHING == one
    both = one + make("added/1")
    assert isinstance(both, Swarmed)
    assert both.runs == 2
    assert both.moves > one.moves
    assert set(both.missed) <= set(one.missed)


def test_a_share_goes_on_until_its_time_is_up() -> None:
    assert make_share(Share("share", 0, 2, 0.0)) == NOTHING
    assert make_share(Share("share", 0, 2, 0.2)).runs >= 1
