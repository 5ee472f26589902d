"""Evidence goes when its time is over or its room is used up, and that is on record."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from kvairlock.runtime.evidence_settings import EvidenceSettings
from kvairlock.sink import segments
from kvairlock.sink.chain import FileState, verify
from kvairlock.sink.contract import BEAT
from kvairlock.sink.reading import read_folder
from kvairlock.sink.recorder import Recorder
from kvairlock.sink.retention import NS_PER_DAY, expired, prune
from kvairlock.sink.seal_lines import Act, Content
from kvairlock.sink.seals import Seals
from tests.sink.keeping_made import RING, lived, peer, seals_of


@pytest.fixture
def aged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three lives that recorded 100, 91 and 10 days ago."""
    now = time.time_ns()
    for life, days in (("a1", 100), ("b2", 91), ("c3", 10)):
        with monkeypatch.context() as patch:
            patch.setattr("time.time_ns", lambda d=days: now - d * NS_PER_DAY)
            lived(tmp_path, life)
    return tmp_path


def there(folder: Path) -> set[str]:
    return {path.name.split("-")[2].split(".")[0] for path in folder.glob("*.parquet")}


def before(days: int) -> int:
    return time.time_ns() - days * NS_PER_DAY


def test_what_is_over_is_what_was_recorded_before(aged: Path) -> None:
    seals = seals_of(aged)
    assert [s.content.incarnation for s in expired(seals, before(95))] == ["a1"]
    assert [s.content.incarnation for s in expired(seals, before(90))] == ["a1", "b2"]
    assert expired(seals, before(101)) == []


def test_what_a_dead_life_recorded_is_over_no_later_for_being_sealed_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time_ns()
    with monkeypatch.context() as patch:
        patch.setattr("time.time_ns", lambda: now - 100 * NS_PER_DAY)
        (old,) = lived(tmp_path / "then", "a1")
        record = read_folder(tmp_path / "then")[0]
    seals_of(tmp_path).add(Act.BEGUN, Content(incarnation="a1"))
    old = tmp_path / "decode-0-a1.000001.jsonl"
    old.write_text(json.dumps(record) + "\n")
    lived(tmp_path, "b2")
    assert there(tmp_path) == {"b2"}
    assert verify(tmp_path, RING).whole


def test_with_too_little_room_the_newest_stay(aged: Path) -> None:
    seals = seals_of(aged)
    sizes = [seal.content.bytes for seal in seals.kept().values()]
    for room, gone in ((sum(sizes), []), (sum(sizes) - 1, ["a1"]), (1, ["a1", "b2", "c3"])):
        assert [s.content.incarnation for s in expired(seals, 0, room)] == gone


def test_a_pruned_file_is_on_record_and_the_chain_holds(aged: Path) -> None:
    seals = seals_of(aged)
    prune(seals, expired(seals, before(90)))
    assert there(aged) == {"c3"}
    chain = verify(aged, RING)
    assert chain.whole
    assert [file.state for file in chain.files] == [FileState.PRUNED] * 2 + [FileState.SEALED]
    assert expired(seals, before(90)) == []


def test_a_process_prunes_its_own_files_when_it_starts(aged: Path) -> None:
    lived(aged, "d1", node="prefill-0")
    lived(aged, "d4")
    assert there(aged) == {"c3", "d1", "d4"}
    assert verify(aged, RING).whole


def test_a_running_process_prunes_what_becomes_too_old_or_too_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "PRUNE_S", 0)
    monkeypatch.setattr(segments, "MIB", 40_000)  # of Parquet: one file of a beat, not two
    lived(tmp_path, "a1", "b2")
    settings = EvidenceSettings(segment_mib=1, mib_max=1)
    sink = Recorder(tmp_path, peer("c3"), RING, settings=settings)
    sink.record("beat", None, BEAT)
    sink.close()
    assert there(tmp_path) == {"b2", "c3"}
    assert verify(tmp_path, RING).whole


def test_an_operator_may_prune_while_the_process_seals(tmp_path: Path) -> None:
    """Both write the same seals; one at a time."""
    lived(tmp_path, "a1")
    sink = Recorder(tmp_path, peer("b2"), RING)
    operator = Seals(tmp_path, "decode-0", RING)
    prune(operator, list(operator.kept().values()))
    sink.close()
    assert verify(tmp_path, RING).whole
    assert [seal.entry for seal in operator.entries()] == list(range(1, 8))
