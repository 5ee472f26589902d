"""The stories of affected requests: the few records that say what happened to their pages.

    affected requests            --> their own records
    whose pages they could read  --+
    who had their pages next     --+-> the cast: its records on the same nodes

Each is one pass over the records that compares names or numbers, so the millions of records that
are about others stay where they are. Everything has a bound, and what is left out is counted.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import ibis
from ibis import Table

from kvairlock.audit.placing import SPANS_MAX, Placed, placed
from kvairlock.audit.report import Class, Exposure, Report, Verdict
from kvairlock.audit.tables import Evidence
from kvairlock.core.terms import Role

Row = dict[str, Any]
HELD = ibis.schema({"reader": "string", "incarnation": "string", "page": "int64", "since": "int64"})

REQUESTS_MAX = 20
OTHERS_MAX = 12
"""Other requests in the story of one: those that met it on most pages."""

OF_PROCESSES = ("node_started", "node_closed", "write_repeated")
"""Events without a request that say how long pages were held, and how they could be reached."""


@dataclass(frozen=True, slots=True)
class Told:
    """What the evidence says about the pages of one affected request.

    Args:
        verdict: What the audit makes of it.
        exposures: Whose pages it could have read.
        others: Requests that had pages of it before or after, and whose records are here too.
        others_left_out: Requests that had some as well, and whose records are not.
        records: Of the request, of the others on the same nodes, and how those nodes started.
    """

    verdict: Verdict
    exposures: tuple[Exposure, ...]
    others: tuple[str, ...]
    others_left_out: int
    records: tuple[Row, ...]

    @property
    def own(self) -> tuple[Row, ...]:
        """The records about the request itself."""
        return tuple(r for r in self.records if r.get("request") == self.verdict.request)


@dataclass(frozen=True, slots=True)
class Story:
    """What an audit can tell beyond its verdicts.

    Args:
        told: Of affected requests, by the time at which they began.
        left_out: Affected requests that are not told of.
        placed: Spans that are not covered.
        spans_left_out: Spans whose place in time was not looked up.
    """

    told: tuple[Told, ...]
    left_out: int
    placed: tuple[Placed, ...]
    spans_left_out: int


def story_of(evidence: Evidence, report: Report, requests_max: int = REQUESTS_MAX) -> Story:
    """Fetch what there is to tell about the affected requests of a report.

    Args:
        evidence: What was audited.
        report: What came of it.
        requests_max: How many of the affected requests to tell of.
    """
    verdicts = list(islice(report.verdicts(Class.AFFECTED), requests_max))
    spans = report.coverage.spans
    return Story(
        told=tuple(_told(evidence.records, report, verdicts)) if verdicts else (),
        left_out=report.counts()[Class.AFFECTED] - len(verdicts),
        placed=tuple(placed(evidence.records, report.coverage, spans[:SPANS_MAX])),
        spans_left_out=max(0, len(spans) - SPANS_MAX),
    )


def _told(records: Table, report: Report, verdicts: Sequence[Verdict]) -> Iterator[Told]:
    named = {verdict.request for verdict in verdicts}
    own = _fetched(records, records.request.isin(sorted(named)))
    nodes = {_life(row) for row in own}
    after = _next_owners(records, own)
    casts = {v.request: _cast(v, report, after[v.request]) for v in verdicts}
    others = {other for cast in casts.values() for other in cast[:OTHERS_MAX]} - named
    incarnations = sorted({incarnation for _, incarnation in nodes})
    there = records.incarnation.isin(incarnations)
    about = records.event.isin(OF_PROCESSES) | records.request.isin(sorted(others))
    fetched = [*own, *_fetched(records, there & about)]
    for verdict in verdicts:
        yield _one(verdict, report, casts[verdict.request], fetched)


def _one(verdict: Verdict, report: Report, cast: Sequence[str], fetched: Iterable[Row]) -> Told:
    wanted = {verdict.request, *cast[:OTHERS_MAX]}
    about = [row for row in fetched if row.get("request", verdict.request) in wanted]
    lives = {_life(row) for row in about if row.get("request") == verdict.request}
    windows = {row["window"] for row in about if "request" in row and "window" in row}
    there = (row for row in about if _life(row) in lives)
    return Told(
        verdict=verdict,
        exposures=tuple(e for e in report.exposures if e.request == verdict.request),
        others=tuple(cast[:OTHERS_MAX]),
        others_left_out=max(0, len(cast) - OTHERS_MAX),
        records=tuple(r for r in there if "request" in r or r.get("window", "") in {"", *windows}),
    )


def _fetched(records: Table, wanted: Any) -> list[Row]:
    """Fetch records as they were recorded: without the fields of other events.

    Where they are is found first, in few columns. All the others are read only around there.
    """
    places = records.filter(wanted).select("incarnation", "sequence").distinct().to_pyarrow()
    if not places.num_rows:
        return []
    t = records.filter(
        records.incarnation.isin(places["incarnation"].unique().to_pylist())
        & records.sequence.isin(places["sequence"].unique().to_pylist())
        & wanted
    )
    rows: list[Row] = t.order_by("node", "incarnation", "sequence").to_pyarrow().to_pylist()
    return [{name: v for name, v in row.items() if v is not None} for row in rows]


def _life(row: Row) -> tuple[str, str]:
    return row["node"], row["incarnation"]


def _cast(verdict: Verdict, report: Report, after: Counter[str]) -> list[str]:
    """Return who had pages of a request before or after it, who had most of them first."""
    pages = Counter(after)
    for exposure in report.exposures:
        if exposure.request == verdict.request:
            pages[exposure.other] += len(exposure.pages)
    del pages[verdict.request]
    return sorted(pages, key=lambda other: (-pages[other], other))


def _next_owners(records: Table, own: Iterable[Row]) -> defaultdict[str, Counter[str]]:
    """Count how many of its pages on decode each request's next owners had."""
    held = [
        {
            "reader": row["request"],
            "incarnation": row["incarnation"],
            "page": page,
            "since": row["sequence"],
        }
        for row in own
        if row["event"] == "pages_allocated" and row["role"] == Role.DECODE
        for page in row["pages"]
    ]
    after: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for row in _first_after(records, held) if held else ():
        after[row["reader"]][row["other"]] += row["pages"]
    return after


def _first_after(records: Table, held: Sequence[Row]) -> list[Row]:
    """Find the first allocation of each page after it was held."""
    later = (records.event == "pages_allocated") & (
        records.sequence > min(row["since"] for row in held)
    )
    t = records.filter(
        later & records.incarnation.isin(sorted({row["incarnation"] for row in held}))
    )
    t = t.select("incarnation", "sequence", other=t.request, page=t.pages.unnest())
    t = t.join(ibis.memtable(held, schema=HELD), ["incarnation", "page"])
    t = t.filter(t.sequence > t.since)
    first = t.group_by("reader", "incarnation", "page").aggregate(other=t.other.argmin(t.sequence))
    counted = first.group_by("reader", "other").aggregate(pages=first.count())
    rows: list[Row] = counted.to_pyarrow().to_pylist()
    return rows
