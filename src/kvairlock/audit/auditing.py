"""The audit from end to end: evidence in, one verdict per request out.

    records -+-> completeness -------------------------> spans --+
             +-> chains (a row per request) ---------------------+-> rules -> reasons, one number
             +-> tenures -> dealings, broken pairs -> facts -----+

Each step is an Ibis expression over the one before. What is needed twice is computed once and kept
by the engine that holds the records, whichever that is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import ibis
import pyarrow as pa
from ibis import Table
from ibis.util import gen_name

from kvairlock.audit.chains import ROLES, chains, of_requests
from kvairlock.audit.completeness import Completeness, complete
from kvairlock.audit.drilled import labelled
from kvairlock.audit.exposure import former_owners
from kvairlock.audit.report import Report, report
from kvairlock.audit.rules import AFFECTING, reasons
from kvairlock.audit.spans import TO_THE_END, Gap, Life, Span
from kvairlock.audit.successions import broken_pairs
from kvairlock.audit.suspicions import Worth, sightings
from kvairlock.audit.tables import Evidence
from kvairlock.audit.tenures import dealings, ends, moves, tenures
from kvairlock.core.terms import Role

_NUMBERS = ("reads_own", "rulings_own", "ranges_own")
_FLAGS = ("unchecked", "let_pass", "reduced", "unverified", "unsaid", "unlisted")
MET = ("request", "other", "life", "page", "generation")
_CLASSIFIED = ("request", "tenant", "reasons", "since_unix_ns", *(f"{r}_life" for r in ROLES))


def audit(evidence: Evidence, covered: Completeness | None = None) -> Report:
    """Classify every request that evidence names.

    Args:
        evidence: What was opened.
        covered: What of it is complete, if somebody who had all of it has stated that; else it is
            found out.
    """
    covered = covered or complete(evidence.records, evidence.seals.broken)
    told = of_requests(evidence.records, covered.lives)
    with ExitStack() as kept:

        def keep(table: Table) -> Table:
            return kept.enter_context(_kept(table))

        with _kept(moves(told)) as moved:
            held = keep(tenures(moved))
            pairs = keep(broken_pairs(held, ends(moved)))
        # One after the other: two such passes at once do not fit into memory.
        chained, dealt = keep(chains(told)), keep(dealings(told, held))
        counted = _joined(_numbered(chained), dealt)
        worth = _worth(counted, pairs, covered)
        seen = keep(sightings(evidence.records, told, held, pairs, worth))
        marked = keep(_classified(_rows(counted, seen, covered)))
        classified = labelled(marked.to_pyarrow(), evidence.records)
        met = _met(seen, _affected(marked), held)
    return report(evidence, covered, classified, met)


def _worth(counted: Table, pairs: Table, covered: Completeness) -> Worth:
    """Ask where there is anything to look for."""
    own = counted.reads_own.fill_null(0)
    asked = counted.aggregate(
        strays=(counted.decode_read_started > own).sum(),
        prefixes=counted.prefill_prefix_reused.sum(),
    )
    found = asked.to_pyarrow().to_pylist()[0]
    direct = {span.life for span in covered.spans if span.gap is Gap.LANDING_DIRECT}
    return Worth(
        pairs=pairs.count().to_pyarrow().as_py(),
        strays=found["strays"] or 0,
        prefixes=found["prefixes"] or 0,
        direct=tuple(sorted(direct)),
    )


@contextmanager
def _kept(table: Table) -> Iterator[Table]:
    """Have the engine compute a table now, and keep it for as long as it is needed.

    A table, not Ibis's cache: on Spark that is only a plan, and plans of plans grow without end.
    """
    engine = table.get_backend()
    name = gen_name("kvairlock")
    # Spark says that it has temporary tables, and has only views.
    kept = engine.create_table(name, table, temp=engine.name != "pyspark")
    try:
        yield kept
    finally:
        engine.drop_table(name, force=True)


def _classified(rows: Table) -> Table:
    return rows.mutate(reasons=reasons(rows)).select(*_CLASSIFIED)


def _affected(marked: Table) -> Table:
    return marked.filter((marked.reasons & AFFECTING) != 0)


def _met(seen: Table, affected: Table, held: Table) -> pa.Table:
    """Return whose pages affected requests could have read, a row per page."""
    named = seen.filter(seen.other.notnull()).semi_join(affected, "request")
    named = named.select(*MET)
    former = former_owners(affected.select("request", "decode_life"), held)
    return named.union(former.select(*MET)).distinct().to_pyarrow()


def _numbered(chained: Table) -> Table:
    """Count how many tenants each request is recorded of: one row each, so nearly always one."""
    rows = chained.group_by("request").aggregate(namesakes=chained.count())
    row = _joined(chained, rows.filter(rows.namesakes > 1))
    return row.mutate(namesakes=row.namesakes.fill_null(1))


def _rows(counted: Table, seen: Table, covered: Completeness) -> Table:
    """Return one row per request with everything that rules read."""
    facts = _together(seen.select("request", bit=seen.fact), "facts")
    row = _joined(_joined(counted, facts), _gaps(counted, covered.spans, covered.lives))
    filled: dict[str, Any] = {name: row[name].fill_null(0) for name in (*_NUMBERS, "facts", "gaps")}
    filled |= {name: row[name].fill_null(False) for name in _FLAGS}
    return row.mutate(**filled)


def _joined(row: Table, more: Table) -> Table:
    return row.left_join(more, "request").drop("request_right")


def _gaps(chained: Table, spans: Iterable[Span], lives: Iterable[Life]) -> Table:
    """Return a row per request that some span concerns, with a bit for each kind of gap.

    What prefill's evidence lacks concerns a request only if it was admitted: else nothing that came
    from there was read.
    """
    known = [
        {
            "life": span.life,
            "since": span.since,
            "until": span.until,
            "bit": 1 << tuple(Gap).index(span.gap),
            "prefill": span.route.partition("/")[0],
            "decode": span.route.partition("/")[2],
        }
        for span in spans
    ]
    numbers = {"life": "int32", "since": "int64", "until": "int64", "bit": "int64"}
    schema = ibis.schema(numbers | {"prefill": "string", "decode": "string"})
    table, names = ibis.memtable(known, schema=schema), _names(lives)
    parts = [_gaps_of(chained, role, table, names) for role in ROLES]
    return _together(ibis.union(*parts), "gaps")


def _together(bits: Table, name: str) -> Table:
    """Return the bits of each request as one number: a sum of different bits, on any engine."""
    t = bits.distinct()
    return t.group_by("request").aggregate(**{name: t.bit.sum().cast("int64")})


def _names(lives: Iterable[Life]) -> Table:
    """Return the node of each life."""
    known = [{"decode_life": life.number, "decode_node": life.node} for life in lives]
    return ibis.memtable(
        known, schema=ibis.schema({"decode_life": "int32", "decode_node": "string"})
    )


def _gaps_of(chained: Table, role: Role, spans: Table, names: Table) -> Table:
    t = chained.filter(chained.admitted > 0) if role is Role.PREFILL else chained
    unfinished = (t.decode_request_ended == 0) & (role is not Role.GATEWAY)
    t = t.select(
        "request",
        "peer",
        "decode_life",
        life=t[f"{role}_life"],
        first=t[f"{role}_first_seq"],
        last=unfinished.ifelse(TO_THE_END, t[f"{role}_last_seq"]),
    )
    t = t.join(spans, "life")
    t = t.filter((t.since <= t.last) & (t.until >= t.first)).left_join(names, "decode_life")
    # Where it went is not always known: then it may have gone that way.
    by_prefill = (t.prefill == t.peer).fill_null(True)
    by_decode = (t.decode == t.decode_node).fill_null(True)
    return t.filter((t.prefill == "") | (by_prefill & by_decode)).select("request", "bit")
