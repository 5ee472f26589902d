"""One request, explained: all that is on record of it, in order, and what the audit makes of that.

its records --+-> the way that it took -> what is missing
              +-> its verdicts on decode -> which checks ran, which did not
its processes -> what was promised, and what of their evidence is not covered
the audit -----> verdict, reasons, whose pages it could have read
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ibis import Table

from kvairlock.audit.chain_steps import Way, missing_of, way_of
from kvairlock.audit.report import Exposure, Report, Verdict
from kvairlock.audit.spans import Life, Span
from kvairlock.audit.tables import Evidence
from kvairlock.audit.tenures import DEMANDED
from kvairlock.core.checks import CheckPolicy
from kvairlock.core.evidence import ENVELOPE, EVENTS
from kvairlock.core.guards import Guard

Record = dict[str, Any]

PROMISES = ("commitment_checked", "capacity_reported", "guards_changed", "node_started")
"""Records about a process that say under which promise and guards a request was taken."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """What there is to say of one request.

    Args:
        verdict: What the audit makes of it.
        way: How it went.
        promises: What its processes had said last before it, about capacity and guards.
        records: All its own records, in order.
        missing: What should be on record and is not.
        checks: Which checks ran.
        unchecked: Which did not, though they must.
        lives: The processes that it was on.
        spans: What of their evidence is not covered.
        exposures: Whose pages it could have read, if it is affected.
    """

    verdict: Verdict
    way: Way
    promises: tuple[Record, ...]
    records: tuple[Record, ...]
    missing: tuple[str, ...]
    checks: tuple[str, ...]
    unchecked: tuple[str, ...]
    lives: tuple[Life, ...]
    spans: tuple[Span, ...]
    exposures: tuple[Exposure, ...]

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return asdict(self)


def explain(evidence: Evidence, report: Report, request: str) -> Explanation | None:
    """Put together what there is of one request; None if no record names it.

    Args:
        evidence: What was audited.
        report: What the audit says.
        request: The request's digest.
    """
    verdict = report.of(request)
    if verdict is None:
        return None
    records = in_order(evidence.records.filter(evidence.records.request == request))
    lives = _lives(records, report.coverage.lives)
    numbers = {life.number for life in lives}
    ran, lacking = _checks(records)
    return Explanation(
        verdict=verdict,
        way=way_of(records),
        promises=_promises(evidence.records, records, lives),
        records=tuple(records),
        missing=missing_of(records),
        checks=ran,
        unchecked=lacking,
        lives=lives,
        spans=tuple(span for span in report.coverage.spans if span.life in numbers),
        exposures=tuple(e for e in report.exposures if e.request == request),
    )


def in_order(rows: Table) -> list[Record]:
    """Return records as they were written, by the clocks of their writers."""
    found = [plain(row) for row in rows.to_pyarrow().to_pylist()]
    return sorted(found, key=lambda r: (r["at_unix_ns"], r["node"], r["sequence"]))


def plain(row: Record) -> Record:
    """Return a row of the wide table with the fields that its event has, and no others."""
    fields = EVENTS[row["event"]]
    return {name: row[name] for name in (*ENVELOPE, *fields)}


def _lives(records: Iterable[Record], lives: Sequence[Life]) -> tuple[Life, ...]:
    named = {(record["node"], record["incarnation"]) for record in records}
    return tuple(life for life in lives if (life.node, life.incarnation) in named)


def _promises(records: Table, own: Sequence[Record], lives: Iterable[Life]) -> tuple[Record, ...]:
    """Return what each process said last of itself before it dealt with the request."""
    said = records.filter(records.event.isin(PROMISES))
    nodes = [life.incarnation for life in lives]
    found = in_order(said.filter(said.incarnation.isin(nodes))) if nodes else []
    last: dict[tuple[str, str], Record] = {}
    for record in found:
        first = min(r["sequence"] for r in own if r["incarnation"] == record["incarnation"])
        if record["sequence"] < first:
            last[record["incarnation"], record["event"]] = record
    return tuple(last.values())


def _checks(records: Iterable[Record]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return which checks ran on decode, and which did not though they must."""
    verdicts = [record for record in records if record["event"] == "verdict"]
    ran = dict.fromkeys(check for v in verdicts for check in v["checks"] or ())
    admitted = [v for v in verdicts if v["outcome"] == "admitted"]
    full = any(v["policy"] == CheckPolicy.FULL for v in admitted)
    must = [str(g) for g in (*DEMANDED, *([Guard.INTEGRITY] if full else []))] if admitted else []
    return tuple(ran), tuple(check for check in must if check not in ran)
