"""Where in time the spans lie that are not covered: a span itself only knows its numbers.

sequence   1 ...... 40 [41 ... 57 are missing] 58 ......     what a span says
time            10:04:02                10:05:31             what a picture needs

A border whose own record is missing is where the record beside it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ibis import Table

from kvairlock.audit.report import Coverage
from kvairlock.audit.spans import TO_THE_END, Gap, Life, Span

SPANS_MAX = 400
"""Spans that are looked up; whoever draws says how many there are more."""

Times = Mapping[tuple[str, str, int], int]


@dataclass(frozen=True, slots=True)
class Placed:
    """A span of a life that is not covered, with its place in time."""

    span: Span
    from_unix_ns: int
    to_unix_ns: int


def placed(records: Table, coverage: Coverage, spans: Sequence[Span]) -> Iterator[Placed]:
    """Yield spans with their places in time.

    Args:
        records: The wide table.
        coverage: What an audit of them covered.
        spans: Some of its spans.
    """
    lives = {life.number: life for life in coverage.lives}
    at_ns = _times(records, spans, lives) if spans else {}
    for span in spans:
        life = lives[span.life]
        yield Placed(span, _since(span, life, at_ns), _until(span, life, at_ns, coverage))


def _times(records: Table, spans: Iterable[Span], lives: dict[int, Life]) -> Times:
    """Look up when the records beside the borders of spans were made."""
    beside = {n + d for span in spans for n in (span.since, span.until) for d in (-1, 0, 1)}
    incarnations = sorted({lives[span.life].incarnation for span in spans})
    t = records.filter(
        records.incarnation.isin(incarnations) & records.sequence.isin(sorted(beside))
    )
    rows = t.select("node", "incarnation", "sequence", "at_unix_ns").to_pyarrow().to_pylist()
    return {(row["node"], row["incarnation"], row["sequence"]): row["at_unix_ns"] for row in rows}


def _since(span: Span, life: Life, at_ns: Times) -> int:
    place = (life.node, life.incarnation)
    before = at_ns.get((*place, span.since - 1), life.from_unix_ns)
    return at_ns.get((*place, span.since), before) if span.since > life.first else life.from_unix_ns


def _until(span: Span, life: Life, at_ns: Times, coverage: Coverage) -> int:
    """A span without an end goes to the end of its life; without a close marker nobody knows it."""
    if span.gap is Gap.CLOSE_MISSING:
        return coverage.to_unix_ns
    if span.until == TO_THE_END:
        return life.to_unix_ns
    place = (life.node, life.incarnation)
    after = at_ns.get((*place, span.until + 1), life.to_unix_ns)
    return at_ns.get((*place, span.until), after)
