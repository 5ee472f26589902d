"""What a turn of a site led to outside of it, and what it must never show."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from kvairlock.core.effects import Record
from kvairlock.core.messages import TransferTicket
from kvairlock.core.terms import NodeName, TransferId
from kvairlock.sim.stimuli import Content, Remote


class Fault(StrEnum):
    """What a turn must never show."""

    LEAK = "leak"
    CORRUPTION = "corruption"
    DENIED = "denied"
    INVARIANT = "invariant"
    HOST = "host"
    TWO_ENDS = "two ends"
    NOT_ENDED = "not ended"
    PAGES_LOST = "pages lost"
    EVIDENCE = "evidence"


@dataclass(frozen=True, slots=True)
class Violation:
    """Something that must never be.

    Args:
        fault: What.
        detail: Where, in words.
    """

    fault: Fault
    detail: str

    def __str__(self) -> str:
        """Return it as transcripts show it."""
        return f"{self.fault}: {self.detail}"


@dataclass(frozen=True, slots=True)
class Ending:
    """A request has ended, as the gateway is told.

    Args:
        transfer: The request.
        end: How.
        reason: Why, if it did not complete, else empty.
    """

    transfer: TransferId
    end: str
    reason: str


@dataclass(slots=True)
class Outcome:
    """What a turn led to outside the site.

    Args:
        posts: Messages to other nodes, in order.
        remote: What is done to another site's memory.
        endings: Ends that the gateway is told.
        offers: Transfer tickets that the gateway is given (pull).
        violations: What must never be.
        records: The evidence that was emitted.
        sometimes: Names of rare states that the turn was in.
    """

    posts: list[tuple[NodeName, Content]] = field(default_factory=list)
    remote: list[tuple[NodeName, Remote]] = field(default_factory=list)
    endings: list[Ending] = field(default_factory=list)
    offers: list[TransferTicket] = field(default_factory=list)
    violations: list[Violation] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)
    sometimes: list[str] = field(default_factory=list)
