"""What must be on record before a route whose breaker opened takes requests again.

    corrected    the commitment holds for the route, and the path is no longer entered
    refuses      asked for more than they hold, the nodes themselves refuse, with their own figures
    in effect    both hold on every node of the route as it runs now

Three records, kept apart: none of them follows from another. Each is bound to the route's *moment*:
which life of both nodes, which report, which fingerprint. What was shown of one moment says nothing
about another, so a trial ends, and its records with it, as soon as a node is another one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from kvairlock.core.errors import Misuse
from kvairlock.core.promise.capacity import CapacityReport
from kvairlock.core.terms import Incarnation, NodeName


@dataclass(frozen=True, slots=True)
class NodeMoment:
    """A node together with the life, the report and the configuration that it is in.

    Args:
        node: Its name.
        incarnation: Which life.
        epoch: Which report of that life.
        fingerprint: What its figures depend on.
    """

    node: NodeName
    incarnation: Incarnation
    epoch: int
    fingerprint: str

    @classmethod
    def of(cls, report: CapacityReport) -> NodeMoment:
        """Return the moment in which a report was made."""
        return cls(report.node, report.incarnation, report.epoch, report.fingerprint)


@dataclass(frozen=True, slots=True)
class RouteMoment:
    """Both nodes of a route, each with its moment."""

    prefill: NodeMoment
    decode: NodeMoment


class RecordKind(StrEnum):
    """The records that closing needs."""

    CORRECTED = "corrected"
    REFUSES = "refuses"
    IN_EFFECT = "in_effect"


RECORDS: dict[RecordKind, str] = {
    RecordKind.CORRECTED: "the commitment holds for the route, and no request over its limits was "
    "sent to it since the breaker opened",
    RecordKind.REFUSES: "asked past the gateway's own check for one token more than it holds, each "
    "node refuses by its own figures, and nothing is computed",
    RecordKind.IN_EFFECT: "every node of the route states that all its guards enforce, and that "
    "its report is the one that the other two records are about",
}
"""What each record says."""


@dataclass(frozen=True, slots=True)
class RecoveryRecord:
    """One record: what was shown, of which moment of the route.

    Args:
        kind: Which of the three.
        moment: The route's moment in which it was shown.
        facts: What was seen, one sentence each, with the figures.
        at_unix_s: When, by the wall clock.
    """

    kind: RecordKind
    moment: RouteMoment
    facts: tuple[str, ...]
    at_unix_s: int


@dataclass(frozen=True, slots=True)
class Trial:
    """What is on record about one moment of a route.

    Args:
        moment: The route's moment.
        records: Its records, at most one of each kind.
    """

    moment: RouteMoment
    records: tuple[RecoveryRecord, ...] = ()

    @property
    def missing(self) -> tuple[RecordKind, ...]:
        """The records that are not there."""
        present = {record.kind for record in self.records}
        return tuple(kind for kind in RecordKind if kind not in present)

    @property
    def is_sound(self) -> bool:
        """Whether it has at most one record of each kind, all about its moment."""
        kinds = {record.kind for record in self.records}
        about = {record.moment for record in self.records}
        return len(kinds) == len(self.records) and about <= {self.moment}

    def having(self, record: RecoveryRecord) -> Trial:
        """Return it with a record, which takes the place of an earlier one of its kind.

        Raises:
            Misuse: The record is about another moment.
        """
        if record.moment != self.moment:
            raise Misuse(f"the record {record.kind} is about another moment of the route")
        others = (r for r in self.records if r.kind is not record.kind)
        return replace(self, records=(*others, record))
