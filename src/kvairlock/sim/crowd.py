"""A swarm on all cores: as many random runs as fit into some seconds, and what they have shown."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from kvairlock.sim.live import LiveTurns
from kvairlock.sim.outcome import Violation
from kvairlock.sim.parallel import cores, spread
from kvairlock.sim.shrink import shrink
from kvairlock.sim.sometimes import Rare
from kvairlock.sim.swarm import Run, plan_of, run
from kvairlock.sim.words import Words
from kvairlock.sim.world import World

FAILURES_MAX = 3
"""After so many a process stops: what fails so often needs no more runs."""


@dataclass(frozen=True, slots=True)
class Share:
    """What one process does.

    Args:
        seed: What all runs are drawn from.
        first: Number of its first run.
        stride: How many processes there are.
        seconds: How long it goes on.
    """

    seed: str
    first: int
    stride: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Failure:
    """A run that has shown what must never be.

    Args:
        seed: What makes it again.
        violation: What it has shown.
        about: Its world, in short.
        transcript: The shortest schedule that was found to show it, in words.
    """

    seed: str
    violation: str
    about: str
    transcript: tuple[str, ...]

    def document(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {
            "seed": self.seed,
            "violation": self.violation,
            "world": self.about,
            "schedule": list(self.transcript),
        }


@dataclass(frozen=True, slots=True)
class Swarmed:
    """What some runs have shown.

    Args:
        runs: How many there were.
        moves: How many moves they had in all.
        failures: Those that have shown what must never be.
        sometimes: Rare states that were reached.
    """

    runs: int
    moves: int
    failures: tuple[Failure, ...]
    sometimes: frozenset[str]

    @property
    def missed(self) -> list[str]:
        """Rare states that no run was in."""
        return [rare.value for rare in Rare if rare not in self.sometimes]

    def __add__(self, other: Swarmed) -> Swarmed:
        """Return what both have shown together."""
        return Swarmed(
            self.runs + other.runs,
            self.moves + other.moves,
            self.failures + other.failures,
            self.sometimes | other.sometimes,
        )


NOTHING = Swarmed(0, 0, (), frozenset())


def swarm(seed: str, seconds: float) -> Swarmed:
    """Make runs on all cores.

    Args:
        seed: What they are drawn from.
        seconds: For how long.
    """
    count = cores()
    shares = [Share(seed, first, count, seconds) for first in range(count)]
    return sum(spread(make_share, shares), NOTHING)


def make_share(share: Share) -> Swarmed:
    """Make the runs of one process."""
    total, number = NOTHING, share.first
    until = time.monotonic() + share.seconds
    while time.monotonic() < until and len(total.failures) < FAILURES_MAX:
        total += make(f"{share.seed}/{number}")
        number += share.stride
    return total


def make(seed: str) -> Swarmed:
    """Make one run; if it fails, look for a shorter schedule that fails the same way."""
    made = run(seed)
    failures = () if made.violation is None else (_failure(seed, made, made.violation),)
    return Swarmed(1, made.steps, failures, frozenset(str(rare) for rare in made.sometimes))


def _failure(seed: str, made: Run, violation: Violation) -> Failure:
    plan = plan_of(seed)
    short = shrink(plan, made, violation.fault)
    world = World(plan.setup, plan.budget, LiveTurns())
    transcript = [
        *Words(world).transcript(short.moves),
        f"     then it is healed: {short.violation}",
    ]
    setup = plan.setup
    about = (
        f"{setup.direction}, {setup.policy}, {len(setup.asks)} requests, "
        f"{setup.decodes} decode and {setup.prefills} prefill nodes"
    )
    return Failure(seed, str(short.violation), about, tuple(transcript))
