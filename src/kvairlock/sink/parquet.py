"""Lines of evidence as Parquet and back; both are done by Arrow, in C++, beside other threads.

Only whole lines whose every field is a column of its type can be converted. What holds anything
else (a torn line in its middle, a field that nobody knows) stays the lines that it is: a conversion
that leaves something out would destroy evidence.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
import pyarrow.parquet as pq

from kvairlock.core.errors import KvairlockError
from kvairlock.core.evidence import ENVELOPE
from kvairlock.sink.columns import WIDE, as_recorded

ROWS = 131_072
"""Rows of a group: a segment has one or two, so that an audit reads it with one or two threads."""
BLOCK_BYTES_MIN = 64 * 1024


class EvidenceTorn(KvairlockError):
    """A Parquet file of evidence that can't be read; the message says which, and why."""

    code = "evidence_torn"


class NoColumns(KvairlockError):
    """Lines that are no rows of the wide table."""

    code = "evidence_no_columns"


def convert(lines: bytes, file: BinaryIO, facts: Mapping[str, str]) -> None:
    """Write lines as a Parquet file.

    Args:
        lines: Whole lines.
        file: A new file.
        facts: What the file says of itself, in its key-value metadata.

    Raises:
        NoColumns: A line is no record, or a field has no column, or not that type.
        OSError: It cannot be written.
    """
    try:
        _write(_table(lines), file, facts)
    finally:
        # The next conversion may be an hour away.
        pa.default_memory_pool().release_unused()


def _table(lines: bytes) -> pa.Table:
    options = pj.ParseOptions(explicit_schema=WIDE, unexpected_field_behavior="error")
    # One block: no line may be cut, however long it is.
    block = pj.ReadOptions(use_threads=False, block_size=max(BLOCK_BYTES_MIN, len(lines) + 1))
    try:
        read = pj.read_json(pa.BufferReader(lines), read_options=block, parse_options=options)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise NoColumns(str(error)) from None
    if read.num_rows != lines.count(b"\n"):
        raise NoColumns("rows and lines are not as many")
    if any(read[name].null_count for name in ENVELOPE):
        raise NoColumns("a line does not say who recorded it, or when")
    return read.select(WIDE.names)


def _write(table: pa.Table, file: BinaryIO, facts: Mapping[str, str]) -> None:
    said = {f"kvairlock.{name}": value for name, value in facts.items()}
    with pq.ParquetWriter(file, table.schema.with_metadata(said), compression="zstd") as writer:
        writer.write_table(table, row_group_size=ROWS)


def read(path: Path) -> list[dict[str, object]]:
    """Read the records of a Parquet file, as they were recorded.

    Raises:
        EvidenceTorn: It is no Parquet file of evidence.
        FileNotFoundError: There is none.
    """
    try:
        table = pq.read_table(path, partitioning=None)
        placed = sorted(_placed(table), key=lambda pair: pair[0])
    except (pa.ArrowInvalid, pa.ArrowKeyError, KeyError) as error:
        raise EvidenceTorn(f"{path.name} can't be read: {error}") from None
    return [record for _, record in placed]


def _placed(table: pa.Table) -> Iterator[tuple[int, dict[str, object]]]:
    """Yield records with their places: event by event, since each has few of the columns."""
    for event in pc.unique(table["event"]):
        places = pc.indices_nonzero(pc.equal(table["event"], event))
        names = as_recorded({**dict.fromkeys(table.column_names, 0), "event": event.as_py()})
        rows = table.select([name for name in table.column_names if name in names]).take(places)
        yield from zip(places.to_pylist(), map(as_recorded, rows.to_pylist()), strict=True)
