"""How far a loss reaches: up to a beat that says again all that a lost record could have said.

    1 2 3 . . 6 7   beat   8 9 ...
          lost          covered again

A lost record may have said that a guard is relaxed, that a drill is on, or to whom pages were
given. Each beat says again how guards are set, which failpoints were ever armed, and which leases
have pages. If all of those leases are on record, nothing that was lost has a page any more: a
request that comes after such a beat can't have met it. Where no beat says so, the loss reaches to
the end of the life.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import ibis
from ibis import Table

from kvairlock.audit.numbering import Key
from kvairlock.audit.spans import TO_THE_END, Gap, Span

GIVEN = ("pages_allocated", "prefix_kept")
"""Events after which a lease has pages."""


def reaching(records: Table, spans: Iterable[Span], lives: Mapping[int, Key]) -> list[Span]:
    """Return spans of which those of losses end where all that they could have said is known.

    Args:
        records: The wide table.
        spans: Those of losses end with the last record that is missing.
        lives: Node and incarnation of each life, by its number.
    """
    known = list(spans)
    lossy = {span.life for span in known if _is_loss(span)}
    beats = _clean_beats(records, {life: lives[life] for life in lossy})
    return [_reach(span, beats[span.life]) if _is_loss(span) else span for span in known]


def _is_loss(span: Span) -> bool:
    return span.gap is Gap.EVENTS_LOST and span.until < TO_THE_END


def _reach(span: Span, beats: list[int]) -> Span:
    place = bisect_right(beats, span.until)
    return replace(span, until=beats[place] if place < len(beats) else TO_THE_END)


def _clean_beats(records: Table, lives: Mapping[int, Key]) -> dict[int, list[int]]:
    """Return the numbers of beats in each life at which every lease with pages is on record."""
    clean: dict[int, list[int]] = {life: [] for life in lives}
    if not lives:
        return clean
    numbers = {key: life for life, key in lives.items()}
    beats = _rows(records.filter(records.event == "beat"), lives, "leases", "relaxed", "points")
    given = _rows(records.filter(records.event.isin(GIVEN)), lives, "lease")
    since = {(*_key(row), row["lease"]): row["sequence"] for row in reversed(given)}
    for row in beats:
        if None in (row["leases"], row["relaxed"], row["points"]):
            continue
        named = (since.get((*_key(row), lease), TO_THE_END) for lease in row["leases"])
        if all(sequence < row["sequence"] for sequence in named):
            clean[numbers[_key(row)]].append(row["sequence"])
    return clean


def _rows(records: Table, lives: Mapping[int, Key], *fields: str) -> list[dict[str, Any]]:
    wanted = [{"node": node, "incarnation": life} for node, life in lives.values()]
    t = records.semi_join(ibis.memtable(wanted), ["node", "incarnation"])
    t = t.select("node", "incarnation", "sequence", *fields).order_by("sequence")
    rows: list[dict[str, Any]] = t.to_pyarrow().to_pylist()
    return rows


def _key(row: Mapping[str, Any]) -> Key:
    return row["node"], row["incarnation"]
