"""Seals a segment: its lines become a file that changes no more, and a line in the node's seals.

    lines          NAME.jsonl                                   a crash here: they are sealed later
    1 convert      NAME.jsonl  .NAME.parquet.part               the part is written anew
    2 rename       NAME.jsonl  NAME.parquet                     the lines are what counts
    3 seal line    NAME.jsonl  NAME.parquet   NODE.seals + 1    the lines are only removed
    4 remove       NAME.parquet

Each step is on the disk before the next begins, and the lines go last: a crash between any two
loses no record and leaves none twice for a reader (`kvairlock.sink.reading`). Who seals holds the
lock of the lines, so that one at a time does.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Annotated

import msgspec

from kvairlock.core.errors import InvariantBroken
from kvairlock.runtime.evidence_settings import Format
from kvairlock.runtime.secrets import keep_names_of
from kvairlock.sink.naming import Segment
from kvairlock.sink.seal_lines import Act, Content, sha256_of
from kvairlock.sink.seals import Seals

PART = ".part"
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
_Number = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class _Numbered(msgspec.Struct):
    """The fields of a line that sealing needs."""

    sequence: _Number
    at_unix_ns: _Number


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
    if segment is None:
        raise InvariantBroken("evidence", "what is sealed is a segment")
    _part_of(lines, segment).unlink(missing_ok=True)
    data = lines.read_bytes()
    if not data:
        lines.unlink()
        return None
    made = _converted(_whole(data), lines, segment) if form is Format.PARQUET else lines
    if made != lines:
        keep_names_of(lines.parent)
    seals.add(act, _content(made, segment, data))
    if made != lines:
        lines.unlink()
    return made


def _converted(data: bytes, lines: Path, segment: Segment) -> Path:
    """Return the file that holds a segment from now on: Parquet, or the lines as they are."""
    # A process imports it when its first segment is full or it ends: until then it does without.
    from kvairlock.sink import parquet

    path, part = lines.with_name(segment.name(Format.PARQUET)), _part_of(lines, segment)
    try:
        with os.fdopen(os.open(part, _NEW, 0o600), "wb") as file:
            parquet.convert(data, file, _facts(segment))
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except parquet.NoColumns:
        part.unlink()
        return lines
    except OSError:
        part.unlink(missing_ok=True)
        raise
    return path


def _part_of(lines: Path, segment: Segment) -> Path:
    return lines.with_name(f".{segment.name(Format.PARQUET)}{PART}")


def _facts(segment: Segment) -> dict[str, str]:
    return {
        "node": segment.node,
        "incarnation": segment.incarnation,
        "segment": str(segment.number),
    }


def _whole(data: bytes) -> bytes:
    """Return the lines that were written to their end; the last may lack its newline only."""
    end = data.rfind(b"\n") + 1
    return data + b"\n" if _records(data[end:]) else data[:end]


def _content(path: Path, segment: Segment, data: bytes) -> Content:
    records = _records(data)
    numbers = [record.sequence for record in records]
    now = time.time_ns()
    return Content(
        incarnation=segment.incarnation,
        file=path.name,
        sha256=sha256_of(path),
        bytes=path.stat().st_size,
        segment=segment.number,
        first=min(numbers, default=0),
        last=max(numbers, default=0),
        records=len(numbers),
        until_unix_ns=min(max((r.at_unix_ns for r in records), default=now), now),
    )


def _records(data: bytes) -> list[_Numbered]:
    found = []
    decoder = msgspec.json.Decoder(_Numbered)
    for line in data.split(b"\n"):
        try:
            found.append(decoder.decode(line))
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
    return found
