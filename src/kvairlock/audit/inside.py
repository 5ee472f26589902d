"""What a file holds, whatever its name says: anybody can give a file a name.

    decode-0-9f.000001.jsonl    holds decode-0 in its life 9f; records of others are left out
    notes.jsonl                 holds whatever it speaks of, and no seal vouches for any of it

Files that are sealed with the cluster's key are not looked into: their node wrote them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from kvairlock.audit.numbering import Key

CLOSE = "node_closed"
_LOOKED_AT = pa.schema(
    {"node": pa.string(), "incarnation": pa.string(), "schema": pa.int64(), "event": pa.string()}
)


@dataclass(frozen=True, slots=True)
class Inside:
    """What a file holds of one life.

    Args:
        records: How many records.
        schema: The latest schema of them.
        closes: Whether a close marker is among them.
    """

    records: int
    schema: int
    closes: bool


Lives = Mapping[Key, Inside]


def lives_in(part: Path) -> dict[Key, Inside]:
    """Return what a Parquet file holds of each life; nothing if its records have no envelope.

    Raises:
        ArrowInvalid, OSError: It can't be read.
    """
    lives: dict[Key, Inside] = {}
    with pq.ParquetFile(part) as file:
        if not set(_LOOKED_AT.names) <= set(file.schema_arrow.names):
            return {}
        for batch in file.iter_batches(columns=_LOOKED_AT.names):
            lives = together(lives, _lives_of(pa.Table.from_batches([batch])))
    return lives


def together(one: Lives, other: Lives) -> dict[Key, Inside]:
    """Return what two files, or parts of one, hold of each life."""
    both = {
        key: Inside(
            one[key].records + other[key].records,
            max(one[key].schema, other[key].schema),
            one[key].closes or other[key].closes,
        )
        for key in one.keys() & other.keys()
    }
    return {**one, **other, **both}


def _lives_of(table: pa.Table) -> Lives:
    t = table.select(_LOOKED_AT.names).cast(_LOOKED_AT)
    t = t.append_column("closes", pc.fill_null(pc.equal(t["event"], CLOSE), False))
    found = t.group_by(["node", "incarnation"]).aggregate(
        [([], "count_all"), ("schema", "max"), ("closes", "any")]
    )
    return {
        (row["node"] or "", row["incarnation"] or ""): Inside(
            row["count_all"], row["schema_max"] or 0, row["closes_any"]
        )
        for row in found.to_pylist()
    }


def only(part: Path, life: Key, into: Path) -> Path:
    """Write the records of one life of a Parquet file into another, and return that."""
    node, incarnation = life
    own = (ds.field("node") == node) & (ds.field("incarnation") == incarnation)
    scanner = ds.dataset(part).scanner(filter=own)
    with pq.ParquetWriter(into, scanner.projected_schema) as writer:
        for batch in scanner.to_batches():
            writer.write_batch(batch)
    return into
