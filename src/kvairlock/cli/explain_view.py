"""One request's story as text: step by step, who recorded what when, and what follows from it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kvairlock.audit.explaining import Explanation, Record
from kvairlock.audit.report import Class
from kvairlock.audit.spans import TO_THE_END
from kvairlock.cli.audit_view import at, reasons_found
from kvairlock.cli.output import plain, say, table
from kvairlock.core.evidence import ENVELOPE, EVENTS
from kvairlock.pictures.names import page_ranges

MS = 10**6
RANGES_MAX = 6
PAGES = frozenset({"pages", "verified", "source_pages"})
UNSAID = frozenset({*ENVELOPE, "tenant", "request"})
MEANS = {
    Class.AFFECTED: "records show that it read, or could have read, what was not its own",
    Class.INSUFFICIENT: "it is neither shown to be affected nor to be safe",
    Class.EXCLUDED: "every link of its chain is on record, and nothing speaks against it",
}

_STEPS = ("ms", "node", "#", "event", "what it says")


def show(told: Explanation, number: int) -> None:
    """Print the explanation of one attempt.

    Args:
        told: The explanation.
        number: Which attempt it is, 0 if that is not known.
    """
    verdict = told.verdict
    which = f" (attempt {number})" if number else ""
    say(f"request {verdict.request}{which} of tenant {verdict.tenant}")
    say(f"verdict: {verdict.verdict}, {verdict.grade}: {MEANS[verdict.verdict]}")
    for name in verdict.reasons:
        say(f"  {name}: {reasons_found([name])}")
    say(f"way: {told.way}\n")
    _show_promises(told.promises)
    since = verdict.since_unix_ns
    say(f"records, in milliseconds since {at(since)} UTC")
    table(_STEPS, [_step(record, since) for record in told.records], ("#",))
    say("")
    for line in _findings(told):
        say(plain(line))


def says(record: Mapping[str, Any]) -> str:
    """Return what a record says beside who, when and about whom."""
    known = [name for name in EVENTS.get(record["event"], ()) if name in record]
    names = dict.fromkeys([*known, *record])
    fields = ((name, record[name]) for name in names if name not in UNSAID)
    words = (f"{name} {_value(name, value)}" for name, value in fields if _is_said(value))
    return ", ".join(words)


def _is_said(value: object) -> bool:
    return value is not None and value not in ("", [])


def _value(name: str, value: Any) -> str:
    if not isinstance(value, list):
        return str(value)
    if name in PAGES:
        return page_ranges(value, RANGES_MAX).removeprefix("pages ").removeprefix("page ")
    if all(isinstance(one, int) for one in value):
        low, high = min(value), max(value)
        return str(low) if low == high else f"{low} to {high}"
    return " ".join(map(str, value))


def _show_promises(promises: Sequence[Record]) -> None:
    if promises:
        say("before it, its processes had said")
        rows = [(r["node"], str(r["sequence"]), r["event"], says(r)) for r in promises]
        table(("node", "#", "event", "what it says"), rows, ("#",))
        say("")


def _step(record: Record, since_unix_ns: int) -> Sequence[str]:
    return (
        f"{(record['at_unix_ns'] - since_unix_ns) / MS:.1f}",
        record["node"],
        str(record["sequence"]),
        record["event"],
        says(record),
    )


def _findings(told: Explanation) -> Iterator[str]:
    yield f"checks that ran: {', '.join(told.checks) or 'none'}"
    yield f"checks that must run and did not: {', '.join(told.unchecked) or 'none'}"
    yield f"not on record: {'; '.join(told.missing) or 'nothing that should be'}"
    nodes = {life.number: life.node for life in told.lives}
    for span in told.spans:
        until = "the end" if span.until == TO_THE_END else str(span.until)
        where = f"{nodes[span.life]}, records {max(span.since, 1)} to {until}"
        yield f"not covered: {where}: {span.gap} {span.detail}".rstrip()
    for met in told.exposures:
        pages = page_ranges(met.pages, RANGES_MAX)
        yield f"could have read of request {met.other}: {pages} on {met.node}"
