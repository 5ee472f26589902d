"""What one release says to the other: word by word, and what is refused in either direction."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest

from kvairlock.core.errors import PeerIncompatible
from kvairlock.core.messages import Inspect, NodeStatus, Resize
from kvairlock.core.terms import NodeName
from kvairlock.drills.stack import Keys, wait_for
from kvairlock.drills.versions.release import Release
from kvairlock.drills.versions.stack import Mixed, mixed
from kvairlock.drills.versions.table import DECODE, PREFILL, Build, Combination
from kvairlock.runtime.link import Identity, dial
from kvairlock.wire.versions import SPEAKS, UNSTATED, Versions
from tests.mixed.raw import ME, NAME, Raw

pytestmark = pytest.mark.timeout(900)  # the first of them installs the earlier release

GOLDEN = Path(__file__).parents[1] / "wire" / "golden"


def test_the_golden_words_are_those_of_the_release(releases: dict[Build, Release]) -> None:
    old = releases[Build.OLD]
    said = subprocess.run(
        [old.python, GOLDEN / "version1.py"],
        env=old.environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout == (GOLDEN / "version1.json").read_text()


@pytest.fixture(scope="module")
def stack(
    releases: dict[Build, Release], keys: Keys, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mixed]:
    """A prefill node of the release and a decode node of today."""
    seats = Combination(Build.NEW, prefill=Build.OLD, decode=Build.NEW).seats
    with mixed(releases, seats, keys, tmp_path_factory.mktemp("words")) as running:
        yield running


@dataclass(frozen=True)
class Ear:
    """Who listens, and what is agreed on with it."""

    node: str
    speaks: Versions
    version: int


EARS = [
    pytest.param(Ear(PREFILL, UNSTATED, 1), id="0.1.0"),
    pytest.param(Ear(PREFILL, SPEAKS, 1), id="0.1.0 hears a hello of today"),
    pytest.param(Ear(DECODE, UNSTATED, 1), id="today in version 1"),
    pytest.param(Ear(DECODE, SPEAKS, SPEAKS[-1]), id="today"),
]
each_ear = pytest.mark.parametrize("ear", EARS)


def refusals(stack: Mixed, ear: Ear) -> list[str]:
    """What the node has recorded about frames of the tester."""
    found = stack.records.all("frame_refused", node=ear.node, peer=NAME)
    return [record["reason"] for record in found]


def said(stack: Mixed, keys: Keys, ear: Ear, *words: Any) -> NodeStatus | None:
    """Say something; return the status that answers it, or None if the channel is closed."""
    path = stack.run / f"{ear.node}.sock"
    with closing(Raw(path, keys.ring, ear.node, ear.speaks)) as channel:
        assert channel.version == ear.version
        channel.say(*words)
        status: NodeStatus | None = channel.hear(NodeStatus)
        return status


def is_refused(stack: Mixed, keys: Keys, ear: Ear, *words: Any) -> str:
    """Say something that closes the channel; return the reason that the node has recorded."""
    before = len(refusals(stack, ear))
    assert said(stack, keys, ear, *words) is None
    new = wait_for("the refusal", lambda: refusals(stack, ear)[before:] or None)
    (reason,) = new
    return reason


@each_ear
def test_a_field_that_is_not_known_is_passed_over(stack: Mixed, keys: Keys, ear: Ear) -> None:
    status = said(stack, keys, ear, "inspect", [], {"colour": "red"})
    assert status is not None
    assert status.report.node == ear.node


@each_ear
def test_a_field_that_must_be_understood_and_is_not_known_is_refused(
    stack: Mixed, keys: Keys, ear: Ear
) -> None:
    reason = is_refused(stack, keys, ear, "inspect", ["colour"], {"colour": "red"})
    assert reason == "unknown critical field in inspect"


@each_ear
def test_a_missing_field_is_refused_and_named(stack: Mixed, keys: Keys, ear: Ear) -> None:
    reason = is_refused(stack, keys, ear, "drill", [], {"action": "arm", "point": "land"})
    assert "missing required field `after`" in reason


@each_ear
def test_a_message_that_is_not_known_is_refused(stack: Mixed, keys: Keys, ear: Ear) -> None:
    reason = is_refused(stack, keys, ear, "rewind", [], {})
    assert reason == "unknown message type"


@pytest.mark.parametrize("ear", EARS[:3])
def test_a_message_of_version_2_is_refused_in_version_1(stack: Mixed, keys: Keys, ear: Ear) -> None:
    assert is_refused(stack, keys, ear, "resize", [], {"pages": 4}) == "unknown message type"


def test_the_release_is_heard_and_never_told_what_it_cannot_understand(
    stack: Mixed, keys: Keys
) -> None:
    async def story() -> None:
        link = await dial(stack.run / f"{PREFILL}.sock", Identity(ME, keys.ring), NodeName(PREFILL))
        try:
            assert link.version == 1
            assert link.speaks == UNSTATED
            with pytest.raises(PeerIncompatible, match="messages 1 have no resize"):
                await link.send(Resize(4))
            await link.send(Inspect())
            message: Any = None
            while not isinstance(message, NodeStatus):
                message, _ = await link.receive()
        finally:
            await link.close()
        report = message.report
        assert (report.epoch, report.basis, report.windows, report.groups) == (0, None, 0, ())
        assert (report.pages, report.page_tokens) == (48, 16)

    anyio.run(story)


def test_both_sides_of_a_channel_record_which_version_they_agreed_on(stack: Mixed) -> None:
    """0.1.0 knows of one only, and so records none."""
    spoken = {
        (record["node"], record["peer"]): record["messages"]
        for record in stack.records.all("channel_opened")
        if record["peer"] != NAME
    }
    assert spoken == {
        ("gateway", PREFILL): 1,
        ("gateway", DECODE): SPEAKS[-1],
        (DECODE, "gateway"): SPEAKS[-1],
        (DECODE, PREFILL): 1,
    }
