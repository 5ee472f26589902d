"""When pseudonyms go over to the next key, a request in flight is insufficient, never excluded."""

from __future__ import annotations

from ibis.backends import BaseBackend

from kvairlock.audit.histories import history
from kvairlock.audit.report import Class
from kvairlock.audit.synthetic import Row
from kvairlock.core.evidence import EVENTS, Sensitivity
from tests.audit.auditing_made import audited

SEED = 2029


def gone_over(rows: list[Row], at_unix_ns: int) -> list[Row]:
    """The same records where every digest from a moment on is of the next period's key."""
    return [_renamed(row) if row["at_unix_ns"] >= at_unix_ns else row for row in rows]


def _renamed(row: Row) -> Row:
    fields = EVENTS[row["event"]]
    named = {n for n, field in fields.items() if field.sensitivity is Sensitivity.PSEUDONYM}
    return row | {n: f"ff{row[n][2:]}" for n in named if row.get(n)}


def test_whoever_is_in_flight_at_the_boundary_is_not_excluded(engine: BaseBackend) -> None:
    rows = list(history(SEED).rows)
    spans: dict[str, list[int]] = {}
    for row in rows:
        if "request" in row:
            spans.setdefault(row["request"], []).append(row["at_unix_ns"])
    before = audited(engine, rows)
    affected = {verdict.request for verdict in before.verdicts(Class.AFFECTED)}
    middle = sorted(min(times) + 1 for times in spans.values())[len(spans) // 2]
    report = audited(engine, gone_over(rows, middle))
    excluded = {verdict.request for verdict in report.verdicts(Class.EXCLUDED)}
    in_flight = {r for r, times in spans.items() if min(times) < middle <= max(times)}
    assert in_flight
    assert not {name for r in in_flight for name in (r, f"ff{r[2:]}")} & excluded
    assert not {f"ff{r[2:]}" for r in affected} & excluded
    assert excluded, "whoever was not in flight is judged as before"
