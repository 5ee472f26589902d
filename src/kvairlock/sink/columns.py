"""The columns of evidence as one wide table: the envelope, and every field of every event once.

    {"event": "beat", "records": 7, ...}      a line holds what its event has
    | event | records | pages | ... |         a row has a column for everything; the rest is null

Parquet files have these columns, and what an audit computes on has them.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from kvairlock.core.evidence import ENVELOPE, EVENTS, Kind

_ARROW = {
    Kind.TEXT: pa.string(),
    Kind.INTEGER: pa.int64(),
    Kind.INTEGERS: pa.list_(pa.int64()),
    Kind.TEXTS: pa.list_(pa.string()),
}

_LISTS = frozenset({Kind.INTEGERS, Kind.TEXTS})


def _wide() -> pa.Schema:
    kinds: dict[str, Kind] = {}
    for row in (ENVELOPE, *EVENTS.values()):
        for name, field in row.items():
            if kinds.get(name) not in _LISTS:
                kinds[name] = field.kind
    return pa.schema([(name, _ARROW[kind]) for name, kind in kinds.items()])


WIDE: pa.Schema = _wide()
"""The envelope and every field of every event, each once; what an event does not have is null."""


def as_recorded(row: Mapping[str, object]) -> dict[str, object]:
    """Return a row as the record that it was: without the columns of other events.

    Args:
        row: A row of the wide table; what its own event has stays, known or not.
    """
    own = EVENTS.get(str(row["event"]))
    if own is None:
        return {name: value for name, value in row.items() if value is not None}
    return {name: value for name, value in row.items() if name in ENVELOPE or name in own}
