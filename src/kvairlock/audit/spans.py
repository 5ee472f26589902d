"""Words of coverage: lives of processes, and spans of their evidence that vouch for nothing."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

TO_THE_END = 2**62
"""The sequence up to which a span goes that has no end in its life."""


class Gap(StrEnum):
    """Why a span of evidence is not covered."""

    EVENTS_LOST = "events_lost"
    """Numbers are missing: whatever was recorded there, nobody has it."""
    NUMBERS_REPEATED = "numbers_repeated"
    """Two records have one number: one of them is not what was recorded."""
    START_UNKNOWN = "start_unknown"
    """How guards were set at the start was not recorded, or is lost."""
    CLOSE_MISSING = "close_missing"
    """The life has no close marker: it may have gone on."""
    SILENT = "silent"
    """No record, not even a beat, for longer than beats may be late."""
    CLOCK_STEPPED = "clock_stepped"
    """The wall clock was set, so order between nodes is not known."""
    GUARD_DISABLED = "guard_disabled"
    """A guard was off: nobody looked."""
    GUARD_RELAXED = "guard_relaxed"
    """A guard only observed on a route, or checked a part."""
    LANDING_DIRECT = "landing_direct"
    """Others could store into the pool itself: no record says what they stored, and when."""
    FAILPOINT = "failpoint"
    """A drill could make this process do wrong, from here on."""
    INVARIANT_BROKEN = "invariant_broken"
    """The process found its own books wrong."""
    FILE_ALTERED = "file_altered"
    """A file of it is not what was sealed: no record in it can be believed."""
    SEAL_FORGED = "seal_forged"
    """The seals of its node do not verify: its files may be anybody's."""
    FILE_REMOVED = "file_removed"
    """A file of it was sealed, and is not there."""
    FILE_UNSEALED = "file_unsealed"
    """A file of it has the form of sealed ones, and no seal names it."""


@dataclass(frozen=True, slots=True)
class Life:
    """One incarnation of a process, as its evidence shows it.

    Args:
        number: Its number in this audit.
        node: Its name.
        role: What it was.
        incarnation: Which of its lives.
        records: How many records there are.
        first: The first sequence.
        last: The last sequence.
        from_unix_ns: When it recorded first.
        to_unix_ns: When it recorded last.
        closed: Whether it ends with a close marker.
    """

    number: int
    node: str
    role: str
    incarnation: str
    records: int
    first: int
    last: int
    from_unix_ns: int
    to_unix_ns: int
    closed: bool


@dataclass(frozen=True, slots=True)
class Span:
    """A part of one life's evidence that is not covered.

    Args:
        life: Number of the life.
        since: The first sequence of it.
        until: The last sequence of it, `TO_THE_END` if it has no end.
        gap: Why.
        route: The only route that it concerns, empty for all.
        detail: What else there is to say.
    """

    life: int
    since: int
    until: int
    gap: Gap
    route: str = ""
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Missing:
    """A life that others had a channel to, and of which there is no evidence at all.

    Args:
        node: Its name.
        incarnation: Which of its lives.
        named_by: Who had a channel to it.
    """

    node: str
    incarnation: str
    named_by: str
