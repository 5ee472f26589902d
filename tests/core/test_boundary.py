"""Boundaries: the smallest request over each limit of a route, and what must be answered."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from kvairlock.core.errors import Reason, Stage
from kvairlock.core.promise import boundary as boundary_module
from kvairlock.core.promise.admission import judge, judge_decode, judge_prefill
from kvairlock.core.promise.boundary import Boundary, Way
from kvairlock.core.promise.capacity import CapacityReport, Demand
from kvairlock.core.terms import Incarnation, NodeName, Role

P, D = NodeName("prefill-0"), NodeName("decode-0")
PAGE_TOKENS = 16
SENT_MAX = 1 << 21


def report(
    role: Role, pages: int, landing_pages: int = 0, context_tokens: int = 8192
) -> CapacityReport:
    return CapacityReport(
        node=P if role is Role.PREFILL else D,
        role=role,
        incarnation=Incarnation("i"),
        epoch=0,
        fingerprint="f",
        basis=None,
        page_tokens=PAGE_TOKENS,
        pages=pages,
        landing_pages=landing_pages,
        windows=0,
        context_tokens=context_tokens,
        groups=(),
    )


def prefill(pages: int, context_tokens: int = 8192) -> CapacityReport:
    return report(Role.PREFILL, pages, 0, context_tokens)


def decode(pages: int, landing_pages: int, context_tokens: int = 8192) -> CapacityReport:
    return report(Role.DECODE, pages, landing_pages, context_tokens)


def boundaries(
    prefill: CapacityReport, decode: CapacityReport, prompt_tokens_max: int = SENT_MAX
) -> tuple[Boundary, ...]:
    """What can be asked for, with prompts up to a length that no test here needs."""
    return boundary_module.boundaries(prefill, decode, prompt_tokens_max)


SENT, REHEARSED = (Way.REQUEST, Way.REHEARSAL), (Way.REHEARSAL,)


def said(found: tuple[Boundary, ...]) -> list[tuple[object, ...]]:
    return [
        (
            b.node,
            b.demand.prompt_tokens,
            b.demand.max_tokens,
            b.refusal.limit,
            b.refusal.limit_name,
            b.ways,
        )
        for b in found
    ]


def test_each_limit_that_can_be_met_is_asked_for_with_one_token_more() -> None:
    assert said(boundaries(prefill(16), decode(32, 32))) == [
        (D, 1, 512, 512, "decode_pool_tokens", SENT),
        (P, 257, 1, 256, "prefill_pool_tokens", SENT),
    ]
    assert said(boundaries(prefill(16), decode(32, 8))) == [
        (D, 1, 512, 512, "decode_pool_tokens", SENT),
        (D, 129, 1, 128, "landing_tokens", SENT),
        (P, 257, 1, 256, "prefill_pool_tokens", REHEARSED),
    ], "what decode cannot land never gets to prefill"
    assert said(boundaries(prefill(32), decode(32, 32))) == [
        (D, 1, 512, 512, "decode_pool_tokens", SENT),
        (P, 513, 1, 512, "prefill_pool_tokens", REHEARSED),
    ], "decode refuses 513 tokens first"
    assert said(boundaries(prefill(999, 100), decode(999, 999, 200))) == [
        (D, 1, 200, 200, "model_context_tokens", SENT),
        (P, 101, 1, 100, "model_context_tokens", SENT),
    ], "the same limit of two nodes is two boundaries"


def test_a_prompt_that_is_too_long_to_be_sent_is_rehearsed() -> None:
    assert said(boundaries(prefill(16), decode(32, 8), 200)) == [
        (D, 1, 512, 512, "decode_pool_tokens", SENT),
        (D, 129, 1, 128, "landing_tokens", SENT),
        (P, 257, 1, 256, "prefill_pool_tokens", REHEARSED),
    ]
    assert said(boundaries(prefill(16), decode(32, 32), 256))[1][-1] == REHEARSED
    assert said(boundaries(prefill(16), decode(32, 32), 257))[1][-1] == SENT


def test_a_node_that_holds_nothing_refuses_one_token() -> None:
    assert said(boundaries(prefill(0), decode(0, 0)))[0][:3] == (D, 1, 1)


PAGES = st.integers(0, 40)
CONTEXT = st.integers(1, 700)


@given(prefill_pages=PAGES, decode_pages=PAGES, landing=PAGES, first=CONTEXT, second=CONTEXT)
def test_a_boundary_is_refused_by_its_node_and_one_token_less_is_not(
    prefill_pages: int, decode_pages: int, landing: int, first: int, second: int
) -> None:
    one, other = prefill(prefill_pages, first), decode(decode_pages, landing, second)
    found = boundaries(one, other)
    assert {boundary.node for boundary in found} == {P, D}, "no node is left out"
    for boundary in found:
        at, demand, must = (one if boundary.node == P else other), boundary.demand, boundary.refusal
        assert judge(at, demand) == must
        assert must.reason is Reason.CONTEXT_LENGTH
        stages = {P: Stage.PREFILL_ADMISSION, D: Stage.DECODE_ADMISSION}
        assert must.stage is stages[boundary.node]
        assert must.asked is not None
        assert must.limit is not None
        assert must.asked > must.limit
        for less in shorter(demand):
            refused = judge(at, less)
            assert refused is None or refused.limit_name != must.limit_name or at.pages == 0
        met = boundary.node == D or judge_decode(other, demand) is None
        assert boundary.ways == (SENT if met else REHEARSED), "decode grants before prefill judges"


def shorter(demand: Demand) -> list[Demand]:
    """The request with one token less where one can be taken."""
    made = []
    if demand.max_tokens > 1:
        made.append(replace(demand, max_tokens=demand.max_tokens - 1))
    if demand.prompt_tokens > 1:
        made.append(replace(demand, prompt_tokens=demand.prompt_tokens - 1))
    return made


@given(prefill_pages=st.integers(1, 40), decode_pages=st.integers(1, 60), first=CONTEXT)
def test_prefills_limit_is_only_rehearsed_where_decode_refuses_first(
    prefill_pages: int, decode_pages: int, first: int
) -> None:
    one, other = prefill(prefill_pages, first), decode(decode_pages, decode_pages)
    longest = min(one.tokens, first)
    smallest = Demand(longest + 1, 1)
    assert judge_prefill(one, smallest) is not None
    (ways,) = (boundary.ways for boundary in boundaries(one, other) if boundary.node == P)
    assert (ways == SENT) == (judge_decode(other, smallest) is None)
