"""A case as it was read: a world, a schedule, and what must come of it, with guards and without."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from kvairlock.core.guards import Guard
from kvairlock.sim.cases.player import Played
from kvairlock.sim.cases.steps import Means
from kvairlock.sim.cases.words import Fields, Phrase
from kvairlock.sim.setup import Setup

DEADLINES = "deadlines"
"""Beside the guards, what a case can do without: no deadline of a node ever passes."""
NEVER_MS = 10**12
"""Longer than any run."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a file.

    Args:
        number: Which, from 1.
        text: What it says, without comment and indentation.
    """

    number: int
    text: str


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a schedule.

    Args:
        line: Where it is.
        phrase: The row of the language.
        fields: What is in its holes.
    """

    line: Line
    phrase: Phrase[Means]
    fields: Fields


@dataclass(frozen=True, slots=True)
class Expectation:
    """What must come of a schedule.

    Args:
        line: Where it is.
        holds: Whether it came.
    """

    line: Line
    holds: Callable[[Played], bool]


@dataclass(frozen=True, slots=True)
class Telling:
    """One way to tell the story: what is absent in it, how it goes on, and what must come of it.

    Args:
        guards: Guards that do not enforce.
        deadlines: Names the deadlines of all nodes, if they never pass.
        steps: Steps after those of the schedule, in this telling only.
        expected: What must come of it.
    """

    guards: tuple[Guard, ...]
    deadlines: tuple[str, ...]
    steps: tuple[Step, ...]
    expected: tuple[Expectation, ...]

    @property
    def without(self) -> tuple[str, ...]:
        """What is absent."""
        return (*map(str, self.guards), *self.deadlines)

    def applied(self, setup: Setup) -> Setup:
        """Return a world without what is absent."""
        setup = replace(setup, guards_off=frozenset(self.guards))
        if not self.deadlines:
            return setup
        decode = dict.fromkeys(("queue_ms", "prefill_ms", "landing_ms", "decode_ms"), NEVER_MS)
        return replace(
            setup,
            decode_limits=replace(setup.decode_limits, **decode),
            prefill_limits=replace(setup.prefill_limits, verdict_ms=NEVER_MS),
        )


@dataclass(frozen=True, slots=True)
class Case:
    """A public failure, or any other, that can be played.

    Args:
        file: Where it was read from, as errors show it.
        line: Its first line.
        ids: By which it is known.
        title: What goes wrong, in a few words.
        setup: The world, with all guards.
        steps: The schedule.
        right: The right outcome: with all guards, then without some where others hold.
        failing: How the failure shows, or None where nothing can be switched off.
        built_in: Then, why not.
    """

    file: str
    line: Line
    ids: tuple[str, ...]
    title: str
    setup: Setup
    steps: tuple[Step, ...]
    right: tuple[Telling, ...]
    failing: Telling | None
    built_in: str
