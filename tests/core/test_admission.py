"""What a node can hold, against the same asked one by one: lengths, groups of pages, choices."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvairlock.core.errors import Reason, Stage
from kvairlock.core.promise.admission import judge, judge_decode, judge_prefill
from kvairlock.core.promise.capacity import CapacityReport, Cause, Demand, KvGroup
from kvairlock.core.terms import Incarnation, NodeName, Role

PLAIN = CapacityReport(
    node=NodeName("n"),
    role=Role.DECODE,
    incarnation=Incarnation("i"),
    epoch=3,
    fingerprint="f",
    basis=None,
    page_tokens=4,
    pages=10,
    landing_pages=6,
    windows=0,
    context_tokens=100,
    groups=(),
)
FULL = KvGroup("full", page_tokens=4, pages=8, pages_reserved=1, window_tokens=0)
WINDOW = KvGroup("window", page_tokens=2, pages=4, pages_reserved=0, window_tokens=8)
NARROW = KvGroup("narrow", page_tokens=2, pages=3, pages_reserved=0, window_tokens=8)
"""Its window does not fit: what is held is less than it looks back."""

groups = st.builds(
    KvGroup,
    name=st.sampled_from(("full", "window")),
    page_tokens=st.integers(1, 4),
    pages=st.integers(0, 12),
    pages_reserved=st.integers(0, 1),
    window_tokens=st.sampled_from((0, 0, 3, 8, 20)),
)
reports = st.builds(
    replace,
    st.just(PLAIN),
    role=st.sampled_from((Role.PREFILL, Role.DECODE)),
    page_tokens=st.integers(1, 4),
    pages=st.integers(0, 12),
    landing_pages=st.integers(0, 12),
    windows=st.integers(0, 3),
    context_tokens=st.integers(1, 60),
    groups=st.lists(groups, max_size=2).map(tuple),
)


class Slots:
    """A node as slots that are given out one by one: the slow truth.

    Args:
        report: What the node states.
    """

    def __init__(self, report: CapacityReport) -> None:
        self.report = report
        self.free = [report.pages, *(group.pages for group in report.groups)]
        self.windows = report.windows

    def take(self, tokens: int) -> bool:
        """Place one more request of a length, token by token; False if there is no room."""
        if tokens > self.report.context_tokens:
            return False
        sizes = [(self.report.page_tokens, 0)]
        sizes += [(group.page_tokens, group.window_tokens) for group in self.report.groups]
        needs = [len(pages_touched(tokens, *size)) for size in sizes]
        room = all(need <= free for need, free in zip(needs, self.free, strict=True))
        if not room or (self.report.windows and not self.windows):
            return False
        self.free = [free - need for need, free in zip(needs, self.free, strict=True)]
        self.windows -= 1
        return True


def pages_touched(tokens: int, page_tokens: int, window_tokens: int) -> set[int]:
    """Which pages the last `window_tokens` of a context are in, if they begin a page."""
    kept = [token for token in range(tokens) if not window_tokens or token < window_tokens]
    return {token // page_tokens for token in kept}


def lands(report: CapacityReport, tokens: int) -> bool:
    return report.role is Role.PREFILL or tokens <= report.landing_pages * report.page_tokens


@given(report=reports)
def test_the_longest_request_is_held_and_one_token_more_is_not(report: CapacityReport) -> None:
    longest = report.longest_tokens
    assert longest <= report.context_tokens
    held = [n for n in range(1, 70) if lands(report, n) and Slots(report).take(n)]
    assert longest == max(held, default=0)


@given(report=reports, tokens=st.integers(1, 60))
def test_concurrency_is_what_can_be_placed_one_after_the_other(
    report: CapacityReport, tokens: int
) -> None:
    slots, placed = Slots(report), 0
    while lands(report, tokens) and slots.take(tokens):
        placed += 1
    assert report.concurrency(tokens) == placed


@given(report=reports, prompt=st.integers(1, 60), more=st.integers(1, 20))
def test_a_node_refuses_exactly_what_it_does_not_hold(
    report: CapacityReport, prompt: int, more: int
) -> None:
    demand = Demand(prompt, more)
    tokens = prompt if report.role is Role.PREFILL else prompt + more
    holds = Slots(replace(report, windows=0)).take(tokens) and lands(report, prompt)
    refusal = judge(report, demand)
    assert (refusal is None) is holds
    if refusal is not None:
        assert refusal.reason is Reason.CONTEXT_LENGTH
        assert refusal.asked is not None
        assert refusal.limit is not None
        assert refusal.asked > refusal.limit
    if tokens <= report.longest_tokens:
        assert refusal is None, "nothing within the promise is refused"


@given(report=reports, prompt=st.integers(1, 40), more=st.integers(1, 9), n=st.integers(2, 4))
def test_several_choices_are_refused_by_the_pages_of_all_of_them(
    report: CapacityReport, prompt: int, more: int, n: int
) -> None:
    report = replace(report, role=Role.DECODE)
    demand, one = Demand(prompt, more, n), Demand(prompt, more)
    pages = demand.decode_pages(report.page_tokens)
    fits = pages <= report.pages and all(demand.group_pages(g) <= g.pages for g in report.groups)
    assert (judge(report, demand) is None) is (fits and judge(report, one) is None)


@pytest.mark.parametrize(
    ("groups", "longest"),
    [((), 24), ((FULL,), 24), ((WINDOW,), 24), ((NARROW,), 6), ((FULL, NARROW), 6)],
    ids=["none", "full", "window", "narrow", "both"],
)
def test_a_window_that_fits_limits_nothing(groups: tuple[KvGroup, ...], longest: int) -> None:
    report = replace(PLAIN, groups=groups)
    assert report.longest_tokens == longest
    assert judge_decode(report, Demand(longest - 1, 1)) is None


def test_a_group_that_does_not_hold_it_names_its_limit() -> None:
    report = replace(PLAIN, groups=(replace(FULL, pages=5),))
    over = judge_decode(report, Demand(20, 1))
    assert over is not None
    assert (over.stage, over.asked, over.limit) == (Stage.DECODE_ADMISSION, 21, 20)
    assert over.limit_name == "full_tokens"
    over = judge_prefill(replace(report, role=Role.PREFILL), Demand(21, 0))
    assert over is not None
    assert (over.stage, over.asked, over.limit) == (Stage.PREFILL_ADMISSION, 21, 20)
    assert over.limit_name == "full_tokens"


def test_choices_share_prompt_pages_but_not_windows() -> None:
    demand = Demand(9, 3, 3)
    assert demand.decode_pages(4) == 3 + 2 * (3 - 2)
    assert demand.group_pages(FULL) == 3 + 2 * (3 - 2)
    assert demand.group_pages(WINDOW) == 3 * 4


def test_a_node_without_pages_holds_nothing() -> None:
    empty = replace(PLAIN, pages=0)
    assert (empty.longest_tokens, empty.concurrency(1)) == (0, 0)
    refusal = judge(empty, Demand(1, 1))
    assert refusal is not None
    assert refusal.limit == 0


def test_what_is_recorded_of_a_report() -> None:
    assert PLAIN.figures(Cause.RESIZED) == {
        "epoch": 3,
        "pool_pages": 10,
        "landing_pages": 6,
        "windows": 0,
        "context_tokens": 100,
        "fingerprint": "f",
        "cause": "resized",
    }
