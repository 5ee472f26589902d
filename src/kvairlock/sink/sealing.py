"""Seals a segment: its lines become a file that changes no more, and a line in the node's seals.

    lines          NAME.jsonl                                   a crash here: they are sealed later
    1 convert      NAME.jsonl  .NAME.parquet.part               the part is written anew
    2 rename       NAME.jsonl  NAME.parquet                     the lines are what counts
    3 seal line    NAME.jsonl  NAME.parquet   NODE.seals + 1    the lines are only removed
    4 remove       NAME.parquet

Each step is on the disk before the next begins, and the lines go last: a crash between any two
loses no record and leaves none twice for a reader (`kvairlock.sink.reading`).
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from kvairlock.runtime.evidence_settings import Format
from kvairlock.runtime.secrets import keep_names_of
from kvairlock.sink.naming import Segment, by_segment
from kvairlock.sink.seals import Act, Content, Seals

PART = ".part"


class _Numbered(msgspec.Struct):
    """The one field of a line that sealing needs."""

    sequence: int


def seal(lines: Path, seals: Seals, form: Format, act: Act = Act.SEALED) -> Path | None:
    """Seal a segment that nobody adds to any more.

    Args:
        lines: The segment, as lines.
        seals: Those of its node.
        form: What it becomes; lines that have no columns stay lines.
        act: Who seals it, its own life or a later one.

    Returns:
        The sealed file; None if there was no record, and so nothing to keep.

    Raises:
        OSError: There is no room, or the device fails; the lines are as they were.
    """
    segment = Segment.of(lines.name)
    if segment is None or lines.stat().st_size == 0:
        lines.unlink()
        return None
    numbers, made = _converted(lines, segment, form)
    if made != lines:
        keep_names_of(lines.parent)
    seals.add(act, _content(made, segment, numbers))
    if made != lines:
        lines.unlink()
    return made


def recover(seals: Seals, form: Format, own: str) -> list[Path]:
    """Seal what earlier lives of a node left open, and finish what they began.

    Args:
        seals: Those of the node.
        form: What open segments become.
        own: The life that does so; its own segments are left alone.

    Raises:
        OSError: There is no room, or the device fails.
    """
    for part in seals.folder.glob(f".{seals.node}-*{PART}"):
        part.unlink()
    done = {(s.content.incarnation, s.content.segment): s for s in seals.entries()}
    found = []
    for segment, lines in _left(seals, own):
        sealed = done.get((segment.incarnation, segment.number))
        if sealed is None:
            found.append(seal(lines, seals, form, Act.RECOVERED))
        elif sealed.content.file != lines.name:
            lines.unlink()
    return [path for path in found if path is not None]


def _left(seals: Seals, own: str) -> Iterator[tuple[Segment, Path]]:
    """Yield segments of other lives that are there as lines, and that nobody writes."""
    for segment, paths in by_segment(seals.folder.glob(f"{seals.node}-*.jsonl")).items():
        is_ours = segment.node == seals.node and segment.number > 0
        if is_ours and segment.incarnation != own and not is_written(paths[0]):
            yield segment, paths[0]


def is_written(lines: Path) -> bool:
    """Whether a live process holds a segment open: a stopped one is not dead."""
    file = os.open(lines, os.O_RDONLY)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(file)
    return False


def _converted(lines: Path, segment: Segment, form: Format) -> tuple[list[int], Path]:
    """Return the numbers of a segment's records, and the file that holds them from now on."""
    data = lines.read_bytes()
    if form is Format.PARQUET:
        made = _as_parquet(data, lines, segment)
        if made is not None:
            return made
    return _numbers(data), lines


def _as_parquet(data: bytes, lines: Path, segment: Segment) -> tuple[list[int], Path] | None:
    # A process imports it when its first segment is full or it ends: until then it does without.
    from kvairlock.sink import parquet

    path = lines.with_name(segment.name(Format.PARQUET))
    part = path.with_name(f".{path.name}{PART}")
    try:
        # What follows the last line's end was never written to its own.
        numbers = parquet.convert(data[: data.rfind(b"\n") + 1], part, _facts(segment))
        _keep(part)
        part.replace(path)
    except parquet.NoColumns:
        return None
    except OSError:
        part.unlink(missing_ok=True)
        raise
    return numbers, path


def _facts(segment: Segment) -> dict[str, str]:
    return {
        "node": segment.node,
        "incarnation": segment.incarnation,
        "segment": str(segment.number),
    }


def _keep(path: Path) -> None:
    """Have a file's bytes written, and make it its owner's only."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.fchmod(file, 0o600)
        os.fsync(file)
    finally:
        os.close(file)


def _numbers(data: bytes) -> list[int]:
    numbers = []
    decoder = msgspec.json.Decoder(_Numbered)
    for line in data.split(b"\n"):
        try:
            numbers.append(decoder.decode(line).sequence)
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
    return numbers


def _content(path: Path, segment: Segment, numbers: list[int]) -> Content:
    data = path.read_bytes()
    return Content(
        file=path.name,
        sha256=hashlib.sha256(data).hexdigest(),
        bytes=len(data),
        incarnation=segment.incarnation,
        segment=segment.number,
        first=min(numbers, default=0),
        last=max(numbers, default=0),
        records=len(numbers),
    )
