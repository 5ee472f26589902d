"""The budget of recovery: all or nothing, filling evenly, never more than one minute's worth."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvairlock.core.promise.budget import NS_PER_MIN, Budget
from kvairlock.core.terms import Instant

BOOTED_NS = 3 * NS_PER_MIN
"""Clocks count from the boot of the machine, not from the start of the node."""
NS_PER_S = 1_000_000_000


def at(seconds: float) -> Instant:
    return Instant(BOOTED_NS + int(seconds * NS_PER_S))


def left(budget: Budget, now: Instant) -> int:
    """Spend whole tokens one by one until there is none, and say how many there were."""
    count = 0
    while budget.spend(1, now):
        count += 1
    return count


def test_no_budget_allows_nothing_at_any_time() -> None:
    budget = Budget(0)
    assert [budget.spend(1, at(s)) for s in (0, 60, 1_000_000)] == [0, 0, 0]


def test_a_whole_minute_is_there_at_the_start_and_no_more() -> None:
    assert Budget(100).spend(101, at(0)) == 0
    assert Budget(100).spend(100, at(0)) == 100
    assert left(Budget(100), Instant(0)) == 100, "also in the first moment of the machine"


def test_all_or_nothing() -> None:
    budget = Budget(100)
    assert budget.spend(70, at(0)) == 70
    assert budget.spend(31, at(0)) == 0
    assert budget.spend(30, at(0)) == 30, "what was refused took nothing"
    assert budget.spend(1, at(0)) == 0


@pytest.mark.parametrize(("seconds", "there"), [(0.5, 0), (1, 1), (6, 10), (30, 50), (59.9, 99)])
def test_it_fills_evenly(seconds: float, there: int) -> None:
    budget = Budget(100)
    assert budget.spend(100, at(0)) == 100
    assert left(budget, at(seconds)) == there


@pytest.mark.parametrize("minutes", [1, 2, 60, 1_000_000])
def test_it_never_holds_more_than_a_minutes_worth(minutes: int) -> None:
    budget = Budget(100)
    budget.spend(40, at(0))
    assert budget.spend(101, at(60 * minutes)) == 0
    assert left(budget, at(60 * minutes)) == 100


@pytest.mark.parametrize("tokens_per_min", [1, 7, 100, 999_983])
@pytest.mark.parametrize("steps", [1, 60, 7_001, 60_000])
def test_time_that_goes_on_in_small_steps_loses_nothing(tokens_per_min: int, steps: int) -> None:
    """Asked in vain again and again, it is as full after a minute as if nobody had asked."""
    budget = Budget(tokens_per_min)
    assert budget.spend(tokens_per_min, at(0)) == tokens_per_min
    for step in range(1, steps + 1):
        now = Instant(BOOTED_NS + NS_PER_MIN * step // steps)
        assert budget.spend(tokens_per_min + 1, now) == 0
    assert budget.spend(tokens_per_min, at(60)) == tokens_per_min


@given(
    tokens_per_min=st.integers(1, 10**6),
    asked=st.lists(st.tuples(st.integers(0, 2 * NS_PER_MIN), st.integers(1, 10**6)), max_size=40),
)
def test_it_spends_what_an_exact_bucket_has(
    tokens_per_min: int, asked: list[tuple[int, int]]
) -> None:
    budget, exact = Budget(tokens_per_min), Fraction(tokens_per_min)
    now, spent = BOOTED_NS, 0
    for wait_ns, tokens in asked:
        now += wait_ns
        filled = exact + Fraction(wait_ns * tokens_per_min, NS_PER_MIN)
        exact = min(filled, Fraction(tokens_per_min))
        wanted = tokens if tokens <= exact else 0
        assert budget.spend(tokens, Instant(now)) == wanted
        exact -= wanted
        spent += wanted
    assert spent <= tokens_per_min * (1 + Fraction(now - BOOTED_NS, NS_PER_MIN))
