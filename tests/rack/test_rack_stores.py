"""Stores on the rack: kvairlock's own passes in both forms; for each promise a broken one fails."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kvairlock.runtime.evidence_settings import Format
from kvairlock.sink import sealing, seals, segments
from kvairlock.sink.contract_store import OTHERS, Store, StoreContract
from kvairlock.sink.segments import Segments
from tests.rack.broken import keeps, promises
from tests.rack.stores import RecorderStore, only_closes


class OnRecorder(StoreContract):
    form: Format

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.patch = tmp_path, monkeypatch

    def store(self) -> Store:
        return RecorderStore(self.folder, self.form, self.patch)


class TestParquet(OnRecorder):
    form = Format.PARQUET


class TestLines(OnRecorder):
    form = Format.JSONL


# What is broken for each promise: a name in a module or class, and what stands there instead


def never_turns(_: Segments) -> None:
    pass


def leaves_the_dead(*_: object) -> None:
    pass


def drops_a_line_with_the_tear(data: bytes) -> bytes:
    whole = data[: data.rfind(b"\n")]
    return data if data.endswith(b"\n") else whole[: whole.rfind(b"\n") + 1]


def drops_what_has_no_room(lines: Path, *rest: Any) -> Path | None:
    try:
        return SEAL(lines, *rest)
    except OSError:
        lines.unlink()
        return None


def forgets_what_was_before(_: bytes) -> str:
    return ""


def seals_with_another_key(self: seals.Seals, folder: Path, node: str, _: object) -> None:
    INIT(self, folder, node, OTHERS)


SEAL, INIT = sealing.seal, seals.Seals.__init__

BROKEN: dict[str, tuple[Any, str, Callable[..., Any]]] = {
    "test_a_full_segment_is_sealed_while_recording_goes_on": (Segments, "turn", never_turns),
    "test_a_close_seals_what_is_open": (Segments, "close", only_closes),
    "test_what_a_dead_life_left_open_is_sealed_by_the_next": (segments, "recover", leaves_the_dead),
    "test_a_torn_file_is_read_up_to_the_tear": (sealing, "_whole", drops_a_line_with_the_tear),
    "test_without_room_for_seals_no_record_is_lost": (segments, "seal", drops_what_has_no_room),
    "test_seals_are_one_chain_over_all_lives": (seals, "_mac_of", forgets_what_was_before),
    "test_seals_are_of_who_has_the_key": (seals.Seals, "__init__", seals_with_another_key),
}


@pytest.mark.parametrize("promise", BROKEN)
def test_a_broken_store_fails(
    promise: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def store(name: str) -> Callable[[], Store]:
        return lambda: RecorderStore(tmp_path / name, Format.PARQUET, monkeypatch)

    assert keeps(StoreContract, promise, "store", store("whole"))
    monkeypatch.setattr(*BROKEN[promise])
    assert not keeps(StoreContract, promise, "store", store("broken"))


def test_there_is_a_broken_store_for_each_promise() -> None:
    assert set(BROKEN) == promises(StoreContract)
