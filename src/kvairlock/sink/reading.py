"""Reads evidence as it was recorded, whatever form it is kept in: open or sealed, lines or Parquet.

A torn line is passed over, and shows as a gap in the numbers. While a segment is being sealed it is
there twice, or for a moment under another name; it is read once, as what its node's seals name: a
Parquet file that they do not name yet may be anybody's, and the lines beside it are what counts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from kvairlock.core.errors import KvairlockError
from kvairlock.core.evidence import ENVELOPE, SCHEMAS_READ
from kvairlock.sink import seals
from kvairlock.sink.naming import Segment

LINES, PARQUET = ".jsonl", ".parquet"


class SchemaUnknown(KvairlockError):
    """Evidence of a schema that is not understood here; the message says which."""

    code = "evidence_schema_unknown"


def files(folder: Path) -> list[Path]:
    """Return the files of evidence in a folder, each segment once, in the order of their names.

    Args:
        folder: Where processes record. Where a segment is there as lines and as Parquet, the one
            that is sealed counts, and the lines if neither is.
    """
    found: dict[str, Path] = {}
    for path in all_files(folder):
        if path.stem not in found or _is_sealed(path):  # .parquet sorts behind .jsonl
            found[path.stem] = path
    return list(found.values())


def all_files(folder: Path) -> list[Path]:
    """Return every file of evidence in a folder, in the order of their names."""
    paths = sorted(folder.iterdir()) if folder.is_dir() else []
    kinds = (LINES, PARQUET)
    return [p for p in paths if p.suffix in kinds and p.name[0] != "." and p.is_file()]


def _is_sealed(path: Path) -> bool:
    segment = Segment.of(path.name)
    return segment is not None and seals.names(path, segment.node)


def read_folder(folder: Path) -> list[dict[str, object]]:
    """Read all evidence of a folder: file by file, each in the order in which it was recorded.

    Args:
        folder: Where processes record, or have recorded.

    Raises:
        SchemaUnknown: A record has a schema that is not read here.
        EvidenceTorn: A Parquet file can't be read.
    """
    return [record for path in files(folder) for record in read(path)]


def read_lives(folder: Path) -> list[list[dict[str, object]]]:
    """Read all evidence of a folder: a list for each life, in the order of its numbers.

    Args:
        folder: Where processes record, or have recorded.

    Raises:
        SchemaUnknown: A record has a schema that is not read here.
        EvidenceTorn: A Parquet file can't be read.
    """
    lives: dict[tuple[object, object], list[dict[str, object]]] = {}
    for record in read_folder(folder):
        lives.setdefault((record["node"], record["incarnation"]), []).append(record)
    return [sorted(life, key=_sequence) for life in lives.values()]


def _sequence(record: dict[str, object]) -> int:
    sequence = record["sequence"]
    return sequence if isinstance(sequence, int) else 0


def read(path: Path) -> list[dict[str, object]]:
    """Read a file of evidence, of this release or of an earlier one.

    Args:
        path: JSON lines or Parquet. Lines that were sealed since they were listed are read there.

    Raises:
        SchemaUnknown: A record has a schema that is not read here: its fields may mean anything.
        EvidenceTorn: A Parquet file can't be read.
    """
    try:
        records = _records(path)
    except FileNotFoundError:
        path = path.with_suffix(PARQUET)
        records = _records(path)
    for record in records:
        if record["schema"] not in SCHEMAS_READ:
            known = ", ".join(map(str, SCHEMAS_READ))
            raise SchemaUnknown(f"{path.name} is of schema {record['schema']!r}; read are {known}")
    return records


def _records(path: Path) -> list[dict[str, object]]:
    if path.suffix == PARQUET:
        # Where there are only lines, nobody waits for a library of 50 MiB.
        from kvairlock.sink import parquet

        return parquet.read(path)
    return list(parsed(path.read_bytes()))


def parsed(lines: bytes) -> Iterator[dict[str, object]]:
    """Yield the records among lines; what is none is passed over."""
    for line in lines.split(b"\n"):
        with suppress(ValueError):
            record = json.loads(line)
            if isinstance(record, dict) and set(ENVELOPE) <= set(record):
                yield record
