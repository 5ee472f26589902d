"""What an audit says: every request's verdict with its reasons, who met whom, and what is not seen.

Requests stay columns, since there may be millions of them; what one asks about becomes an object.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from kvairlock.audit.broken import Seals
from kvairlock.audit.chains import ROLES
from kvairlock.audit.completeness import Completeness
from kvairlock.audit.lines import Unreadable
from kvairlock.audit.rule import Grade, Rule
from kvairlock.audit.rules import AFFECTING, RULES
from kvairlock.audit.spans import Life, Missing, Span
from kvairlock.audit.tables import Evidence
from kvairlock.core.terms import Role

ORDER = [("since_unix_ns", "ascending"), ("request", "ascending")]
"""Requests are listed by the time at which they began."""


class Class(StrEnum):
    """What the audit makes of a request."""

    AFFECTED = "affected"
    INSUFFICIENT = "insufficient"
    EXCLUDED = "excluded"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the audit makes of one request.

    Args:
        request: Its pseudonym.
        tenant: Its tenant's.
        verdict: Which of the three.
        grade: The best grade of the findings; of an excluded request observed, since every link of
            its chain is on record.
        reasons: Names of the rules that fired.
        nodes: Where it was.
        since_unix_ns: When it was first recorded.
        drill: Which drill asked, empty if none did.
    """

    request: str
    tenant: str
    verdict: Class
    grade: Grade
    reasons: tuple[str, ...]
    nodes: tuple[str, ...]
    since_unix_ns: int
    drill: str = ""


@dataclass(frozen=True, slots=True)
class Exposure:
    """Pages of another that a request could have read.

    Args:
        request: Who could have read.
        other: Whose pages they were, before or after.
        node: On which node.
        incarnation: In which of its lives.
        pages: Which pages.
        generations: In which generation the other had each of them.
    """

    request: str
    other: str
    node: str
    incarnation: str
    pages: tuple[int, ...]
    generations: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Coverage:
    """What was looked at, and what of it nobody can see.

    Args:
        files: How many files were read.
        records: How many records were judged.
        from_unix_ns: When the first was recorded.
        to_unix_ns: When the last was.
        routes: Pairs of a prefill and a decode node that evidence is there of.
        lives: Every life that there is evidence of.
        spans: What of it is not covered, and why.
        missing: Lives that are named and that there is no evidence of.
        unreadable: What could not be read.
        seals: What the seals of the files say.
    """

    files: int
    records: int
    from_unix_ns: int
    to_unix_ns: int
    routes: tuple[str, ...]
    lives: tuple[Life, ...]
    spans: tuple[Span, ...]
    missing: tuple[Missing, ...]
    unreadable: tuple[Unreadable, ...]
    seals: Seals


@dataclass(frozen=True, slots=True)
class Report:
    """What an audit says.

    Args:
        coverage: What it looked at.
        classified: All requests, as columns.
        exposures: For affected requests: whose pages they could have read.
    """

    coverage: Coverage
    classified: pa.Table
    exposures: tuple[Exposure, ...]

    def counts(self) -> dict[Class, int]:
        """How many requests there are of each class."""
        masks = masks_of(self.classified["reasons"].to_numpy())
        return {name: int(np.count_nonzero(mask)) for name, mask in masks.items()}

    def by_reason(self) -> dict[str, int]:
        """For how many requests each rule fired; rules that did not are left out."""
        reasons = self.classified["reasons"].to_numpy()
        fired = {
            rule.name: int(np.count_nonzero(reasons >> place & 1))
            for place, rule in enumerate(RULES)
        }
        return {name: count for name, count in fired.items() if count}

    def within(self, since_unix_ns: int, until_unix_ns: int) -> Report:
        """Return the same report of the requests that began in a time only.

        Records outside of it were looked at all the same: what a request met may have begun before
        it, and what is missing is found by numbers that go through.

        Args:
            since_unix_ns: From when on.
            until_unix_ns: Before when.
        """
        began = self.classified["since_unix_ns"]
        inside = pc.and_(pc.greater_equal(began, since_unix_ns), pc.less(began, until_unix_ns))
        classified = self.classified.filter(inside)
        named = set(classified["request"].to_pylist()) if self.exposures else set()
        met = tuple(e for e in self.exposures if e.request in named)
        return Report(self.coverage, classified, met)

    def verdicts(self, *classes: Class) -> Iterator[Verdict]:
        """Yield the verdicts of some classes, by the time at which requests began.

        Args:
            classes: Which; all if none is given.
        """
        wanted = classes or tuple(Class)
        rows = self.classified.take(pc.sort_indices(self.classified, ORDER))
        reasons = rows["reasons"].to_numpy()
        chosen = [i for i, mask in enumerate(reasons.tolist()) if class_of(mask) in wanted]
        for row in rows.take(pa.array(chosen, pa.int64())).to_pylist():
            yield self._verdict(row)

    def of(self, request: str) -> Verdict | None:
        """Return the verdict of one request, None if no record names it."""
        found = self.classified.filter(pc.equal(self.classified["request"], request)).to_pylist()
        return self._verdict(found[0]) if found else None

    def _verdict(self, row: dict[str, Any]) -> Verdict:
        fired = fired_by(row["reasons"])
        lives = (row[f"{role}_life"] for role in ROLES)
        return Verdict(
            request=row["request"],
            tenant=row["tenant"] or "",
            verdict=class_of(row["reasons"]),
            grade=_best(fired),
            reasons=tuple(rule.name for rule in fired),
            nodes=tuple(self.coverage.lives[life].node for life in lives if life is not None),
            since_unix_ns=row["since_unix_ns"],
            drill=row["drill"],
        )

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain values; excluded requests are counted, the others listed."""
        counts = {str(name): count for name, count in self.counts().items()}
        listed = self.verdicts(Class.AFFECTED, Class.INSUFFICIENT)
        return {
            "counts": counts,
            "reasons": self.by_reason(),
            "requests": [asdict(verdict) for verdict in listed],
            "exposures": [asdict(exposure) for exposure in self.exposures],
            "coverage": asdict(self.coverage),
        }


def class_of(reasons: int) -> Class:
    """Return the class of a request, from the bits of the rules that fired."""
    if reasons & AFFECTING:
        return Class.AFFECTED
    return Class.INSUFFICIENT if reasons else Class.EXCLUDED


def masks_of(reasons: NDArray[np.int64]) -> dict[Class, NDArray[np.bool_]]:
    """Return for each class which of many requests are of it; the same as `class_of` of each."""
    affected, fired = (reasons & AFFECTING) != 0, reasons != 0
    return {
        Class.AFFECTED: affected,
        Class.INSUFFICIENT: fired & ~affected,
        Class.EXCLUDED: ~fired,
    }


def fired_by(reasons: int) -> tuple[Rule, ...]:
    """Return the rules whose bits are set; of an affected request those that make it so."""
    counted = reasons & AFFECTING or reasons
    return tuple(rule for place, rule in enumerate(RULES) if counted >> place & 1)


def _best(fired: tuple[Rule, ...]) -> Grade:
    ranks = tuple(Grade)
    return min((rule.grade for rule in fired), key=ranks.index, default=Grade.OBSERVED)


def report(
    evidence: Evidence, covered: Completeness, classified: pa.Table, met: pa.Table
) -> Report:
    """Put together what an audit says.

    Args:
        evidence: What was opened.
        covered: What of it is complete.
        classified: A row per request, with its reasons as bits.
        met: A row per page of another that an affected request could have read.
    """
    lives = covered.lives
    coverage = Coverage(
        files=evidence.files,
        records=sum(life.records for life in lives),
        from_unix_ns=min((life.from_unix_ns for life in lives), default=0),
        to_unix_ns=max((life.to_unix_ns for life in lives), default=0),
        routes=_routes(lives),
        lives=lives,
        spans=covered.spans,
        missing=covered.missing,
        unreadable=evidence.unreadable,
        seals=evidence.seals,
    )
    return Report(coverage, classified, _exposures(met, lives))


def _routes(lives: tuple[Life, ...]) -> tuple[str, ...]:
    nodes = {role: sorted({life.node for life in lives if life.role == role}) for role in Role}
    return tuple(f"{p}/{d}" for p in nodes[Role.PREFILL] for d in nodes[Role.DECODE])


def _exposures(met: pa.Table, lives: tuple[Life, ...]) -> tuple[Exposure, ...]:
    order = [(name, "ascending") for name in ("request", "other", "life", "page", "generation")]
    grouped: dict[tuple[str, str, int], list[tuple[int, int]]] = {}
    for row in met.sort_by(order).to_pylist():
        key = (row["request"], row["other"], row["life"])
        grouped.setdefault(key, []).append((row["page"], row["generation"]))
    return tuple(
        Exposure(
            request,
            other,
            lives[life].node,
            lives[life].incarnation,
            tuple(page for page, _ in pages),
            tuple(generation for _, generation in pages),
        )
        for (request, other, life), pages in grouped.items()
    )
