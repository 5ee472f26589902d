"""What beats say again of guards, landing and failpoints, where what said it first is not there.

    guards_changed (lost) ... beat: relaxed      relaxed, from this beat on at the latest

What marks and beats both say is not said twice: while nothing is lost, beats add nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ibis import Table

from kvairlock.audit.numbering import Key, Row, a_span
from kvairlock.audit.spans import TO_THE_END, Gap, Span
from kvairlock.core.terms import LandingPolicy, Role

_SAID = ("guards_off", "landing", "relaxed", "points")
_APART = (str(LandingPolicy.COPY), str(LandingPolicy.SEAL))
"""How writes land where nobody else can store into the pool."""


def said_again(records: Table) -> dict[Key, list[Row]]:
    """Return what beats say of each life that is out of the ordinary, each statement once.

    Args:
        records: The wide table.

    Returns:
        For each life: what beats say, with the numbers of the `first` and the `last` that do.
    """
    t = records.filter(records.event == "beat")
    direct = (t.role == Role.DECODE) & t.landing.notin(_APART)
    odd = (t.guards_off.length() > 0) | (t.relaxed.length() > 0) | (t.points.length() > 0)
    t = t.filter(odd.fill_null(False) | direct.fill_null(False))
    t = t.group_by("node", "role", "incarnation", *_SAID).aggregate(
        first=t.sequence.min(), last=t.sequence.max()
    )
    said: dict[Key, list[Row]] = {}
    for row in t.to_pyarrow().to_pylist():
        said.setdefault((row["node"], row["incarnation"]), []).append(row)
    return said


def relaxation(words: str) -> tuple[str, str]:
    """Split what relaxes, `route guard mode: waiver`, into its route and the rest.

    What has no route concerns all of them.
    """
    route, _, rest = words.partition(" ")
    return (route, rest) if "/" in route else ("", rest)


def lands_direct(role: str, landing: str | None) -> bool:
    """Whether others can store into the pool of a process, by what it says; None says nothing."""
    return role == Role.DECODE and landing is not None and landing not in _APART


def of_beats(said: Iterable[Row], known: Iterable[Span]) -> Iterator[Span]:
    """Yield what beats say and nobody else does.

    Args:
        said: What beats say of this life.
        known: What its other records say.
    """
    spans = list(known)
    for row in said:
        since, until = row["first"], row["last"]
        off = ", ".join(row["guards_off"] or ())
        if off and not _is_known(spans, Gap.GUARD_DISABLED, since, until, ("", off)):
            yield a_span(since, TO_THE_END, Gap.GUARD_DISABLED, off)
        direct = lands_direct(row["role"], row["landing"])
        if direct and not _is_known(spans, Gap.LANDING_DIRECT, since, until):
            yield a_span(since, TO_THE_END, Gap.LANDING_DIRECT)
        for words in row["relaxed"] or ():
            route, rest = relaxation(words)
            if not _is_known(spans, Gap.GUARD_RELAXED, since, until, (route, rest)):
                yield a_span(since, TO_THE_END, Gap.GUARD_RELAXED, rest, route)
        if row["points"] and not _is_known(spans, Gap.FAILPOINT, since, until):
            yield a_span(since, TO_THE_END, Gap.FAILPOINT, ", ".join(row["points"]))


def _is_known(spans: Iterable[Span], gap: Gap, since: int, until: int, which: Any = None) -> bool:
    """Whether one span of that kind has in it what beats say."""
    return any(
        span.gap is gap
        and span.since <= since
        and span.until >= until
        and which in (None, (span.route, span.detail))
        for span in spans
    )
