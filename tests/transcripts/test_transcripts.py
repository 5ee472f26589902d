"""The stories are what the protocol does now; script/transcripts writes them again.

A difference is read as a change of the protocol: the diff of the files is its review.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvairlock.core.evidence import EVENTS
from kvairlock.sim.explore import judge_run
from kvairlock.sim.outcome import Fault, Violation
from tests.transcripts import __main__ as writing
from tests.transcripts.stories import STORIES
from tests.transcripts.telling import FOLDER, SAYS, Story, Stuck, schedule_of, told

LEAKS = frozenset({"push-late-write-without-drain"})
BY_NAME = {story.name: story for story in STORIES}
each_story = pytest.mark.parametrize("story", STORIES, ids=BY_NAME)


@each_story
def test_a_story_is_told_as_it_is_written(story: Story) -> None:
    assert (FOLDER / f"{story.name}.txt").read_text() == told(story), "run script/transcripts"


def test_nothing_is_stale_and_every_file_has_its_story() -> None:
    assert [path.name for path in writing.stale()] == [], "run script/transcripts"
    assert len(BY_NAME) == len(STORIES)


@each_story
def test_a_story_ends_well_on_both_paths(story: Story) -> None:
    """Every request has ended, every page is free, nothing was read that is another's."""
    world, moves = schedule_of(story)
    state = world.start()
    found: list[Violation] = []
    for move in moves:
        step = world.step(state, move)
        state = step.state
        found += step.violations
    assert world.judge_end(state) == []
    if story.name in LEAKS:
        faults = {violation.fault for violation in found}
        assert Fault.LEAK in faults
        assert faults <= {Fault.LEAK, Fault.EVIDENCE}
    else:
        assert found == []
        assert judge_run(world, tuple(moves)) == []


def test_a_story_that_changed_is_stale(monkeypatch: pytest.MonkeyPatch) -> None:
    changed = FOLDER / "pull.txt"
    read = writing._read
    monkeypatch.setattr(writing, "_read", lambda path: "" if path == changed else read(path))
    assert writing.stale() == [changed]


@pytest.mark.parametrize("hint", ["alice sings", "the client of a/1 leaves"])
def test_a_hint_that_does_not_happen_is_an_error(hint: str) -> None:
    """The second one could, if the story had a budget for it."""
    with pytest.raises(Stuck, match=hint):
        schedule_of(replace(BY_NAME["push"], hints=(hint,)))


def test_holding_back_what_a_hint_needs_is_an_error_that_says_what_could_happen() -> None:
    hints = ("hold computed a/1", "ends the step")
    with pytest.raises(Stuck, match="prefill has computed a/1"):
        schedule_of(replace(BY_NAME["push"], hints=hints))


def test_the_page_shows_the_stories_between_their_marks() -> None:
    page = "a\n<!-- story: x -->\nold\n<!-- end: x -->\nb\n"
    shown = writing.with_stories(page, {"x": "new\n"})
    assert shown == "a\n<!-- story: x -->\n\n```text\nnew\n```\n\n<!-- end: x -->\nb\n"
    text = writing.PAGE.read_text()
    assert told(BY_NAME["push"]) in text
    assert told(BY_NAME["pull"]) in text


def test_every_record_of_a_request_can_be_said() -> None:
    """Without those that stories have no part in: of the gateway, of drills, of a node's life."""
    about = {event for event, row in EVENTS.items() if "tenant" in row}
    assert about - set(SAYS) == {
        "parameters_stripped",
        "request_retried",
        "boundary_replayed",
        "drill_requested",
        "response_sent",
        "tenant_fault",
    }
    assert set(SAYS) <= set(EVENTS)
