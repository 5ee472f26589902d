"""The retry budget: a share of what succeeded, and never more."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kvairlock.core.promise.retries import RetryBudget


def test_without_successes_the_burst_is_all_there_is() -> None:
    budget = RetryBudget(share=0.5, burst=3)
    assert [budget.spend() for _ in range(5)] == [1, 1, 1, 0, 0]


def test_a_success_is_worth_its_share() -> None:
    budget = RetryBudget(share=0.25, burst=1)
    assert budget.spend() == 1
    for _ in range(3):
        budget.succeeded()
        assert budget.spend() == 0
    budget.succeeded()
    assert (budget.left, budget.spend(), budget.spend()) == (1, 1, 0)


def test_no_more_than_the_burst_is_saved_up() -> None:
    budget = RetryBudget(share=1.0, burst=2)
    for _ in range(100):
        budget.succeeded()
    assert [budget.spend() for _ in range(3)] == [1, 1, 0]


def test_a_share_or_burst_of_nothing_allows_nothing() -> None:
    never = RetryBudget(share=1.0, burst=0)
    never.succeeded()
    assert never.spend() == 0


def test_what_was_used_is_what_no_success_has_made_up_for() -> None:
    budget = RetryBudget(share=0.5, burst=3)
    assert budget.used == 0
    budget.spend()
    budget.spend()
    assert budget.used == 2
    budget.succeeded()
    assert (budget.used, budget.left) == (2, 1), "half a retry is no retry yet"
    budget.succeeded()
    assert (budget.used, budget.left) == (1, 2)


@given(
    share=st.floats(0, 1),
    burst=st.integers(0, 20),
    succeeds=st.lists(st.booleans(), max_size=200),
)
def test_retries_never_exceed_the_burst_and_the_share_of_successes(
    share: float, burst: int, succeeds: list[bool]
) -> None:
    budget, spent, successes = RetryBudget(share, burst), 0, 0
    for success in succeeds:
        if success:
            budget.succeeded()
            successes += 1
        else:
            spent += budget.spend()
        assert spent <= burst + successes * (share + 0.0005)
        assert 0 <= budget.left <= burst
