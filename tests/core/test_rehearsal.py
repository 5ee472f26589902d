"""Rehearsals: a node says what it would refuse as it refuses, and nothing else happens."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from kvairlock.core.effects import Effect, Record, Send
from kvairlock.core.errors import Refusal
from kvairlock.core.events import Told
from kvairlock.core.guards import Guard
from kvairlock.core.memory.page import PageStage
from kvairlock.core.messages import Rehearse, Rehearsed
from kvairlock.core.promise.admission import judge
from kvairlock.core.promise.capacity import Demand
from kvairlock.core.terms import NodeName
from tests.core.ends import World
from tests.core.ends_engine import PromptHost
from tests.core.ends_parts import GATEWAY, PAGE_TOKENS, Setup
from tests.core.resizes import resize

OVER_DECODE = Demand(1, 16 * PAGE_TOKENS)
OVER_PREFILL = Demand(16 * PAGE_TOKENS + 1, 1)


@dataclass(frozen=True)
class Asked:
    """A node of a world, and what is one token over what it holds."""

    host: PromptHost
    partner: str
    demand: Demand


def both(setup: Setup) -> list[Asked]:
    world = World(setup)
    return [Asked(world.decode, "p", OVER_DECODE), Asked(world.prefills["p"], "d", OVER_PREFILL)]


def turn(asked: Asked, demand: Demand) -> list[Effect]:
    """Ask a node how it would judge a demand; return all that this turn brings about."""
    question = Rehearse(
        "r/1", NodeName(asked.partner), demand.prompt_tokens, demand.max_tokens, demand.choices
    )
    return asked.host.node.handle(Told(GATEWAY, question), asked.host.world.now)


def answered(asked: Asked, demand: Demand) -> Refusal | None:
    (send,) = [effect for effect in turn(asked, demand) if isinstance(effect, Send)]
    assert send.to == GATEWAY.node
    assert isinstance(send.message, Rehearsed)
    assert send.message.name == "r/1"
    return send.message.refusal


SIZES = Setup(decode_pages=16, prefill_pages=16)
UNCHECKED = frozenset({Guard.CAPACITY})


@pytest.mark.parametrize("index", [0, 1], ids=["decode", "prefill"])
def test_a_node_answers_what_its_admission_would(index: int) -> None:
    asked = both(SIZES)[index]
    books = asked.host.node.machine.books
    longest = books.report.tokens
    for tokens in (1, longest - 1, longest, longest + 1, 100 * longest):
        demand = Demand(tokens, 1) if index else Demand(1, tokens)
        assert answered(asked, demand) == judge(books.report, demand)
    assert books.pool.count()[PageStage.FREE] == 16


@pytest.mark.parametrize("index", [0, 1], ids=["decode", "prefill"])
def test_it_is_by_the_figures_of_now_and_reserves_nothing(index: int) -> None:
    asked = both(SIZES)[index]
    small = Demand(9, 1)
    assert answered(asked, small) is None
    resize(asked.host, 1)
    refusal = answered(asked, small)
    assert refusal is not None
    assert refusal.limit == asked.host.node.machine.books.report.tokens
    records = [effect for effect in turn(asked, small) if isinstance(effect, Record)]
    assert records == [], "nothing happened that anybody could take for a request"


@pytest.mark.parametrize("index", [0, 1], ids=["decode", "prefill"])
def test_a_node_whose_guard_is_off_would_take_it_and_says_so(index: int) -> None:
    enforcing = both(SIZES)[index]
    off = both(replace(SIZES, off_decode=UNCHECKED, off_prefill=UNCHECKED))[index]
    assert answered(enforcing, enforcing.demand) is not None
    assert answered(off, off.demand) is None
