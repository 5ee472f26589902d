"""What a rule is: what it finds, what that makes of a request, and how well founded it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from ibis import Table

from kvairlock.audit import links
from kvairlock.audit.spans import Gap
from kvairlock.audit.suspicions import Fact

Column = Any
Fires = Callable[[Table], Column]
"""Says of each request whether a rule fires."""


class Finding(StrEnum):
    """What a rule says about a request if it fires."""

    AFFECTED = "affected"
    INSUFFICIENT = "insufficient"


class Grade(StrEnum):
    """How well founded a finding is, the best first."""

    REPRODUCED = "reproduced"
    """It was made to happen again. The audit alone never says so."""
    OBSERVED = "observed"
    """A record states it."""
    INFERRED = "inferred"
    """It follows from records together, or from what one does not say."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule.

    Args:
        name: Its name in reports.
        finds: What it has found, if it fires.
        finding: What that makes of a request.
        grade: How well founded that is.
        needs: Which events it rests on.
        fires: Whether it fires, as a column of the table with a row per request.
    """

    name: str
    finds: str
    finding: Finding
    grade: Grade
    needs: tuple[str, ...]
    fires: Fires


def affected(
    name: str,
    finds: str,
    grade: Grade,
    needs: str,
    fires: Fires,
    *,
    of: Fires = links.was_read,
) -> Rule:
    """Return a rule that finds a request affected, if it was read, or `of` says else whose."""

    def both(t: Table) -> Column:
        return of(t) & fires(t)

    return Rule(name, finds, Finding.AFFECTED, grade, tuple(needs.split()), both)


def lacks(name: str, finds: str, needs: str, fires: Fires) -> Rule:
    """Return a rule that finds evidence insufficient."""
    return Rule(name, finds, Finding.INSUFFICIENT, Grade.INFERRED, tuple(needs.split()), fires)


def of_fact(fact: Fact) -> Fires:
    """Fire if pages say so."""
    return lambda t: (t.facts & int(fact)) != 0


def of_gap(gap: Gap) -> Fires:
    """Fire if a process that it was on has such a span at that time."""
    return lambda t: links.has_gap(t, gap)


def numbered_once(fires: Fires) -> Fires:
    """Fire only if no number is there twice: what is counted, paired or ordered rests on them."""
    return lambda t: fires(t) & ~links.has_gap(t, Gap.NUMBERS_REPEATED)
