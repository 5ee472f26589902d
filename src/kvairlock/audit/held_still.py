"""Whether evidence is still what a case was made from.

    at the audit    decode-0-9f.000002.jsonl, 4 of its records: digest of bytes, digest of records
    it has grown    decode-0-9f.000002.jsonl     its first bytes are the same
    it was sealed   decode-0-9f.000002.parquet   its first 4 records are the same

A node that runs on writes and seals. Neither changes what a case says of the time before it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from kvairlock.audit.cases import Case, CaseExpired, File
from kvairlock.audit.lines import records_of
from kvairlock.sink import parquet
from kvairlock.sink.naming import Segment
from kvairlock.sink.reading import LINES, PARQUET

CHUNK_BYTES = 2**20


def held(path: Path) -> File:
    """Return a file of evidence as it is now.

    Args:
        path: The file; if its lines were sealed since it was listed, what they were sealed into.
    """
    try:
        size_bytes = path.stat().st_size
        records, content = _content_of_lines(path, size_bytes)
        return File(str(path.absolute()), size_bytes, _sha256(path, size_bytes), records, content)
    except FileNotFoundError:
        if path.suffix != LINES:
            raise
        return held(path.with_suffix(PARQUET))


def unchanged(case: Case) -> None:
    """Make sure that the evidence of a case is still what it was made from.

    Raises:
        CaseExpired: A file is gone, or is another one.
    """
    for file in case.evidence:
        path = Path(file.path)
        try:
            same = _sha256(path, file.size_bytes) == file.sha256
        except FileNotFoundError:
            same = _is_sealed_since(file, path.with_suffix(PARQUET))
        if not same:
            raise CaseExpired(_expired(file, "is not what it was"))


def _is_sealed_since(file: File, sealed: Path) -> bool:
    if file.content and not file.records:
        return True  # nothing was in it yet, and a segment without records is not kept
    if not file.content or not sealed.is_file():
        raise CaseExpired(_expired(file, "is not there any more"))
    try:
        first = parquet.read(sealed)[: file.records]
        return _digest(first) == (file.records, file.content)
    except parquet.EvidenceTorn:
        return False


def _content_of_lines(path: Path, size_bytes: int) -> tuple[int, str]:
    """Count and digest the records of a segment that may be sealed later; of others there is none.

    A last line without its end is none yet.
    """
    segment = Segment.of(path.name)
    if path.suffix != LINES or segment is None or not segment.number:
        return 0, ""
    with path.open("rb") as file:
        return _digest(row for row in records_of(file, size_bytes) if row is not None)


def _digest(records: Iterable[Mapping[str, Any]]) -> tuple[int, str]:
    digest, count = hashlib.sha256(), 0
    for record in records:
        said = {name: value for name, value in record.items() if value is not None}
        digest.update(msgspec.json.encode(said, order="sorted") + b"\n")
        count += 1
    return count, digest.hexdigest()


def _sha256(path: Path, size_bytes: int) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while size_bytes and (data := file.read(min(size_bytes, CHUNK_BYTES))):
            digest.update(data)
            size_bytes -= len(data)
    return digest.hexdigest()


def _expired(file: File, what: str) -> str:
    return f"the case has expired: {file.path} {what}; audit again and open another case"
