"""Which versions of the messages there are, and which one two processes speak.

Each process states in its hello which of them it speaks, and both hellos are authenticated, so that
nobody in between can lower what they agree on: the highest that both speak. Where there is none, no
channel opens.
"""

from __future__ import annotations

from kvairlock.core.errors import PeerIncompatible
from kvairlock.wire.tickets import VERSION as TICKET_VERSION

Versions = tuple[int, ...]
"""Versions of the messages, in rising order."""

VERSIONS = {
    1: "what 0.1.0 speaks",
    2: "a report has an epoch, states what it depends on, its windows and its groups of pages; a "
    "node states what does not enforce and how pages were checked; an end states what a request "
    "recovered from; `Resize`, `Rehearse`, `Rehearsed`, `Watch`, `PageMap`; a request, a grant "
    "and a claim say which trace they belong to",
}
"""Every version, and what it brought."""

SPEAKS: Versions = tuple(VERSIONS)
"""What this build speaks."""

UNSTATED: Versions = (1,)
"""What a hello speaks that does not say: version 1 has no such field, and is thereby spoken."""

VERSIONS_MAX = 16
"""More are in no honest hello."""


def are_plausible(speaks: Versions) -> bool:
    """Whether a hello may state these: at least one, each once, in rising order."""
    rising = all(low < high for low, high in zip((0, *speaks), speaks, strict=False))
    return 0 < len(speaks) <= VERSIONS_MAX and rising


def common(some: Versions, others: Versions) -> int | None:
    """Return the highest version that is among both, or None if none is."""
    return max(set(some) & set(others), default=None)


def agree(mine: Versions, theirs: Versions) -> int:
    """Return the version that both sides speak.

    Raises:
        PeerIncompatible: There is none; the message names what either speaks.
    """
    found = common(mine, theirs)
    if found is None:
        raise PeerIncompatible(
            f"no version in common: {in_words(mine)} here, {in_words(theirs)} there"
        )
    return found


def in_words(speaks: Versions) -> str:
    """Return versions as people read them: `messages 1, 2`."""
    return f"messages {', '.join(map(str, speaks))}"


def protocols() -> str:
    """Return all versions in words, as a capacity report states them."""
    return f"{in_words(SPEAKS)}; tickets {TICKET_VERSION}"
