"""What the evidence cannot see: lives that are not whole, guards that were off, nodes without any.

Most of it each process says of itself: how its guards are set, that a drill is on, that it lost
records. What it can't say is found by its numbers (`kvairlock.audit.numbering`) and by whom others
had a channel to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from ibis import Table

from kvairlock.audit.numbering import (
    Detail,
    Key,
    Row,
    a_span,
    between,
    detail_of,
    is_plain,
    runs_of,
    within,
)
from kvairlock.audit.spans import TO_THE_END, Gap, Life, Missing, Span
from kvairlock.core.terms import LandingPolicy, Role

MARKS = (
    "node_started",
    "guards_changed",
    "node_closed",
    "evidence_lost",
    "failpoint",
    "invariant_broken",
    "channel_opened",
    "peer_up",
)
"""Events about a process rather than a request: few, and read one by one."""

_MARK_FIELDS = ("guards_off", "landing", "relaxed", "peer", "peer_incarnation")


@dataclass(frozen=True, slots=True)
class Completeness:
    """Which lives there is evidence of, and what of them is not covered.

    Args:
        lives: All of them, by their numbers.
        spans: What is not covered, and why.
        missing: Lives that others name, without any evidence.
    """

    lives: tuple[Life, ...]
    spans: tuple[Span, ...]
    missing: tuple[Missing, ...]


def complete(records: Table) -> Completeness:
    """Find out what a table of evidence covers.

    Args:
        records: The wide table.
    """
    runs, marks = runs_of(records), _marks(records)
    lives = _lives(runs, marks)
    detailed = detail_of(records, [run for of in runs.values() for run in of if not is_plain(run)])
    spans = [
        replace(span, life=life.number)
        for key, life in lives.items()
        for span in _of_life(life, runs[key], detailed, marks.get(key, []))
    ]
    return Completeness(tuple(lives.values()), tuple(spans), tuple(_missing(lives, marks)))


def _marks(records: Table) -> dict[Key, list[Row]]:
    wanted = records.filter(records.event.isin(MARKS)).order_by("node", "incarnation", "sequence")
    fields = ("node", "incarnation", "sequence", "event", *_MARK_FIELDS)
    marks: dict[Key, list[Row]] = {}
    for row in wanted.select(*fields).to_pyarrow().to_pylist():
        marks.setdefault((row["node"], row["incarnation"]), []).append(row)
    return marks


def _lives(runs: Mapping[Key, list[Row]], marks: Mapping[Key, list[Row]]) -> dict[Key, Life]:
    lives = {}
    for number, (key, of) in enumerate(runs.items()):
        last = max(run["last"] for run in of)
        closes = [m["sequence"] for m in marks.get(key, []) if m["event"] == "node_closed"]
        lives[key] = Life(
            number=number,
            node=key[0],
            role=of[0]["role"],
            incarnation=key[1],
            records=sum(run["records"] for run in of),
            first=min(run["first"] for run in of),
            last=last,
            from_unix_ns=min(run["from_unix_ns"] for run in of),
            to_unix_ns=max(run["to_unix_ns"] for run in of),
            closed=bool(closes) and closes[-1] == last,
        )
    return lives


def _of_life(
    life: Life,
    runs: list[Row],
    detailed: Mapping[tuple[str, str, int], Detail],
    marks: list[Row],
) -> Iterator[Span]:
    if life.first != 1:
        yield a_span(0, TO_THE_END, Gap.EVENTS_LOST, f"1 to {life.first - 1} are missing")
    if len({run["role"] for run in runs}) > 1:
        yield a_span(0, TO_THE_END, Gap.NUMBERS_REPEATED, "two roles under one name")
    for before, run in zip([None, *runs], runs, strict=False):
        yield from between(before, run)
        detail = detailed.get((life.node, life.incarnation, run["run"]))
        if detail is not None:
            yield from within(detail)
    if not life.closed:
        yield a_span(life.last + 1, TO_THE_END, Gap.CLOSE_MISSING)
    yield from _by_marks(life, marks)


def _by_marks(life: Life, marks: list[Row]) -> Iterator[Span]:
    """What a process says about itself: its guards, drills, losses, its own books."""
    starts = [mark for mark in marks if mark["event"] == "node_started"]
    if len(starts) != 1 or starts[0]["guards_off"] is None or starts[0]["landing"] is None:
        yield a_span(0, TO_THE_END, Gap.START_UNKNOWN)
        return
    if starts[0]["guards_off"]:
        off = ", ".join(starts[0]["guards_off"])
        yield a_span(0, TO_THE_END, Gap.GUARD_DISABLED, off)
    if life.role == Role.DECODE and starts[0]["landing"] not in (
        LandingPolicy.COPY,
        LandingPolicy.SEAL,
    ):
        yield a_span(0, TO_THE_END, Gap.LANDING_DIRECT)
    yield from _relaxed(marks)
    for event, gap in (
        ("failpoint", Gap.FAILPOINT),
        ("invariant_broken", Gap.INVARIANT_BROKEN),
        ("evidence_lost", Gap.EVENTS_LOST),
    ):
        for mark in [m for m in marks if m["event"] == event][:1]:
            yield a_span(mark["sequence"], TO_THE_END, gap)


def _relaxed(marks: list[Row]) -> Iterator[Span]:
    """Each statement of what is relaxed holds up to the next one."""
    stated = [m for m in marks if m["event"] in ("node_started", "guards_changed")]
    for mark, after in zip(stated, [*stated[1:], None], strict=True):
        since = 0 if mark["event"] == "node_started" else mark["sequence"]
        until = after["sequence"] if after else TO_THE_END
        if mark["relaxed"] is None:
            yield a_span(since, until, Gap.START_UNKNOWN)
            continue
        for words in mark["relaxed"]:
            # Written as `route guard mode: waiver`; what has no route concerns all.
            route, _, rest = words.partition(" ")
            yield a_span(since, until, Gap.GUARD_RELAXED, rest, route if "/" in route else "")


def _missing(lives: Mapping[Key, Life], marks: Mapping[Key, list[Row]]) -> Iterator[Missing]:
    named: dict[Key, str] = {}
    for (node, _), of in marks.items():
        for mark in of:
            if mark["event"] in ("channel_opened", "peer_up") and mark["peer"]:
                named.setdefault((mark["peer"], mark["peer_incarnation"] or ""), node)
    for (node, incarnation), by in sorted(named.items()):
        if (node, incarnation) not in lives:
            yield Missing(node, incarnation, by)
