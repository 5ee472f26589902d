"""A device that is full, or refuses: what is lost is counted, and nothing looks like theft."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from kvairlock.drills.stack import wait_for
from kvairlock.runtime.evidence_settings import EvidenceSettings
from kvairlock.sink import recorder as recorders
from kvairlock.sink import segments
from kvairlock.sink.chain import verify
from kvairlock.sink.contract import BEAT
from kvairlock.sink.reading import LINES, read_folder
from kvairlock.sink.recorder import Recorder
from tests.sink.keeping_made import RING, peer, recorder, seals_of

SMALL, SHORT = EvidenceSettings(segment_mib=1), EvidenceSettings(segment_s=0)


class Device:
    """Takes of each write to an open segment what it is told to, and then fails."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder, self._write = folder, os.write
        self.room: int | None = None
        self.failed = 0
        patch.setattr(os, "write", self.write)

    def write(self, fd: int, data: bytes) -> int:
        path = Path(f"/proc/self/fd/{fd}").resolve()
        if self.room is None or path.parent != self.folder or path.suffix != LINES:
            return self._write(fd, data)
        if not self.room:
            self.failed += 1
            raise OSError(errno.ENOSPC, "No space left on device")
        taken = self._write(fd, bytes(data)[: self.room])
        self.room -= taken
        return taken


@pytest.fixture
def device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Device:
    return Device(tmp_path, monkeypatch)


def failing(device: Device, sink: Recorder, times: int) -> None:
    """Record a beat at a time, each of which fails."""
    for _ in range(times):
        failed = device.failed
        sink.record("beat", None, BEAT)
        wait_for("a write to fail", partial(_more, lambda: device.failed, failed))


def _more(count: Callable[[], int], than: int) -> bool | None:
    return count() > than or None


def untold(folder: Path) -> int:
    """How many records are gone without a word; negative if more are told of than are gone."""
    records = read_folder(folder)
    numbers = [r["sequence"] for r in records if isinstance(r["sequence"], int)]
    told = [r["records"] for r in records if r["event"] == "evidence_lost"]
    assert len(set(numbers)) == len(numbers)
    return max(numbers) - len(numbers) - sum(n for n in told if isinstance(n, int))


@pytest.mark.parametrize("settings", [SMALL, SHORT], ids=["full", "old"])
def test_a_full_device_leaves_no_hole_among_the_segments(
    settings: EvidenceSettings, tmp_path: Path, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "MIB", 1000)
    sink = Recorder(tmp_path, peer("a1"), RING, settings=settings)
    device.room = 0
    failing(device, sink, 20)
    device.room = None
    sink.record("beat", None, BEAT)
    sink.close()
    assert verify(tmp_path, RING).whole
    assert untold(tmp_path) == 0
    assert list(tmp_path.glob("*.jsonl")) == [], "what took nothing of a line left no tear"


@pytest.mark.parametrize("place", ["one", "all but its end", "whole", "two and a half"])
def test_lines_behind_a_tear_are_lost_and_those_before_it_are_not(
    place: str, tmp_path: Path, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = recorder(tmp_path, "a1")
    sink.record("beat", None, BEAT)
    wait_for("a line", lambda: sink.path.read_bytes().endswith(b"\n") or None)
    line = len(sink.path.read_bytes())
    device.room = {
        "one": 1,
        "all but its end": line - 1,
        "whole": line,
        "two and a half": line * 5 // 2,
    }[place]
    with sink._wake:  # so that they are one batch
        for _ in range(9):
            sink._queue("beat", BEAT)
        sink._wake.notify()
    wait_for("the device to fail", lambda: device.failed or None)
    device.room = None
    sink.record("beat", None, BEAT)
    sink.close()
    assert untold(tmp_path) == 0
    assert sink.lost == (7 if place == "two and a half" else 9 if place == "one" else 8)


def test_a_next_segment_that_can_not_be_locked_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And so the one after it can be."""
    monkeypatch.setattr(segments, "MIB", 1)
    sink = recorder(tmp_path, "a1")
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    tried = 0

    def refuse(*_: object) -> None:
        nonlocal tried
        tried += 1
        raise OSError(errno.ENOLCK, "No locks available")

    with monkeypatch.context() as patch:
        patch.setattr(fcntl, "flock", refuse)
        for _ in range(5):
            seen = tried
            sink.record("beat", None, BEAT)
            wait_for("a try", partial(_more, lambda: tried, seen))
        wait_for("the tries to end", lambda: len(list(tmp_path.glob("*.jsonl"))) == 1 or None)
        assert len(list(Path("/proc/self/fd").iterdir())) == descriptors
    sink.record("beat", None, BEAT)
    sink.close()
    assert verify(tmp_path, RING).whole
    assert untold(tmp_path) == 0


def test_a_life_that_began_on_a_full_device_is_entitled_once_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("kvairlock.sink.seals._put", no_room)
        sink = recorder(tmp_path, "a1")
    sink.record("beat", None, BEAT)
    own = seals_of(tmp_path)
    wait_for("the seals to say that it began", lambda: own.alive() or None)
    sink.close()
    assert verify(tmp_path, RING).whole


def test_what_waits_is_bounded_in_bytes_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorders, "WAITING_BYTES_MAX", 1_000)
    sink = recorder(tmp_path, "a1")
    with sink._wake:  # its thread takes nothing
        for _ in range(50):
            sink.record("beat", None, BEAT)
        assert 0 < len(sink._waiting) < 10
    sink.close()
    assert sink.lost > 40
    assert untold(tmp_path) == 0
