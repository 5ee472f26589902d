"""Groups of lengths: a rare class is not lost in an average, and nothing shows a single one."""

from __future__ import annotations

import pytest

from kvairlock.core.lengths import CLASSES, GROUPS, LENGTHS, OTHER, in_steps, length_class


@pytest.mark.parametrize(
    ("tokens", "name"),
    [(1, "256"), (256, "256"), (257, "1024"), (16384, "16384"), (16385, "more"), (10**6, "more")],
)
def test_a_class_holds_what_is_at_most_as_long(tokens: int, name: str) -> None:
    assert length_class(tokens) == name


def test_every_class_is_a_group_and_one_more_is_for_the_rest() -> None:
    assert {length_class(most) for most in (*LENGTHS, LENGTHS[-1] + 1)} == set(CLASSES)
    assert set(GROUPS) == {*CLASSES, OTHER}


@pytest.mark.parametrize(
    ("count", "step", "shown"),
    [(4, 5, 0), (5, 5, 5), (9, 5, 5), (10, 5, 10), (3, 1, 3), (3, 0, 3), (0, 5, 0)],
)
def test_a_figure_is_shown_in_whole_steps(count: int, step: int, shown: int) -> None:
    assert in_steps(count, step) == shown
