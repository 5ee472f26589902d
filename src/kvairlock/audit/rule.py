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
    fires: Callable[[Table], Column]


def affected(
    name: str, finds: str, grade: Grade, needs: str, fires: Callable[[Table], Column]
) -> Rule:
    """Return a rule that finds a request affected, if it was read."""

    def read_and(t: Table) -> Column:
        return links.was_read(t) & fires(t)

    return Rule(name, finds, Finding.AFFECTED, grade, tuple(needs.split()), read_and)


def answered_though(name: str, finds: str, needs: str, fires: Callable[[Table], Column]) -> Rule:
    """Return a rule that finds a request affected if its client got an answer, whoever read."""

    def answered_and(t: Table) -> Column:
        return (t.answers > 0) & fires(t)

    needed = tuple(needs.split())
    return Rule(name, finds, Finding.AFFECTED, Grade.OBSERVED, needed, answered_and)


def lacks(name: str, finds: str, needs: str, fires: Callable[[Table], Column]) -> Rule:
    """Return a rule that finds evidence insufficient."""
    return Rule(name, finds, Finding.INSUFFICIENT, Grade.INFERRED, tuple(needs.split()), fires)


def of_fact(fact: Fact) -> Callable[[Table], Column]:
    """Fire if pages say so."""
    return lambda t: (t.facts & int(fact)) != 0


def of_gap(gap: Gap) -> Callable[[Table], Column]:
    """Fire if a process that it was on has such a span at that time."""
    bit = 1 << tuple(Gap).index(gap)
    return lambda t: (t.gaps & bit) != 0
