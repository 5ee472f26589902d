"""Groups of lengths: a rare class is not lost in an average, and shows nothing of a single one."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvairlock.core.lengths import CLASSES, GROUPS, LENGTHS, OTHER, LengthGroups, length_class


@pytest.mark.parametrize(
    ("tokens", "name"),
    [(1, "256"), (256, "256"), (257, "1024"), (16384, "16384"), (16385, "more"), (10**6, "more")],
)
def test_a_class_holds_what_is_at_most_as_long(tokens: int, name: str) -> None:
    assert length_class(tokens) == name


def test_every_class_is_a_group_and_one_more_is_for_the_rest() -> None:
    assert {length_class(most) for most in (*LENGTHS, LENGTHS[-1] + 1)} == set(CLASSES)
    assert set(GROUPS) == {*CLASSES, OTHER}


def test_the_first_few_of_a_class_are_counted_elsewhere_and_the_others_by_it() -> None:
    groups = LengthGroups(requests_min=3)
    assert [groups.of(300) for _ in range(5)] == [OTHER, OTHER, OTHER, "1024", "1024"]
    assert groups.of(20_000) == OTHER, "another class has its own first few"


def test_no_class_is_hidden_where_none_is_too_small() -> None:
    assert LengthGroups(requests_min=0).of(300) == "1024"


@given(st.lists(st.integers(1, 40_000)), st.integers(0, 6))
def test_groups_only_rise_and_add_up_to_all_requests(prompts: list[int], least: int) -> None:
    groups, shown = LengthGroups(least), Counter[str]()
    seen: Counter[str] = Counter()
    for prompt in prompts:
        before = shown.copy()
        shown[groups.of(prompt)] += 1
        seen[length_class(prompt)] += 1
        assert all(shown[group] >= before[group] for group in GROUPS)
    assert shown.total() == len(prompts)
    for name in CLASSES:
        assert shown[name] == max(0, seen[name] - least), "what is shown had enough before it"
