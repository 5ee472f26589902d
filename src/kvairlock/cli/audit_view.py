"""The report of an audit as text: three lists, who met whom, what was covered and what was not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from kvairlock.audit.report import Class, Coverage, Exposure, Report, Verdict
from kvairlock.audit.rules import RULES
from kvairlock.audit.spans import TO_THE_END, Life, Span
from kvairlock.cli.output import plain, say, table
from kvairlock.pictures.names import page_ranges

NS = 10**9
RANGES_MAX = 6
SPANS_MAX = 40
WHAT = {
    Class.AFFECTED: "read, or could have read, what was not theirs",
    Class.INSUFFICIENT: "neither shown to be affected nor to be safe",
    Class.EXCLUDED: "every link of their chain is on record, and nothing speaks against it",
}

_REQUESTS = ("request", "tenant", "grade", "began (UTC)", "nodes", "reasons", "drill")
_MET = ("request", "could have read pages of", "on node", "in its life", "pages", "generations")
_LIVES = ("node", "role", "life", "records", "from (UTC)", "to (UTC)", "closed", "covered")
_SPANS = ("node", "life", "records", "not covered, because", "route", "detail")


def show_report(report: Report, shown: int) -> None:
    """Print a report.

    Args:
        report: What the audit says.
        shown: How many requests of each list to print.
    """
    for each, count in report.counts().items():
        say(f"{each:<13}{count:>9,}   {WHAT[each]}")
    if not report.classified.num_rows:
        say("\nno request is judged: no record that could be read, and is of that time, names one")
    for each in Class:
        _show_class(report, each, shown)
    _show_exposures(report.exposures)
    _show_reasons(report)
    _show_coverage(report.coverage)


def reasons_found(names: Iterable[str]) -> str:
    """Return what rules have found, in words."""
    finds = {rule.name: rule.finds for rule in RULES}
    return "; ".join(finds[name] for name in names)


def at(unix_ns: int) -> str:
    """Return a time as text, in UTC, to the millisecond."""
    moment = datetime.fromtimestamp(unix_ns // NS, UTC)
    return f"{moment:%Y-%m-%d %H:%M:%S}.{unix_ns % NS // 10**6:03}"


def _show_class(report: Report, wanted: Class, shown: int) -> None:
    count = report.counts()[wanted]
    if not count or not shown:
        return
    say(f"\n{wanted}")
    first = [verdict for verdict, _ in zip(report.verdicts(wanted), range(shown), strict=False)]
    table(_REQUESTS, [_request(verdict) for verdict in first], ("nodes", "began (UTC)", "drill"))
    if count > shown:
        say(f"  and {count - shown:,} more; --show N prints more of them, --json all")


def _request(verdict: Verdict) -> Sequence[str]:
    return (
        verdict.request,
        verdict.tenant,
        verdict.grade,
        at(verdict.since_unix_ns),
        ", ".join(verdict.nodes),
        ", ".join(verdict.reasons) or "none",
        verdict.drill,
    )


def _show_exposures(exposures: Sequence[Exposure]) -> None:
    if exposures:
        say("\nwho was exposed to whom")
        table(_MET, [_met(exposure) for exposure in exposures], ("in its life",))


def _met(exposure: Exposure) -> Sequence[str]:
    low, high = min(exposure.generations), max(exposure.generations)
    return (
        exposure.request,
        exposure.other,
        exposure.node,
        exposure.incarnation,
        page_ranges(exposure.pages, RANGES_MAX),
        f"{low}" if low == high else f"{low} to {high}",
    )


def _show_reasons(report: Report) -> None:
    counts = report.by_reason()
    if counts:
        say("\nreasons")
        rows = [
            (rule.name, f"{counts[rule.name]:,}", rule.finding, rule.grade, rule.finds)
            for rule in RULES
            if rule.name in counts
        ]
        table(("reason", "requests", "makes it", "grade", "what was found"), rows)


def _show_coverage(coverage: Coverage) -> None:
    window = f"{at(coverage.from_unix_ns)} to {at(coverage.to_unix_ns)} UTC"
    say(f"\nreviewed: {coverage.records:,} records of {coverage.files} files, {window}")
    say(f"routes: {', '.join(coverage.routes) or 'none'}")
    say(f"seals: {_seals(coverage)}")
    say("")
    holed = {span.life for span in coverage.spans}
    table(_LIVES, [_life(life, life.number in holed) for life in coverage.lives], ("life",))
    say("\nnot covered")
    for line in _uncovered(coverage):
        say(f"  {plain(line)}")
    if coverage.spans:
        lives = {life.number: life for life in coverage.lives}
        table(_SPANS, [_span(span, lives[span.life]) for span in coverage.spans[:SPANS_MAX]])
    if len(coverage.spans) > SPANS_MAX:
        say(f"  and {len(coverage.spans) - SPANS_MAX:,} more spans; --json has all")


def _seals(coverage: Coverage) -> str:
    seals = coverage.seals
    counted = ", ".join(f"{count} {state}" for state, count in seals.states)
    how = "with the cluster's keys" if seals.keyed else "hashes only, without the cluster's keys"
    return f"{counted} ({how})" if counted else "none: nothing says that files are as they were"


def _uncovered(coverage: Coverage) -> list[str]:
    """Return what no span says: lives without evidence, and records that can't be judged."""
    missing = [
        f"{gone.node} (life {gone.incarnation}): no evidence; {gone.named_by} names it"
        for gone in coverage.missing
    ]
    unreadable = [
        f"{bad.file or 'some file'}: {bad.records:,} records left out, {bad.reason}"
        for bad in coverage.unreadable
    ]
    always = "what happened where no process of kvairlock looked: below it, beside it, outside"
    return [*missing, *unreadable, always]


def _life(life: Life, holed: bool) -> Sequence[str]:
    return (
        life.node,
        life.role,
        life.incarnation,
        f"{life.records:,}",
        at(life.from_unix_ns),
        at(life.to_unix_ns),
        "yes" if life.closed else "no",
        "in part" if holed else "yes",
    )


def _span(span: Span, life: Life) -> Sequence[str]:
    until = "the end" if span.until == TO_THE_END else str(span.until)
    records = f"{max(span.since, 1)} to {until}"
    return (life.node, life.incarnation, records, span.gap, span.route or "all", span.detail)
