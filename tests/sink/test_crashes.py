"""A process may be killed between any two steps of sealing: no record is lost or read twice."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kvairlock.drills.stack import wait_for
from kvairlock.runtime.evidence_settings import Format
from kvairlock.runtime.secrets import keep_names_of
from kvairlock.sink import parquet, recovery, sealing, seals, segments
from kvairlock.sink.chain import FileState, verify
from kvairlock.sink.contract import BEAT
from kvairlock.sink.reading import read_folder
from kvairlock.sink.retention import prune
from kvairlock.sink.seal_lines import Act, Content
from tests.sink.keeping_made import RING, lived, recorder, seals_of


class Killed(BaseException):
    """Nothing is put away after it, as after SIGKILL."""


STEPS: dict[str, tuple[Any, str]] = {
    "before the part is written": (sealing, "_facts"),
    "when the part is written": (parquet, "_write"),
    "when it has its name": (sealing, "keep_names_of"),
    "before the seal is written": (seals, "_whole"),
    "in the middle of the seal": (seals, "_put"),
    "when the seal is written": (seals.Seals, "add"),
}


def killed_at(step: str, patch: pytest.MonkeyPatch) -> None:
    place, name = STEPS[step]
    real = getattr(place, name)

    def stop(*given: Any, **options: Any) -> None:
        if step == "in the middle of the seal":
            os.write(given[0], given[1][:40])
        if step.startswith("when the"):
            real(*given, **options)
        raise Killed

    patch.setattr(place, name, stop)


def open_segment(folder: Path) -> Path:
    """What a life that died has left: three records, and a fourth that is torn."""
    (sealed,) = lived(folder, "a1", beats=2)
    written = sealed.with_suffix(".jsonl")
    data = b"".join(msgspec.json.encode(record) + b"\n" for record in read_folder(folder))
    sealed.unlink()
    (folder / "decode-0.seals").unlink()
    seals_of(folder).add(Act.BEGUN, Content(incarnation="a1"))
    written.write_bytes(data + data[:30])
    return written


def numbers(folder: Path, life: str = "a1") -> list[object]:
    return [r["sequence"] for r in read_folder(folder) if r["incarnation"] == life]


@pytest.mark.parametrize("step", STEPS)
def test_killed_while_sealing(step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = open_segment(tmp_path)
    with monkeypatch.context() as patch:
        killed_at(step, patch)
        with pytest.raises(Killed):
            sealing.seal(lines, seals_of(tmp_path), Format.PARQUET)
    assert numbers(tmp_path) == [1, 2, 3]
    assert verify(tmp_path, RING).whole
    lived(tmp_path, "b2")
    assert numbers(tmp_path) == [1, 2, 3]
    chain = verify(tmp_path, RING)
    assert [file.state for file in chain.files] == [FileState.SEALED] * 2
    left = {path.suffix for path in tmp_path.iterdir()}
    assert left == {".parquet", ".seals"}


def test_a_last_line_that_lacks_its_end_only_is_kept(tmp_path: Path) -> None:
    lines = open_segment(tmp_path)
    whole = lines.read_bytes().rpartition(b"\n")[0]
    lines.write_bytes(whole)
    lived(tmp_path, "b2")
    assert numbers(tmp_path) == [1, 2, 3]
    assert not lines.exists()


def test_killed_while_pruning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (path,) = lived(tmp_path, "a1")
    own = seals_of(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", _killed)
        with pytest.raises(Killed):
            prune(own, own.kept().values())
    assert path.exists()
    assert [file.state for file in verify(tmp_path, RING).files] == [FileState.PRUNED]
    assert prune(own, []) == [path]
    assert not path.exists()


def _killed(*_: object, **__: object) -> None:
    raise Killed


def test_a_process_that_is_killed_leaves_what_it_had_recorded(tmp_path: Path) -> None:
    program = f"""
import os, sys
from pathlib import Path
from kvairlock.sink.contract import BEAT
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from tests.sink.keeping_made import recorder
sink = recorder(Path({str(tmp_path)!r}), "a1")
for _ in range(500):
    sink.record("beat", None, BEAT)
while sink.path.read_bytes().count(b"\\n") < 500:
    pass
print("written", flush=True)
sys.stdin.read()
"""
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"written\n"
        lived(tmp_path, "b2")
        states = {file.incarnation: file.state for file in verify(tmp_path, RING).files}
        assert states["a1"] is FileState.OPEN, "a life that goes on keeps its segment"
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert numbers(tmp_path) == list(range(1, 501))
    lived(tmp_path, "c3")
    assert numbers(tmp_path) == list(range(1, 501))
    recovered = [s for s in seals_of(tmp_path).entries() if s.act is Act.RECOVERED]
    assert [(s.content.incarnation, s.content.records) for s in recovered] == [("a1", 500)]


def test_processes_that_are_killed_anywhere_lose_and_double_nothing(tmp_path: Path) -> None:
    """Life after life with small segments, each killed after some of its records."""
    program = f"""
import sys
from pathlib import Path
from kvairlock.sink import segments
from kvairlock.sink.contract import BEAT
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from tests.sink.keeping_made import recorder
segments.MIB = 200
sink = recorder(Path({str(tmp_path)!r}), sys.argv[1])
while True:
    sink.record("beat", None, BEAT)
    print("one", flush=True)
    sys.stdin.readline()
"""
    seed = 20261201
    print("seed", seed)
    chance = random.Random(seed)
    lives = [f"l{number}" for number in range(5)]
    for life in lives:
        with subprocess.Popen(
            [sys.executable, "-c", program, life], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            for _ in range(chance.randint(3, 60)):
                assert process.stdout.readline() == b"one\n"
                process.stdin.write(b"\n")
                process.stdin.flush()
            process.send_signal(signal.SIGKILL)
        assert verify(tmp_path, RING).whole, life
    lived(tmp_path, "end")
    chain = verify(tmp_path, RING)
    assert chain.whole
    assert {file.state for file in chain.files} == {FileState.SEALED}
    for life in lives:
        found = numbers(tmp_path, life)
        assert found == list(range(1, len(found) + 1)), life
    assert {path.suffix for path in tmp_path.iterdir()} == {".parquet", ".seals"}


def test_two_lives_that_begin_at_once_seal_what_is_left_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_segment(tmp_path)
    own = seals_of(tmp_path)
    others = 0

    def meanwhile(folder: Path) -> None:
        nonlocal others
        others += 1
        recovery.recover(own, Format.PARQUET, "c3")
        keep_names_of(folder)

    monkeypatch.setattr(sealing, "keep_names_of", meanwhile)
    recovery.recover(own, Format.PARQUET, "b2")
    assert others == 1
    assert [seal.act for seal in own.entries()] == [Act.BEGUN, Act.RECOVERED, Act.ENDED]
    assert numbers(tmp_path) == [1, 2, 3]
    assert verify(tmp_path, RING).whole


def test_a_part_of_a_node_whose_name_begins_alike_is_left_alone(tmp_path: Path) -> None:
    part = tmp_path / ".decode-0-live.000001.parquet.part"
    part.write_text("x")
    lived(tmp_path, "a1", node="decode")
    assert part.exists()


def test_a_segment_is_private_while_it_is_converted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modes = []
    real = parquet.convert

    def convert(lines: bytes, file: Any, facts: dict[str, str]) -> None:
        modes.append(os.fstat(file.fileno()).st_mode & 0o777)
        real(lines, file, facts)

    monkeypatch.setattr(parquet, "convert", convert)
    lived(tmp_path, "a1")
    assert modes == [0o600]


def test_a_segment_with_a_hole_in_it_is_sealed_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The device takes half of a batch, and then works again."""
    sink = recorder(tmp_path, "a1")
    sink.record("beat", None, BEAT)
    _until_written(sink.path, 1)
    write = os.write

    def half(fd: int, data: bytes) -> int:
        monkeypatch.setattr(os, "write", failing)
        return write(fd, bytes(data)[: len(data) // 2])

    def failing(fd: int, data: bytes) -> int:
        monkeypatch.setattr(os, "write", write)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", half)
    sink.record("beat", None, BEAT)
    wait_for("the device to fail", lambda: os.write is write or None)
    sink.record("beat", None, BEAT)
    sink.close()
    assert sink.path.suffix == ".jsonl"
    (file,) = verify(tmp_path, RING).files
    assert (file.state, file.first, file.last) == (FileState.SEALED, 1, 5)
    told = {record["event"]: record["sequence"] for record in read_folder(tmp_path)}
    assert (told["evidence_lost"], told["node_closed"]) == (3, 5)
    assert 2 not in numbers(tmp_path)


def _until_written(path: Path, lines: int) -> None:
    wait_for("lines", lambda: path.read_bytes().count(b"\n") >= lines or None)


def test_where_no_new_segment_can_be_made_the_old_one_grows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "MIB", 1)
    sink = recorder(tmp_path, "a1")
    first = sink.path

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(segments.Segments, "_open", refuse)
        sink.record("beat", None, BEAT)
        _until_written(first, 1)
        sink.record("beat", None, BEAT)
        _until_written(first, 2)
        assert list(tmp_path.glob("*.parquet")) == []
    sink.record("beat", None, BEAT)
    sink.close()
    assert numbers(tmp_path) == [1, 2, 3, 4]
    assert verify(tmp_path, RING).whole
