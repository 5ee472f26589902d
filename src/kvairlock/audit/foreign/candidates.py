"""What signs mean together: the one table of rules, and how requests are held against it.

    rule: one of FIRST, then one of THEN          lease expired ----> read by decode
    rule: one of FIRST, alone                     released without proof

An order across two files is an order by two clocks, so a rule fires as well if the later line seems
to be a little earlier; and if a line states no time at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from kvairlock.audit.foreign.joining import by_request
from kvairlock.audit.foreign.sightings import Sighting
from kvairlock.audit.foreign.signs import Engine, Side, Sign

GRADE = "inferred"
"""The grade of everything here: no line states what was read."""
SKEW_S = 5.0
"""By how much clocks of two machines may differ before an order across files is believed."""


@dataclass(frozen=True, slots=True)
class ForeignRule:
    """What makes a request a candidate.

    Args:
        name: Its name in reports.
        finds: What has been seen.
        first: Signs of which one must be there.
        then: Signs of which one must follow; none if the first is enough.
        ordered: Whether it must follow; else it is enough that both are there.
        unproven: What the lines do not show.
    """

    name: str
    finds: str
    first: tuple[Sign, ...]
    then: tuple[Sign, ...]
    ordered: bool
    unproven: str


FOREIGN_RULES: tuple[ForeignRule, ...] = (
    ForeignRule(
        "expired_then_read",
        "lease expired, then read by decode",
        (Sign.LEASE_EXPIRED,),
        (Sign.READ_UNKNOWN, Sign.TRANSFERRED, Sign.ANSWERED),
        True,
        "that the pages had a new owner by then, and that decode used what it read",
    ),
    ForeignRule(
        "freed_then_reported",
        "prefill had freed the pages when decode reported to have read them",
        (Sign.READ_UNKNOWN,),
        (),
        True,
        "when they were freed, and what they held when they were read",
    ),
    ForeignRule(
        "aborted_then_transferred",
        "aborted, then transferred",
        (Sign.ABORTED, Sign.DECODE_FAILED),
        (Sign.TRANSFERRED, Sign.ABORT_LATE, Sign.READ_UNKNOWN),
        True,
        "whether the pages of the aborted request were given to another before the transfer ended",
    ),
    ForeignRule(
        "refused_then_answered",
        "refused as too long by one half, answered by the other",
        (Sign.REFUSED,),
        (Sign.ANSWERED,),
        False,
        "that the answer was computed from pages that nobody had filled",
    ),
    ForeignRule(
        "failed_then_answered",
        "the hand-over failed, and decode answered",
        (Sign.PREFILL_FAILED, Sign.TRANSFER_FAILED),
        (Sign.ANSWERED,),
        False,
        "that decode did not compute the prompt again by itself, which would be right",
    ),
    ForeignRule(
        "released_unproven",
        "released after a time-out, while a transfer may still have been under way",
        (Sign.RELEASED_UNPROVEN,),
        (),
        True,
        "that a write came after it, and into whose pages; the one at risk is the next owner",
    ),
    ForeignRule(
        "others_metadata",
        "what arrived was labelled as another request's",
        (Sign.OTHERS_METADATA,),
        (),
        True,
        "whether pages were mixed up as well",
    ),
    ForeignRule(
        "other_bytes",
        "what arrived has another checksum than what was sent",
        (Sign.OTHER_BYTES,),
        (),
        True,
        "whose bytes these were, and where those that were sent have gone",
    ),
)
"""What makes a request a candidate."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A request that could have met another's cache.

    Args:
        request: An id that the logs know it by.
        rules: Which rules fired.
        engine: Whose logs they are.
        from_s: The first line about it, by the clock of its writer; None if none states a time.
        to_s: The last one.
        sightings: The lines, as file number and line, in order.
        order: On what the order of the lines rests.
    """

    request: str
    rules: tuple[str, ...]
    engine: Engine
    from_s: float | None
    to_s: float | None
    sightings: tuple[tuple[int, int, Sign], ...]
    order: str


def candidates(sightings: Iterable[Sighting], sides: Sequence[Side]) -> Iterator[Candidate]:
    """Yield the requests that are candidates.

    Args:
        sightings: Of all files.
        sides: Which half each file is of.
    """
    for request, named in by_request(sightings):
        found = [one for one in named if _counts(one, sides)]
        fired = [rule for rule in FOREIGN_RULES if _fires(rule, found)]
        if fired:
            yield _candidate(request, fired, found)


def _fires(rule: ForeignRule, found: Sequence[Sighting]) -> bool:
    firsts = [one for one in found if one.sign in rule.first]
    if not rule.then:
        return bool(firsts)
    thens = [one for one in found if one.sign in rule.then]
    return any(not rule.ordered or _may_follow(first, then) for first in firsts for then in thens)


def _counts(one: Sighting, sides: Sequence[Side]) -> bool:
    """Whether an answer may be decode's: prefill logs an answer of its own, of one token."""
    return one.sign is not Sign.ANSWERED or sides[one.file] is not Side.PREFILL


def _may_follow(first: Sighting, then: Sighting) -> bool:
    if first.file == then.file:
        return then.line > first.line
    if first.at_s is None or then.at_s is None:
        return True
    return then.at_s >= first.at_s - SKEW_S


def _candidate(request: str, fired: Sequence[ForeignRule], found: Sequence[Sighting]) -> Candidate:
    named = {sign for rule in fired for sign in (*rule.first, *rule.then)}
    seen = sorted((one for one in found if one.sign in named), key=lambda o: (o.file, o.line))
    times = [one.at_s for one in seen if one.at_s is not None]
    return Candidate(
        request,
        tuple(rule.name for rule in fired),
        seen[0].engine,
        min(times, default=None),
        max(times, default=None),
        tuple((one.file, one.line, one.sign) for one in seen),
        _order(seen, len(times)),
    )


def _order(seen: Sequence[Sighting], timed: int) -> str:
    if len({one.file for one in seen}) == 1:
        return "lines of one file"
    return "clocks of several files" if timed == len(seen) else "not known: lines without a time"
