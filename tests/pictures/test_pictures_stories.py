"""Pictures of the core itself: what it records in the simulator, in push and pull, with faults.

Where the simulator sees no leak, no finding must stand out; where it sees one, one must. So a
picture is a third path to the same answer, which knows neither slots nor the core's state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from kvairlock.core.effects import Record
from kvairlock.core.evidence import EVENTS, SCHEMA_VERSION
from kvairlock.core.terms import Owner, Peer
from kvairlock.pictures.findings import FindingKind
from kvairlock.pictures.history import Reach
from kvairlock.pictures.scenes import Picture, picture
from tests.pictures.recorded import EMPTY, MS
from tests.transcripts.stories import STORIES
from tests.transcripts.telling import Story, schedule_of

STANDS_OUT = {
    "push-late-write-without-drain": {
        FindingKind.UNPROVEN,
        FindingKind.UNHELD,
        FindingKind.FOREIGN,
    },
}
BY_NAME = {story.name: story for story in STORIES}
each_story = pytest.mark.parametrize("story", STORIES, ids=BY_NAME)


def evidence_of(story: Story) -> Iterator[dict[str, Any]]:
    """Yield what the nodes of a story would have written; a step of it takes a millisecond."""
    world, moves = schedule_of(story)
    state, counts = world.start(), Counter[Peer]()
    for at_ms, move in enumerate(moves, start=1):
        step = world.step(state, move)
        state = step.state
        for place, turn in step.turns:
            peer = world.topology.peer(place, state.lives[place])
            records = [world.turns.numbers.record(number) for number in turn.records]
            if records and peer not in counts:
                records.insert(0, Record("node_started", None, {"landing": story.setup.policy}))
            for record in records:
                counts[peer] += 1
                yield _written(record, peer, counts[peer], at_ms * MS + counts[peer])


def _written(record: Record, peer: Peer, sequence: int, at_ns: int) -> dict[str, Any]:
    row = EVENTS[record.event]
    return {
        "schema": SCHEMA_VERSION,
        "event": record.event,
        "node": peer.node,
        "role": peer.role,
        "incarnation": peer.incarnation,
        "sequence": sequence,
        "at_unix_ns": at_ns,
        "at_boot_ns": at_ns,
        **{name: EMPTY[field.kind] for name, field in row.items()},
        **({} if record.owner is None else _who(record.owner)),
        **{name: _plain(value) for name, value in record.fields.items()},
    }


def _who(owner: Owner) -> dict[str, str]:
    return {"tenant": owner.tenant, "request": f"{owner.request}/{owner.attempt}"}


def _plain(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


def seen_of(story: Story) -> Picture:
    return picture(evidence_of(story))


def reaches(seen: Picture) -> set[Reach]:
    return {
        touch.reach
        for scene in seen.scenes
        for shelf in scene.shelves
        for row in shelf.rows
        for touch in row.history.touches
    }


@each_story
def test_every_record_of_the_core_has_its_place_in_the_picture(story: Story) -> None:
    seen = seen_of(story)
    assert (seen.misfits, seen.repeated, seen.unmatched) == (0, 0, 0)
    assert all(account.missing == 0 for account in seen.accounts)


@each_story
def test_only_what_records_cannot_vouch_for_stands_out(story: Story) -> None:
    kinds = {finding.kind for finding in seen_of(story).findings}
    assert kinds == STANDS_OUT.get(story.name, set())


def test_pull_is_drawn_as_a_loan_on_one_side_and_a_fetch_on_the_other() -> None:
    assert {Reach.LOAN, Reach.FETCH, Reach.READ} <= reaches(seen_of(BY_NAME["pull"]))


def test_a_reused_prefix_is_drawn_as_shared() -> None:
    assert Reach.PREFIX in reaches(seen_of(BY_NAME["push-prefix-reused"]))
