"""The loads of a cost run: all that must be compared are there, and are drawn to be comparable."""

from __future__ import annotations

import pytest

from kvairlock.drills.canaries import Canaries
from kvairlock.drills.cost.loads import CONTEXT_TOKENS, LOADS, NORMAL, CostLoad, draw, order
from kvairlock.drills.cost.stack import settings
from kvairlock.drills.faults.table import Mishap
from kvairlock.drills.soak.plan import Ask
from kvairlock.runtime.settings import Settings, parse

each_load = pytest.mark.parametrize("load", LOADS, ids=lambda load: load.name)


def drawn(load: CostLoad, seed: str = "7/0") -> list[Ask]:
    return draw(load, 60, seed, Canaries(7))


def tokens(ask: Ask) -> int:
    return len(ask.prompt.text) + int(ask.parameters["max_tokens"])


def test_normal_load_stands_beside_every_kind_of_fault() -> None:
    assert [load.name for load in LOADS] == [
        "normal",
        "cancels",
        "over-long",
        "overload",
        "overload, retried",
        "prefill stopped",
        "prefill killed",
        "decode killed",
    ]
    assert len({load.what for load in LOADS}) == len(LOADS)
    struck = {load.name: (s.node, s.mishap) for load in LOADS if (s := load.strike) is not None}
    assert struck == {
        "prefill stopped": ("prefill-0", Mishap.LONG_STOP),
        "prefill killed": ("prefill-0", Mishap.CRASH),
        "decode killed": ("decode-0", Mishap.CRASH),
    }


def test_normal_load_has_no_fault_in_it() -> None:
    asks = drawn(NORMAL)
    assert len(asks) == 60
    assert all(ask.leave is None and not ask.overlong for ask in asks)
    assert max(map(tokens, asks)) == CONTEXT_TOKENS


@each_load
def test_as_many_requests_leave_or_are_too_long_as_the_table_says(load: CostLoad) -> None:
    asks = drawn(load)
    assert len(asks) == 60 * load.crowding
    assert sum(ask.leave is not None for ask in asks) == round(len(asks) * load.leavers)
    assert sum(ask.overlong for ask in asks) == round(len(asks) * load.overlong)
    assert all((tokens(ask) > CONTEXT_TOKENS) == ask.overlong for ask in asks)


@each_load
def test_loads_of_one_round_have_prompts_of_equal_lengths(load: CostLoad) -> None:
    normal = [(ask.prompt.tenant, tokens(ask)) for ask in drawn(NORMAL)]
    same = [(ask.prompt.tenant, tokens(ask)) for ask in drawn(load)[:60] if not ask.overlong]
    assert set(same) <= set(normal)
    if not load.overlong:
        assert same == normal
    assert [tokens(ask) for ask in drawn(load, "7/1")] != [tokens(ask) for ask in drawn(load)]


def test_no_two_requests_of_a_run_have_the_same_canary() -> None:
    canaries = Canaries(7)
    asks = [ask for load in LOADS for ask in draw(load, 20, "7/0", canaries)]
    assert len({ask.prompt.canary for ask in asks}) == len(asks)


def test_each_round_plays_every_load_once_in_an_order_of_its_own() -> None:
    orders = [[load.name for load in order(LOADS, f"7/{number}")] for number in range(3)]
    assert all(sorted(names) == sorted(load.name for load in LOADS) for names in orders)
    assert orders[0] != orders[1] != orders[2]
    assert [load.name for load in order(LOADS, "7/0")] == orders[0]


def parsed(concurrency: int) -> Settings:
    return parse(settings(concurrency))


@pytest.mark.parametrize("concurrency", [2, 3, 8, 64])
def test_the_decode_pools_hold_what_comes_at_one_time(concurrency: int) -> None:
    stack = parsed(concurrency)
    largest = -(-CONTEXT_TOKENS // stack.page_tokens)
    assert sum(node.pages // largest for node in stack.decode) >= concurrency
    assert all(node.pages * node.tenant_share >= largest for node in stack.decode)
    assert (stack.restart, len(stack.prefill), len(stack.decode)) == (True, 2, 2)
