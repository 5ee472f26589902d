"""What somebody without the key puts into the folder: it is named, and nothing is done by it."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from kvairlock.runtime.evidence_settings import EvidenceSettings, Format
from kvairlock.sink.chain import verify
from kvairlock.sink.contract import BEAT
from kvairlock.sink.reading import read_folder
from kvairlock.sink.recorder import Recorder
from kvairlock.sink.retention import expired, prune
from kvairlock.sink.seal_lines import Act, Content
from kvairlock.sink.seals import Seals
from kvairlock.wire.keys import KEY_BYTES, Keyring
from tests.sink.keeping_made import RING, lived, peer, recorder, seals_of

THIEF = Keyring({"k1": b"t" * KEY_BYTES})
LINES = '{"schema": 2, "event": "beat"}\n'


def planted(folder: Path, life: str, form: str = "parquet") -> Path:
    """A file of a life, made by who has another key, as it may be put anywhere."""
    settings = EvidenceSettings(format=Format(form))
    sink = Recorder(folder, peer(life), THIEF, settings=settings)
    sink.record("beat", None, {**BEAT, "records": 666})
    sink.close(in_order=False)
    return sink.path


def states(folder: Path) -> dict[str, str]:
    return {file.file: str(file.state) for file in verify(folder, RING).files}


def lies(folder: Path) -> list[object]:
    return [r["incarnation"] for r in read_folder(folder) if r.get("records") == 666]


def test_parquet_beside_sealed_lines_is_not_read_and_is_named(tmp_path: Path) -> None:
    sink = Recorder(tmp_path, peer("a1"), RING, settings=EvidenceSettings(format=Format.JSONL))
    sink.record("beat", None, BEAT)
    sink.close()
    before = read_folder(tmp_path)
    shutil.copy(planted(tmp_path / "theirs", "a1"), tmp_path)
    assert read_folder(tmp_path) == before
    assert states(tmp_path) == {
        "decode-0-a1.000001.jsonl": "sealed",
        "decode-0-a1.000001.parquet": "unsealed",
    }


def test_parquet_beside_open_lines_is_not_read_and_does_not_last(tmp_path: Path) -> None:
    sink = recorder(tmp_path, "a1")
    sink.record("beat", None, BEAT)
    shutil.copy(planted(tmp_path / "theirs", "a1"), tmp_path)
    assert lies(tmp_path) == []
    assert states(tmp_path) == {"decode-0-a1.000001.jsonl": "open"}
    sink.close()
    assert lies(tmp_path) == []
    assert states(tmp_path) == {"decode-0-a1.000001.parquet": "sealed"}


@pytest.mark.parametrize("text", [LINES, ""], ids=["lines", "nothing"])
def test_lines_beside_it_do_not_make_a_planted_file_open(text: str, tmp_path: Path) -> None:
    lived(tmp_path, "a1")
    shutil.copy(planted(tmp_path / "theirs", "e5"), tmp_path)
    (tmp_path / "decode-0-e5.000001.jsonl").write_text(text)
    found = states(tmp_path)
    assert found["decode-0-e5.000001.parquet"] == "unsealed"
    assert found["decode-0-e5.000001.jsonl"] == ("unsealed" if text else "open")
    assert lies(tmp_path) == []


@pytest.mark.parametrize("life", ["dead", "a1"], ids=["that never was", "that has ended"])
def test_lines_of_a_life_are_not_sealed_by_the_next(life: str, tmp_path: Path) -> None:
    lived(tmp_path, "a1")
    lines = tmp_path / f"decode-0-{life}.000002.jsonl"
    lines.write_text(LINES)
    for after in ("b2", "c3"):
        assert states(tmp_path)[lines.name] == "unsealed"
        lived(tmp_path, after)
    assert lines.read_text() == LINES


def test_what_a_life_left_that_could_not_say_that_it_began_is_sealed_by_nobody(
    tmp_path: Path,
) -> None:
    """Its segment can't be told from one that was put there."""
    seals_of(tmp_path).add(Act.BEGUN, Content(incarnation="a1"))
    (tmp_path / "decode-0-a1.000001.jsonl").write_text(LINES)
    thief = Seals(tmp_path, "decode-0", THIEF)
    thief.add(Act.BEGUN, Content(incarnation="e5"))
    (tmp_path / "decode-0-e5.000001.jsonl").write_text(LINES)
    lived(tmp_path, "b2")
    found = states(tmp_path)
    assert found["decode-0-a1.000001.jsonl"] == "sealed"
    assert found["decode-0-e5.000001.jsonl"] == "unsealed"


def test_what_was_recovered_says_so(tmp_path: Path) -> None:
    seals_of(tmp_path).add(Act.BEGUN, Content(incarnation="a1"))
    (tmp_path / "decode-0-a1.000001.jsonl").write_text(LINES)
    lived(tmp_path, "b2")
    acts = {file.incarnation: file.act for file in verify(tmp_path, RING).files}
    assert acts == {"a1": Act.RECOVERED, "b2": Act.SEALED}


def test_one_odd_segment_does_not_keep_others_from_being_sealed(tmp_path: Path) -> None:
    """A line without a number, a directory, a pipe, and a link to somewhere else."""
    outside = tmp_path / "outside"
    outside.write_text(LINES)
    folder = tmp_path / "evidence"
    (good,) = lived(folder, "a0")
    record = read_folder(folder)[0]
    for life in ("b1", "b2", "b3", "b4", "b5"):
        seals_of(folder).add(Act.BEGUN, Content(incarnation=life))
    (folder / "decode-0-b1.000001.jsonl").write_text(LINES)
    (folder / "decode-0-b2.000001.jsonl").mkdir()
    os.mkfifo(folder / "decode-0-b3.000001.jsonl")
    (folder / "decode-0-b4.000001.jsonl").symlink_to(outside)
    good = folder / "decode-0-b5.000001.jsonl"
    good.write_text(json.dumps({**record, "incarnation": "b5"}) + "\n")
    lived(folder, "c6")
    assert states(folder)["decode-0-b1.000001.jsonl"] == "sealed"
    assert states(folder)["decode-0-b5.000001.parquet"] == "sealed"
    assert [node.holds for node in verify(folder, RING).nodes] == [True]
    assert outside.read_text() == LINES


@pytest.mark.parametrize("name", ["prefill-0.seals", "notes.txt", "prefill-0-b2.000001.parquet"])
def test_no_line_has_a_file_of_others_deleted(name: str, tmp_path: Path) -> None:
    lived(tmp_path, "a1")
    own = seals_of(tmp_path)
    (tmp_path / name).write_text("theirs")
    own.add(Act.PRUNED, Content(incarnation="b2", file=name, segment=1))
    lived(tmp_path, "c3")
    assert (tmp_path / name).exists()


def test_a_line_that_was_not_written_with_the_key_has_nothing_deleted(tmp_path: Path) -> None:
    (file,) = lived(tmp_path, "a1")
    thief = Seals(tmp_path, "decode-0", THIEF)
    thief.add(Act.PRUNED, seals_of(tmp_path).kept()[file.name].content)
    lived(tmp_path, "b2")
    assert file.exists()
    assert states(tmp_path)[file.name] == "forged"


def test_one_nodes_seals_are_nothing_as_anothers(tmp_path: Path) -> None:
    lived(tmp_path, "p1", node="prefill-0")
    shutil.copy(tmp_path / "prefill-0.seals", tmp_path / "decode-0.seals")
    for ring in (RING, None):
        holds = {node.node: node.holds for node in verify(tmp_path, ring).nodes}
        assert holds == {"decode-0": False, "prefill-0": True}
    begun = (tmp_path / "prefill-0.seals").read_text().splitlines(keepends=True)[0]
    (tmp_path / "decode-0.seals").write_text(begun)
    assert [node.holds for node in verify(tmp_path, RING).nodes] == [False, True]


def test_a_segment_with_a_great_number_costs_nothing(tmp_path: Path) -> None:
    lived(tmp_path, "a1")
    (tmp_path / "decode-0-a1.999999999.parquet").write_bytes(b"")
    assert states(tmp_path) == {
        "decode-0-a1.000001.parquet": "sealed",
        "decode-0-a1.000002.parquet": "missing",
        "decode-0-a1.999999999.parquet": "unsealed",
    }


def test_seals_that_lead_elsewhere_are_not_written(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("line\nno end")
    folder = tmp_path / "evidence"
    folder.mkdir()
    (folder / "decode-0.seals").symlink_to(outside)
    lived(folder, "a1")
    assert outside.read_text() == "line\nno end"


def test_a_changed_file_is_deleted_when_its_time_is_over_and_that_it_was_changed_stays(
    tmp_path: Path,
) -> None:
    changed, taken, good = lived(tmp_path, "a1", "b2", "c3")
    changed.write_bytes(b"x")
    taken.unlink()
    own = seals_of(tmp_path)
    assert prune(own, expired(own, 2**63 - 1)) == [changed, good]
    assert states(tmp_path) == {
        changed.name: "altered",
        taken.name: "missing",
        good.name: "pruned",
    }
