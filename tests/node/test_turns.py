"""Turns, with numbers: what a tenant has waiting costs no other its share."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvairlock.node.turns import Turns


def waiting(**counts: int) -> Turns[str]:
    """Turns in which each tenant has so many things, named for it."""
    turns: Turns[str] = Turns()
    for tenant, count in counts.items():
        for _ in range(count):
            turns.add(tenant, tenant)
    return turns


def serve(turns: Turns[str], count: int) -> str:
    """Serve what comes next; it waits again at once."""
    served = []
    for _ in range(count):
        tenant = turns.take()
        turns.add(tenant, tenant)
        served.append(tenant)
    return "".join(served)


@pytest.mark.parametrize("flood", [1, 10, 30])
def test_a_quiet_tenant_has_half_of_all_turns_beside_a_flood(flood: int) -> None:
    assert serve(waiting(f=flood, q=1), 100) == "fq" * 50


def test_three_tenants_have_a_third_each() -> None:
    assert Counter(serve(waiting(a=30, b=2, c=1), 99)) == {"a": 33, "b": 33, "c": 33}


def test_within_a_tenant_it_is_whoever_waited_longest() -> None:
    turns: Turns[int] = Turns()
    for number in range(3):
        turns.add("a", number)
    assert turns.take() == 0
    turns.add("a", 0)
    assert [turns.take() for _ in range(3)] == [1, 2, 0]
    assert len(turns) == 0


def test_a_tenant_that_comes_new_is_next() -> None:
    turns = waiting(a=9, b=9)
    serve(turns, 5)
    turns.add("n", "n")
    assert serve(turns, 6) == "nbanba"


def test_new_tenants_come_in_the_order_of_their_arrival() -> None:
    turns = waiting(a=3)
    serve(turns, 2)
    for name in "xyz":
        turns.add(name, name)
    assert serve(turns, 8) == "xyzaxyza"


def test_to_come_again_and_again_gives_no_more_than_a_share() -> None:
    """It leaves when it is served, and comes back one turn later: it is never new by that."""
    turns, served, last = waiting(a=5, b=5, c=5, d=5), Counter[str](), "r"
    for _ in range(100):
        tenant = turns.take()
        served[tenant] += 1
        if last == "r":
            turns.add("r", "r")
        if tenant != "r":
            turns.add(tenant, tenant)
        last = tenant
    assert served["r"] == 20


def test_what_is_not_wanted_any_more_spends_no_turn() -> None:
    turns: Turns[int] = Turns()
    for number in range(6):
        turns.add("odd" if number % 2 else "even", number)
    turns.keep(lambda number: number >= 3)
    assert len(turns) == 3
    assert [turns.take() for _ in range(3)] == [4, 3, 5]


def test_nothing_is_taken_where_nothing_waits() -> None:
    turns = waiting(a=1)
    turns.keep(lambda _: False)
    assert len(turns) == 0
    with pytest.raises(ValueError, match="empty"):
        turns.take()


def test_tenants_that_have_left_are_forgotten() -> None:
    turns = waiting(stays=2)
    for number in range(1_000):
        turns.add(f"t{number}", "once")
        serve(turns, 1)
        turns.keep(lambda item: item == "stays")
        serve(turns, 1)
    assert len(turns._served) <= 2


@given(st.lists(st.integers(1, 30), min_size=1, max_size=8), st.integers(1, 200))
def test_tenants_that_always_wait_differ_by_one_turn_at_most(counts: list[int], steps: int) -> None:
    names = {chr(ord("a") + i): count for i, count in enumerate(counts)}
    served = Counter(serve(waiting(**names), steps))
    turns = [served[name] for name in names]
    assert max(turns) - min(turns) <= 1
