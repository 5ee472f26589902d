"""What the evidence itself shows that must not be: the nouns, and the words for them.

A finding says what the records show, not what was meant. A run whose guards were off on purpose has
findings. Having none proves nothing: what is not recorded is not found.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from kvairlock.pictures.edges import Life, Who
from kvairlock.pictures.names import Names, page_ranges, span_ms

RANGES_MAX = 4


class FindingKind(StrEnum):
    """What must not be."""

    HELD_TWICE = "held_twice"
    FOREIGN = "foreign"
    UNHELD = "unheld"
    UNCONFIRMED = "unconfirmed"
    AGAINST_STATEMENT = "against_statement"
    LATE_WRITE = "late_write"
    UNPROVEN = "unproven"
    ACROSS_TENANTS = "across_tenants"
    INVARIANT = "invariant"


@dataclass(frozen=True, slots=True)
class FindingRow:
    """How a finding is said.

    Args:
        short: What a picture writes on the place.
        sentence: What a list says, around `first` and `second` owner and `detail`.
        names_first: Whether the place has to name the first owner: the bar has another one's name.
    """

    short: str
    sentence: str
    names_first: bool = False


FINDINGS: dict[FindingKind, FindingRow] = {
    FindingKind.HELD_TWICE: FindingRow(
        "two owners at once", "allocated to {first} while held by {second}: {detail}", True
    ),
    FindingKind.FOREIGN: FindingRow(
        "another owner's page", "{first} {detail} pages of {second}", True
    ),
    FindingKind.UNHELD: FindingRow(
        "nobody's page", "{first} {detail} pages that nobody holds", True
    ),
    FindingKind.UNCONFIRMED: FindingRow("read, not confirmed", "{first} reads, and {detail}"),
    FindingKind.AGAINST_STATEMENT: FindingRow(
        "admitted, not completed", "{first} was admitted, and {detail}"
    ),
    FindingKind.LATE_WRITE: FindingRow(
        "written after the fence", "{detail} into pages granted to {first}, after its fence"
    ),
    FindingKind.UNPROVEN: FindingRow("freed without proof", "given back by {first}: {detail}"),
    FindingKind.ACROSS_TENANTS: FindingRow(
        "shared across tenants", "{first} uses pages of {second}: {detail}", True
    ),
    FindingKind.INVARIANT: FindingRow("broken books", "the node's own books do not hold: {detail}"),
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that the evidence shows and that must not be.

    Args:
        kind: What it is.
        life: Where.
        pages: Which pages, empty if no record says.
        whos: Whose requests: first who does it, then whose pages they are.
        began_ns: Since when.
        ended_ns: Until when; the same for what happened at one moment.
        detail: What the records say, without names.
    """

    kind: FindingKind
    life: Life
    pages: tuple[int, ...]
    whos: tuple[Who, ...]
    began_ns: int
    ended_ns: int
    detail: str


def sentence(found: Finding, names: Names) -> str:
    """Return a finding in words, with its place and time."""
    owners = [names.full(who) for who in found.whos] + ["nobody", "nobody"]
    said = FINDINGS[found.kind].sentence.format(
        first=owners[0], second=owners[1], detail=found.detail
    )
    pages = f", {page_ranges(found.pages, RANGES_MAX)}" if found.pages else ""
    return f"{found.life.node}{pages}, {span_ms(found.began_ns, found.ended_ns)}: {said}"
