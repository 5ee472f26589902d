"""What is kept of breakers: read as it was written, or not at all, and never taken for closed."""

from __future__ import annotations

import json
import os
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kvairlock.core.errors import Reason, Stage
from kvairlock.core.promise.breaker import NEVER_OPENED, BreakerState, Kept
from kvairlock.core.promise.conditions import Condition, Opening
from kvairlock.core.promise.trial import NodeMoment, RecordKind, RecoveryRecord, RouteMoment, Trial
from kvairlock.core.terms import Incarnation, NodeName, Route
from kvairlock.gateway.breaker_file import BYTES_MAX, BreakerFile, Unreadable

ROUTE = Route(NodeName("prefill-0"), NodeName("decode-0"))
OTHER = Route(NodeName("prefill-1"), NodeName("decode-0"))
ROUTES = (ROUTE, OTHER)
MOMENT = RouteMoment(
    NodeMoment(ROUTE.prefill, Incarnation("p-1"), 0, "f"),
    NodeMoment(ROUTE.decode, Incarnation("d-1"), 2, "g"),
)
OPENING = Opening(Condition.VIOLATIONS, 1_796_000_000, 1, 1, Reason.INTEGRITY, Stage.VERDICT)
RECORD = RecoveryRecord(RecordKind.CORRECTED, MOMENT, ("it holds 512",), 1_796_000_100)
HALF_OPEN = Kept(BreakerState.HALF_OPEN, OPENING, Trial(MOMENT, (RECORD,)), 3)
OPEN = Kept(BreakerState.OPEN, Opening(Condition.OPERATOR, 1_796_000_000, detail="by hand"))


@pytest.fixture
def file(tmp_path: Path) -> BreakerFile:
    return BreakerFile(tmp_path / "state" / "breakers.json")


def read_again(file: BreakerFile) -> dict[Route, Kept | Unreadable]:
    """Read it as the next life of the gateway does."""
    return BreakerFile(file.path).read(ROUTES)


def test_without_a_file_no_breaker_ever_opened(file: BreakerFile) -> None:
    assert file.read(ROUTES) == {ROUTE: NEVER_OPENED, OTHER: NEVER_OPENED}


def test_what_was_written_is_read_and_is_for_its_owner_only(file: BreakerFile) -> None:
    file.write({ROUTE: HALF_OPEN, OTHER: OPEN})
    assert read_again(file) == {ROUTE: HALF_OPEN, OTHER: OPEN}
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
    assert [path.name for path in file.path.parent.iterdir()] == ["breakers.json"]


def test_routes_of_other_stacks_are_kept_as_they_are(file: BreakerFile) -> None:
    file.write({ROUTE: OPEN, OTHER: HALF_OPEN})
    smaller = BreakerFile(file.path)
    assert smaller.read([OTHER]) == {OTHER: HALF_OPEN}
    smaller.write({OTHER: NEVER_OPENED})
    assert read_again(file) == {ROUTE: OPEN, OTHER: NEVER_OPENED}


def document(file: BreakerFile) -> dict[str, Any]:
    file.write({ROUTE: HALF_OPEN, OTHER: OPEN})
    written: dict[str, Any] = json.loads(file.path.read_text())
    return written


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["state"], "ajar"),
        (["state"], "closed"),
        (["state"], None),
        (["entered"], -1),
        (["entered"], True),
        (["opening"], None),
        (["opening", "condition"], "mood"),
        (["opening", "reason"], "weather"),
        (["opening", "severity"], "high"),
        (["trial"], None),
        (["trial", "moment", "decode", "epoch"], "2"),
        (["trial", "records", 0, "kind"], "refuses_nicely"),
        (["trial", "records", 0, "moment", "decode", "epoch"], 3),
        (["waiver"], "2030-01-01"),
    ],
)
def test_content_of_a_route_that_is_not_known_is_of_that_route_alone(
    file: BreakerFile, path: list[str | int], value: object
) -> None:
    written = document(file)
    place: Any = written["routes"][str(ROUTE)]
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    file.path.write_text(json.dumps(written))
    found = read_again(file)
    unreadable = found[ROUTE]
    assert isinstance(unreadable, Unreadable)
    assert unreadable.why.startswith("breakers.json: prefill-0/decode-0: ")
    assert found[OTHER] == OPEN


@pytest.mark.parametrize("name", ["state", "opening", "trial", "entered"])
def test_a_missing_field_is_no_default(file: BreakerFile, name: str) -> None:
    written = document(file)
    del written["routes"][str(ROUTE)][name]
    file.path.write_text(json.dumps(written))
    assert isinstance(read_again(file)[ROUTE], Unreadable)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '{"format": 2, "routes": {}}',
        '{"format": 1}',
        '{"routes": {}}',
        '{"format": 1, "routes": []}',
        '{"format": 1, "routes": {}, "more": 1}',
        "[" * 100_000,
        "\udcff",
        " " * (BYTES_MAX + 1),
    ],
    ids=lambda text: text[:24] or "empty",
)
def test_a_file_that_is_none_is_about_every_route(file: BreakerFile, text: str) -> None:
    file.path.parent.mkdir()
    file.path.write_bytes(text.encode(errors="surrogateescape"))
    found = read_again(file)
    assert [isinstance(each, Unreadable) for each in found.values()] == [True, True]


def test_a_file_that_may_not_be_read_is_about_every_route(file: BreakerFile) -> None:
    file.path.mkdir(parents=True)  # a folder: whoever runs the test cannot read that
    unreadable = read_again(file)[ROUTE]
    assert unreadable == Unreadable("breakers.json: Is a directory")
    assert [path.name for path in file.path.parent.iterdir()] == ["breakers.unreadable-1.json"]


def test_each_file_that_cannot_be_read_lies_aside_under_a_name_of_its_own(
    file: BreakerFile,
) -> None:
    for number in (1, 2):
        file.path.parent.mkdir(exist_ok=True)
        file.path.write_text(f"no. {number}")
        assert isinstance(read_again(file)[ROUTE], Unreadable)
    beside = {path.name: path.read_text() for path in file.path.parent.iterdir()}
    assert beside == {
        "breakers.unreadable-1.json": "no. 1",
        "breakers.unreadable-2.json": "no. 2",
    }
    for route in ROUTES:
        assert read_again(file)[route] == Unreadable(
            "it may be in breakers.unreadable-2.json, which cannot be read"
        )
    file.write({ROUTE: OPEN, OTHER: NEVER_OPENED})
    assert read_again(file) == {ROUTE: OPEN, OTHER: NEVER_OPENED}, "these are known again"


def test_what_could_not_be_read_again_is_not_written(file: BreakerFile) -> None:
    file.write({ROUTE: OPEN})
    long = replace(OPENING, detail="x" * BYTES_MAX)
    with pytest.raises(OSError, match="over 4194304 bytes"):
        file.write({ROUTE: Kept(BreakerState.OPEN, long)})
    assert read_again(file) == {ROUTE: OPEN, OTHER: NEVER_OPENED}


def test_the_name_of_what_was_written_is_on_the_disk_as_well(
    file: BreakerFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power loss must not bring back the file before an opening."""
    synced: list[tuple[str, bool]] = []

    def note(descriptor: int) -> None:
        folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        synced.append(("folder" if folder else "file", file.path.exists()))

    monkeypatch.setattr(os, "fsync", note)
    file.write({ROUTE: OPEN})
    assert synced == [("file", False), ("folder", True)]


def test_what_cannot_be_written_leaves_what_was_there(
    file: BreakerFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write({ROUTE: OPEN, OTHER: OPEN})

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        file.write({ROUTE: NEVER_OPENED, OTHER: NEVER_OPENED})
    assert read_again(file) == {ROUTE: OPEN, OTHER: OPEN}
