"""JSON lines as Parquet: each line is a record whose fields have their types, or it is counted."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from kvairlock.audit.wide import WIDE
from kvairlock.core.evidence import ENVELOPE

BATCH_RECORDS = 20_000
COUNTED_OR_LISTED = frozenset({"pages"})
"""Fields that are a number in some events: a list of one in the table."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """What a file holds that can't be judged.

    Args:
        file: Which file, empty if it is not known which.
        records: How many of its records, at least.
        reason: Why.
    """

    file: str
    records: int
    reason: str


def convert(file: Path, part: Path) -> list[Unreadable]:
    """Write the records of a file of JSON lines as Parquet; say how many lines are none.

    Args:
        file: JSON lines.
        part: The Parquet file to write.
    """
    bad = 0
    with file.open("rb") as lines, pq.ParquetWriter(part, WIDE) as writer:
        batch: list[dict[str, Any]] = []
        for line in lines:
            record = _parse(line)
            if record is None:
                bad += bool(line.strip())
                continue
            batch.append(record)
            if len(batch) == BATCH_RECORDS:
                writer.write_table(pa.Table.from_pylist(batch, schema=WIDE))
                batch.clear()
        writer.write_table(pa.Table.from_pylist(batch, schema=WIDE))
    return [Unreadable(file.name, bad, "lines that are no record")] if bad else []


def _parse(line: bytes) -> dict[str, Any] | None:
    """Return a line as a row of the wide table, or None if a field is not of its type."""
    try:
        record = json.loads(line)
    except ValueError:
        return None
    if not isinstance(record, dict) or not set(ENVELOPE) <= set(record):
        return None
    row = {name: _listed(name, value) for name, value in record.items()}
    return row if all(_fits(name, value) for name, value in row.items()) else None


def _listed(name: str, value: object) -> object:
    return [value] if name in COUNTED_OR_LISTED and isinstance(value, int) else value


def _fits(name: str, value: object) -> bool:
    """Whether a value can be what its field is; fields that nobody knows are passed over."""
    if value is None or name not in WIDE.names:
        return True
    kind = WIDE.field(name).type
    if pa.types.is_list(kind):
        return isinstance(value, list) and all(_is_one(kind.value_type, item) for item in value)
    return _is_one(kind, value)


def _is_one(kind: pa.DataType, value: object) -> bool:
    if pa.types.is_string(kind):
        return isinstance(value, str)
    return isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63
