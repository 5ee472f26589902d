"""A guard's schedule for live processes: its stack, and what must be seen with it and without.

With the guard on the request that is looked at gets its own answer or a typed refusal; with it off
what the guard keeps out is seen. Both times the same steps are carried out.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from kvairlock.core.errors import REASONS, Reason
from kvairlock.core.guards import Guard
from kvairlock.core.terms import LandingPolicy
from kvairlock.drills.live_player import Player, Seen
from kvairlock.drills.live_steps import Step

LOST_MS = 10_000
"""A node that stands still for a schedule is not lost by it."""


class Mode(StrEnum):
    """Whether the guard of a schedule enforces."""

    ON = "on"
    OFF = "off"


class Sight(StrEnum):
    """What can be seen of a request from outside."""

    OWN = "its own answer"
    REFUSED = "a typed refusal"
    FOREIGN = "another tenant's canary"
    WRONG = "an answer from pages that do not hold its prompt"
    UNVOUCHED = "an answer from pages that were never admitted for it"
    SHARED = "an answer from pages that another tenant's scope keeps"
    TAIL = "another tenant's slots behind its prompt"
    DENIED = "no pages within the longest wait"


def sight(seen: Seen) -> Sight:
    """Name what was seen of a request, the worst first."""
    if seen.foreign:
        return Sight.FOREIGN
    if seen.sharers:
        return Sight.SHARED
    if seen.tail:
        return Sight.TAIL
    if seen.refusal is not None:
        full = REASONS[Reason.CAPACITY].code
        return Sight.DENIED if seen.refusal == full else Sight.REFUSED
    if not seen.vouched:
        return Sight.UNVOUCHED
    return Sight.OWN if seen.own else Sight.WRONG


@dataclass(frozen=True, slots=True)
class Topology:
    """The stack of a schedule.

    Args:
        prefills: How many prefill nodes.
        decodes: How many decode nodes.
        pages: Pages of each node.
        landing: Landing policy of the decode nodes.
        landing_pages: Pages that windows may take; 0 for as many as the pool has.
        tenant_share: What of them one tenant may take.
        prefix_share: What of prefill's pages finished prefixes may keep.
        queue_ms: Longest wait for pages.
        verdict_ms: Longest wait of prefill for the verdict.
    """

    prefills: int = 1
    decodes: int = 1
    pages: int = 64
    landing: LandingPolicy = LandingPolicy.COPY
    landing_pages: int = 0
    tenant_share: float = 1.0
    prefix_share: float = 0.0
    queue_ms: int = 10_000
    verdict_ms: int = 10_000

    def settings(self, off: frozenset[Guard]) -> str:
        """Return the TOML of the stack with some guards off."""
        names = ", ".join(f'"{guard}"' for guard in sorted(off))
        nodes = [self._prefill(number) for number in range(self.prefills)]
        nodes += [self._decode(number) for number in range(self.decodes)]
        return f"""
[gateway]
port = 0

[commitment]
context_tokens = 1024
{"".join(nodes)}
[limits]
beat_ms = 50
lost_ms = {LOST_MS}
queue_ms = {self.queue_ms}
verdict_ms = {self.verdict_ms}

[drill]
enabled = true
guards_off = [{names}]
"""

    def _prefill(self, number: int) -> str:
        return f"""
[[prefill]]
name = "prefill-{number}"
pages = {self.pages}
prefix_share = {self.prefix_share}
"""

    def _decode(self, number: int) -> str:
        return f"""
[[decode]]
name = "decode-{number}"
pages = {self.pages}
landing = "{self.landing}"
landing_pages = {self.landing_pages}
tenant_share = {self.tenant_share}
"""


@dataclass(frozen=True, slots=True)
class Live:
    """One guard's schedule, and what must be seen.

    Args:
        guard: The guard.
        steps: The schedule.
        held: What must be seen of `who` with the guard on.
        shows: What must be seen with it off.
        who: The request that is looked at.
        reason: The refusal, if `held` is one.
        record: What the guard leaves in the evidence when it holds; empty for nothing.
        shadows: Guards that are off both times.
        topology: The stack.
        differs: How the schedule differs from the mutant's, and why; empty if it is the same.
    """

    guard: Guard
    steps: tuple[Step, ...]
    held: Sight
    shows: Sight
    who: str = "a"
    reason: Reason | None = None
    record: str = ""
    shadows: frozenset[Guard] = frozenset()
    topology: Topology = Topology()
    differs: str = ""

    def off(self, mode: Mode) -> frozenset[Guard]:
        """Return the guards that are off."""
        return self.shadows if mode is Mode.ON else self.shadows | {self.guard}

    def expected(self, mode: Mode) -> Sight:
        """Return what must be seen."""
        return self.held if mode is Mode.ON else self.shows


@dataclass(frozen=True, slots=True)
class Result:
    """What came of one schedule.

    Args:
        guard: The guard.
        mode: Whether it was on.
        expected: What must be seen.
        saw: What was seen.
        seen: The same in detail.
        ok: Whether all was as it must be: sight, refusal and evidence.
    """

    guard: Guard
    mode: Mode
    expected: Sight
    saw: Sight
    seen: Seen
    ok: bool


def carry_out(live: Live, player: Player, mode: Mode) -> Result:
    """Play a schedule on a stack that has its topology and its guards off.

    Args:
        live: The schedule.
        player: Plays it; a fresh one.
        mode: Whether the guard is on there.

    Raises:
        DrillFailed: Something that is waited for does not happen.
    """
    seen = player.play(live.steps, live.who)
    saw, expected = sight(seen), live.expected(mode)
    ok = saw is expected and (mode is Mode.OFF or _holds(live, player, seen))
    return Result(live.guard, mode, expected, saw, seen, ok)


def _holds(live: Live, player: Player, seen: Seen) -> bool:
    """Whether it was this guard that held: by its own reason, and by what it records."""
    code = REASONS[live.reason].code if live.reason else None
    return seen.refusal == code and (not live.record or player.left(live.record))
