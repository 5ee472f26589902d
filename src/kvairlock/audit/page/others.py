"""The two long lists: insufficient by reason, excluded by time and route. There may be millions.

What is listed has a bound, what is counted has none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from xml.etree.ElementTree import Element

import pyarrow as pa
import pyarrow.compute as pc

from kvairlock.audit.page.words import ABOUT, FINDS, NS_PER_S, digest, digest_on_demand, spaced, utc
from kvairlock.audit.report import Class, Report
from kvairlock.audit.selecting import by_reason, first_of, of_class
from kvairlock.audit.spans import Life
from kvairlock.pictures.markup import Inside, tag
from kvairlock.pictures.parts import folded, left_out, section, table

EXAMPLES = 3
LISTED_MAX = 200
ROWS_MAX = 400
ROUTE = ("prefill_life", "decode_life")
UNITS_S = {"hour": 3_600, "day": 86_400, "30 days": 2_592_000}
PERIODS_MAX = 72
"""Excluded requests are counted by the smallest unit of which there are no more."""


def insufficient(report: Report) -> Element:
    """Return the section of requests of which nobody can tell."""
    found = of_class(report, Class.INSUFFICIENT)
    uid, title = str(Class.INSUFFICIENT), "Insufficient evidence"
    if not found.num_rows:
        return section(uid, title, tag("p", "There is no request of which nobody can tell."))
    reasons: list[list[Inside]] = [
        [spaced(name), FINDS[name], f"{of.num_rows:,}", _examples(report, of)]
        for name, of in by_reason(found).items()
    ]
    heads = ("reason", "what it finds", "requests", "the first of them")
    return section(
        uid,
        title,
        tag("p", ABOUT[Class.INSUFFICIENT] + " None of them counts as safe."),
        table("What is missing; one request may lack several things", heads, reasons),
        folded(["The first of these requests, one by one"], _listed(report, found)),
        left_out(found.num_rows - LISTED_MAX, "Requests of this class that are not listed"),
    )


def _examples(report: Report, requests: pa.Table) -> Element:
    return tag("div", *(digest_on_demand(v.request) for v in first_of(report, requests, EXAMPLES)))


def _listed(report: Report, requests: pa.Table) -> Element:
    rows: Iterator[list[Inside]] = (
        [
            digest_on_demand(verdict.request),
            digest(verdict.tenant),
            ", ".join(map(spaced, verdict.reasons)),
            utc(verdict.since_unix_ns),
        ]
        for verdict in first_of(report, requests, LISTED_MAX)
    )
    heads = ("request", "tenant", "reasons", "first recorded, UTC")
    return table("By the time at which they began", heads, rows)


def excluded(report: Report) -> Element:
    """Return the section of excluded requests: how many, when, and on which route."""
    found = of_class(report, Class.EXCLUDED)
    uid, title = str(Class.EXCLUDED), "Excluded"
    if not found.num_rows:
        return section(uid, title, tag("p", "No request is excluded."))
    unit = _unit(found)
    counts = _counted(found, UNITS_S[unit], report.coverage.lives)
    rows = ([_period(at, unit), route, f"{n:,}"] for (at, route), n in counts[:ROWS_MAX])
    return section(
        uid,
        title,
        tag("p", f"{found.num_rows:,} requests. {ABOUT[Class.EXCLUDED]}"),
        table(f"Excluded requests by {unit} and route", ("from, UTC", "route", "requests"), rows),
        left_out(len(counts) - ROWS_MAX, "Rows that are not shown"),
    )


def _unit(found: pa.Table) -> str:
    bounds = pc.min_max(found["since_unix_ns"]).as_py()
    lasted_s = (bounds["max"] - bounds["min"]) // NS_PER_S
    fitting = (unit for unit, size_s in UNITS_S.items() if lasted_s <= size_s * PERIODS_MAX)
    return next(fitting, list(UNITS_S)[-1])


def _counted(
    found: pa.Table, size_s: int, lives: Sequence[Life]
) -> list[tuple[tuple[int, str], int]]:
    """Count requests by the beginning of their period, in seconds, and their route."""
    period = pc.divide(found["since_unix_ns"], size_s * NS_PER_S)
    placed = found.select(list(ROUTE)).append_column("period", period)
    groups = placed.group_by(["period", *ROUTE]).aggregate([([], "count_all")])
    counts: Counter[tuple[int, str]] = Counter()
    for row in groups.to_pylist():
        route = _route(row["prefill_life"], row["decode_life"], lives)
        counts[row["period"] * size_s, route] += row["count_all"]
    return sorted(counts.items())


def _route(prefill: int | None, decode: int | None, lives: Sequence[Life]) -> str:
    if prefill is None and decode is None:
        return "none: the gateway refused it"
    nodes = ("-" if life is None else lives[life].node for life in (prefill, decode))
    return "/".join(nodes)


def _period(at_unix_s: int, unit: str) -> str:
    at = datetime.fromtimestamp(at_unix_s, UTC)
    return f"{at:%Y-%m-%d %H:%M}" if unit == "hour" else f"{at:%Y-%m-%d}"
