"""What the evidence cannot see: lives that are not whole, guards that were off, nodes without any.

Most of it each process says of itself: how its guards are set, that a drill is on, that it lost
records. What it can't say is found by its numbers (`kvairlock.audit.numbering`), by whom others had
a channel to, and by the seals of its files (`kvairlock.audit.broken`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import zip_longest

from ibis import Table

from kvairlock.audit.beats import lands_direct, of_beats, relaxation, said_again
from kvairlock.audit.broken import Broken
from kvairlock.audit.losses import reaching
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

SEALS_OF = "the seals of {}"
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


def complete(records: Table, broken: Iterable[Broken] = ()) -> Completeness:
    """Find out what a table of evidence covers.

    Args:
        records: The wide table.
        broken: Files that can't be believed: neither can the lives that they are of.
    """
    runs, marks, said = runs_of(records), _marks(records), said_again(records)
    lives = _lives(runs, marks)
    detailed = detail_of(records, [run for of in runs.values() for run in of if not is_plain(run)])
    files = tuple(broken)
    spans = [
        replace(span, life=life.number)
        for key, life in lives.items()
        for span in (
            *_of_life(life, runs[key], detailed),
            *_of_itself(life, marks.get(key, []), said.get(key, [])),
            *_by(files, life),
        )
    ]
    spans = reaching(records, spans, {life.number: key for key, life in lives.items()})
    named = {(gone.node, gone.incarnation): gone for gone in _removed(lives, files)}
    named |= {(gone.node, gone.incarnation): gone for gone in _missing(lives, marks)}
    return Completeness(tuple(lives.values()), tuple(spans), tuple(named.values()))


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
) -> Iterator[Span]:
    """What the numbers and clocks of a life say."""
    if life.first != 1:
        yield a_span(1, life.first - 1, Gap.EVENTS_LOST, f"1 to {life.first - 1} are missing")
    if len({run["role"] for run in runs}) > 1:
        yield a_span(0, TO_THE_END, Gap.NUMBERS_REPEATED, "two roles under one name")
    for before, run in zip([None, *runs], runs, strict=False):
        yield from between(before, run)
        detail = detailed.get((life.node, life.incarnation, run["run"]))
        if detail is not None:
            yield from within(detail)
    if not life.closed:
        yield a_span(life.last + 1, TO_THE_END, Gap.CLOSE_MISSING)


def _of_itself(life: Life, marks: list[Row], said: list[Row]) -> Iterator[Span]:
    """What a process says about itself, once and at every beat."""
    spans = list(_by_marks(life, marks))
    yield from spans
    yield from of_beats(said, spans)


def _by_marks(life: Life, marks: list[Row]) -> Iterator[Span]:
    """What a process has recorded once: its guards, drills, losses, its own books."""
    yield from _by_start(life, [mark for mark in marks if mark["event"] == "node_started"])
    yield from _relaxed(marks)
    for event, gap in (
        ("failpoint", Gap.FAILPOINT),
        ("invariant_broken", Gap.INVARIANT_BROKEN),
    ):
        for mark in [m for m in marks if m["event"] == event][:1]:
            yield a_span(mark["sequence"], TO_THE_END, gap)
    for mark in [m for m in marks if m["event"] == "evidence_lost"]:
        yield a_span(mark["sequence"], mark["sequence"], Gap.EVENTS_LOST)


def _by_start(life: Life, starts: list[Row]) -> Iterator[Span]:
    """What the start of a life says; one that is not on record is known by the first clean beat."""
    if not starts:
        yield a_span(0, life.first - 1, Gap.START_UNKNOWN)
        return
    start = starts[0]
    if len(starts) > 1 or None in (start["guards_off"], start["landing"]):
        yield a_span(0, TO_THE_END, Gap.START_UNKNOWN)
    if start["guards_off"]:
        yield a_span(0, TO_THE_END, Gap.GUARD_DISABLED, ", ".join(start["guards_off"]))
    if lands_direct(life.role, start["landing"]):
        yield a_span(0, TO_THE_END, Gap.LANDING_DIRECT)


def _by(broken: Iterable[Broken], life: Life) -> Iterator[Span]:
    """What files can't be believed of a life."""
    for file in broken:
        if file.node == life.node and file.incarnation == life.incarnation:
            detail = f"{file.file}: {file.reason}" if file.reason else file.file
            yield a_span(0, TO_THE_END, file.gap, detail)


def _relaxed(marks: list[Row]) -> Iterator[Span]:
    """Each statement of what is relaxed holds up to the next one."""
    stated = [m for m in marks if m["event"] in ("node_started", "guards_changed")]
    for mark, after in zip_longest(stated, stated[1:]):
        since = 0 if mark["event"] == "node_started" else mark["sequence"]
        until = after["sequence"] if after else TO_THE_END
        if mark["relaxed"] is None:
            yield a_span(since, until, Gap.START_UNKNOWN)
            continue
        for words in mark["relaxed"]:
            route, rest = relaxation(words)
            yield a_span(since, until, Gap.GUARD_RELAXED, rest, route)


def _missing(lives: Mapping[Key, Life], marks: Mapping[Key, list[Row]]) -> Iterator[Missing]:
    named: dict[Key, str] = {}
    for (node, _), of in marks.items():
        for mark in of:
            if mark["event"] in ("channel_opened", "peer_up") and mark["peer"]:
                named.setdefault((mark["peer"], mark["peer_incarnation"] or ""), node)
    for (node, incarnation), by in sorted(named.items()):
        if (node, incarnation) not in lives:
            yield Missing(node, incarnation, by)


def _removed(lives: Mapping[Key, Life], broken: Iterable[Broken]) -> Iterator[Missing]:
    """Lives of which seals are all that is left."""
    gone = {(b.node, b.incarnation) for b in broken if b.gap is Gap.FILE_REMOVED and b.incarnation}
    for node, incarnation in sorted(gone - set(lives)):
        yield Missing(node, incarnation, SEALS_OF.format(node))
