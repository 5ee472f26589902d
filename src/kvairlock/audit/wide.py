"""The columns of evidence as one wide table: the envelope, and every field of every event once."""

from __future__ import annotations

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
"""The envelope and every field of every event, each once; what an event does not have is null.

A name that is a number in one event and a list in another (`pages`) is a list here: the number is a
list of one.
"""
