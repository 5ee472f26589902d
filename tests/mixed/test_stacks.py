"""Stacks of both releases: every combination, rollback and return, and what is incompatible."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kvairlock.drills.stack import Keys
from kvairlock.drills.versions.release import Release
from kvairlock.drills.versions.run import carry_out
from kvairlock.drills.versions.stories import Story, stories
from kvairlock.drills.versions.table import Build

pytestmark = pytest.mark.timeout(900)  # the first of them installs the earlier release

ALL = stories()
QUICK = frozenset(
    {
        "gateway-new,prefill-old,decode-new",
        "gateway-new,prefill-new,decode-old:let-through",
        "nodes-two-releases-apart",
    }
)
"""One of each kind runs in every test run."""


def marked(story: Story) -> object:
    marks = () if story.name in QUICK else (pytest.mark.slow,)
    return pytest.param(story, id=story.name, marks=marks)


@pytest.mark.parametrize("story", [marked(story) for story in ALL])
def test_the_row_holds(
    story: Story, releases: dict[Build, Release], keys: Keys, tmp_path: Path
) -> None:
    row = carry_out(story, releases, keys, tmp_path)
    assert row.held, row.saw
    assert row.drill == f"versions:{story.name}"
    assert row.failed_as_expected is None


def test_a_row_that_expects_what_is_not_there_does_not_hold(
    releases: dict[Build, Release], keys: Keys, tmp_path: Path
) -> None:
    """The same steps on a stack whose nodes do understand each other."""
    apart = next(story for story in ALL if story.name == "nodes-two-releases-apart")
    near = {name: replace(seat, speaks=None) for name, seat in apart.seats.items()}
    row = carry_out(replace(apart, seats=near), releases, keys, tmp_path)
    assert not row.held
    assert "BUT" in row.saw
