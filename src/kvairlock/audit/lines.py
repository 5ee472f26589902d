"""JSON lines as Parquet: each line is a record whose fields have their types, or it is counted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from kvairlock.core.evidence import ENVELOPE, RENAMED
from kvairlock.sink.columns import WIDE

BATCH_RECORDS = 20_000
LINE_BYTES_MAX = 16 * 2**20
"""A record that lists a million pages with their generations is shorter."""


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
        for record in records_of(lines):
            if record is None:
                bad += 1
                continue
            batch.append(record)
            if len(batch) == BATCH_RECORDS:
                writer.write_table(pa.Table.from_pylist(batch, schema=WIDE))
                batch.clear()
        writer.write_table(pa.Table.from_pylist(batch, schema=WIDE))
    return [Unreadable(file.name, bad, "lines that are no record")] if bad else []


def records_of(lines: BinaryIO, size_bytes: int | None = None) -> Iterator[dict[str, Any] | None]:
    """Yield each line as a row of the wide table, None for one that is no record.

    Args:
        lines: JSON lines.
        size_bytes: How much of them is meant, up to the last line that ends there; None is all.
    """
    read = 0
    while line := lines.readline(LINE_BYTES_MAX):
        read += len(line)
        if size_bytes is not None and (read > size_bytes or not line.endswith(b"\n")):
            return
        if len(line) == LINE_BYTES_MAX and not line.endswith(b"\n"):
            _pass_over(lines)
        if line.strip():
            yield _parse(line)


def _pass_over(lines: BinaryIO) -> None:
    """Read on to the end of a line that is longer than any record."""
    while (rest := lines.readline(LINE_BYTES_MAX)) and not rest.endswith(b"\n"):
        pass


def _parse(line: bytes) -> dict[str, Any] | None:
    """Return a line as a row of the wide table, or None if a field is not of its type."""
    try:
        record = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if not isinstance(record, dict) or not set(ENVELOPE) <= set(record):
        return None
    row = _as_now(record)
    return row if all(_fits(name, value) for name, value in row.items()) else None


def is_record(row: Mapping[str, object]) -> bool:
    """Whether a row has its whole envelope, and all that is in it is of the type of its field."""
    whole = all(row.get(name) is not None for name in ENVELOPE)
    return whole and all(_fits(name, value) for name, value in row.items())


def _as_now(record: dict[str, Any]) -> dict[str, Any]:
    """Return a record of an earlier schema with its fields as they are called now."""
    schema, event = record["schema"], record["event"]
    known = isinstance(schema, int) and isinstance(event, str)
    names = RENAMED.get((schema, event), {}) if known else {}
    return {names.get(name, name): value for name, value in record.items()}


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
