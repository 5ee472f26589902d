"""How far a loss reaches: between two beats that say again all that a lost record could have said.

    beat   1 2 3 . . 6 7   beat   8 9 ...
    |         lost         |      covered again
    +- whoever had pages since could have been read from in what is lost

A lost record may have said that a guard is relaxed, that a drill is on, to whom pages were given,
or that somebody read pages that were not its own any more. Each beat says again how guards are set,
which failpoints were ever armed, and which leases have pages. If all of those leases are on record,
nothing that was lost has a page any more: a request that comes after such a beat can't have met it,
and one that was over before such a beat was not read in what is lost. Where no beat says so, the
loss reaches to the begin or the end of the life. A start that is not on record, and an end that is
not, are losses like others.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import ibis
from ibis import Table

from kvairlock.audit.numbering import Key
from kvairlock.audit.spans import TO_THE_END, Gap, Span

GIVEN = ("pages_allocated", "prefix_kept")
"""Events after which a lease has pages."""
_LOSSES = (Gap.EVENTS_LOST, Gap.START_UNKNOWN, Gap.CLOSE_MISSING)
_SAID = ("leases", "guards_off", "landing", "relaxed", "points")
"""What a beat must say to end a loss."""


def reaching(records: Table, spans: Iterable[Span], lives: Mapping[int, Key]) -> list[Span]:
    """Return spans of which those of losses go as far as what they could have said is not known.

    Args:
        records: The wide table.
        spans: Those of losses go from the first to the last record that is missing.
        lives: Node and incarnation of each life, by its number.
    """
    known = list(spans)
    lossy = {span.life for span in known if span.gap in _LOSSES}
    beats = _clean_beats(records, {life: lives[life] for life in lossy})
    return [_reach(span, beats[span.life]) if span.gap in _LOSSES else span for span in known]


def _reach(span: Span, beats: list[int]) -> Span:
    before, after = bisect_left(beats, span.since), bisect_right(beats, span.until)
    return replace(
        span,
        since=beats[before - 1] if before else 0,
        until=beats[after] if after < len(beats) else TO_THE_END,
    )


def _clean_beats(records: Table, lives: Mapping[int, Key]) -> dict[int, list[int]]:
    """Return the numbers of beats in each life at which every lease with pages is on record."""
    clean: dict[int, list[int]] = {life: [] for life in lives}
    if not lives:
        return clean
    numbers = {key: life for life, key in lives.items()}
    beats = _rows(records.filter(records.event == "beat"), lives, *_SAID)
    given = _rows(records.filter(records.event.isin(GIVEN)), lives, "lease")
    since = {(*_key(row), row["lease"]): row["sequence"] for row in reversed(given)}
    for row in beats:
        if None in (row[name] for name in _SAID):
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
