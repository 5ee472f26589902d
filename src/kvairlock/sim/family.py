"""Explores the family of small worlds and its mutants on all cores, and says what was found.

Complete means that every world was explored to its end. Adequate means that this was enough: every
rare state was reached inside, and every guard was missed inside when it was off.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from kvairlock.core.guards import Guard
from kvairlock.sim.explore import ANYTHING, Explored, Explorer
from kvairlock.sim.mutants import MUTANTS, Mutant
from kvairlock.sim.outcome import Fault
from kvairlock.sim.parallel import spread
from kvairlock.sim.setup import Setup
from kvairlock.sim.sometimes import Rare
from kvairlock.sim.state import Budget
from kvairlock.sim.words import Words
from kvairlock.sim.world import World
from kvairlock.sim.worlds import SMALL, Named, named

STATES_MAX = 3_000_000
"""A world that has more is not small: it is given up, and not complete."""


@dataclass(frozen=True, slots=True)
class Found:
    """What was found in one exploration, as it crosses processes.

    Args:
        states: How many states were reached.
        transitions: How many moves between them.
        turns: How many turns of sites were computed for them.
        ends: How many states in which nothing is left to happen.
        steps: Moves of the longest of all shortest schedules.
        complete: Whether all that can be reached was looked at.
        seconds: How long it took.
        processor_seconds: How long a core was at it.
        violation: What must never be and is, or empty.
        fault: Of which kind it is, or empty.
        schedule: How many moves lead there.
        transcript: The shortest schedule, in words.
        sometimes: Rare states that were reached.
    """

    states: int
    transitions: int
    turns: int
    ends: int
    steps: int
    complete: bool
    seconds: float
    processor_seconds: float
    violation: str
    fault: str
    schedule: int
    transcript: tuple[str, ...]
    sometimes: frozenset[str]

    def document(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {
            "complete": self.complete,
            "states": self.states,
            "transitions": self.transitions,
            "turns": self.turns,
            "ends": self.ends,
            "steps": self.steps,
            "seconds": round(self.seconds, 2),
            "per_second": rate(self.transitions, self.processor_seconds),
            "violation": self.violation or None,
            "schedule": list(self.transcript),
        }


@dataclass(frozen=True, slots=True)
class Explorations:
    """What was found in a family.

    Args:
        worlds: The worlds that were explored.
        found: What was found in each, in the same order.
    """

    worlds: tuple[Named, ...]
    found: tuple[Found, ...]

    @property
    def violations(self) -> int:
        """In how many worlds an invariant was broken."""
        return sum(bool(found.violation) for found in self.found)

    @property
    def complete(self) -> bool:
        """Whether every world was explored to its end."""
        return all(found.complete for found in self.found)

    @property
    def missed(self) -> list[str]:
        """Rare states that no world was in."""
        reached = frozenset[str]().union(*(found.sometimes for found in self.found))
        return [rare.value for rare in Rare if rare not in reached]

    def document(self) -> dict[str, Any]:
        """Return it as JSON."""
        seconds = sum(found.processor_seconds for found in self.found)
        transitions = sum(found.transitions for found in self.found)
        return {
            "complete": self.complete,
            "violations": self.violations,
            "budgets": {world.name: spent(world.budget) for world in self.worlds},
            "states": sum(found.states for found in self.found),
            "transitions": transitions,
            "turns": sum(found.turns for found in self.found),
            "per_second": rate(transitions, seconds),
            "sometimes_missed": self.missed,
            "worlds": [
                {
                    "name": world.name,
                    "about": world.about,
                    "budget": spent(world.budget),
                    **found.document(),
                }
                for world, found in zip(self.worlds, self.found, strict=True)
            ],
        }


@dataclass(frozen=True, slots=True)
class Row:
    """One guard: what was found with it alone in the way, and without it."""

    mutant: Mutant
    alone: Found
    without: Found

    @property
    def caught(self) -> bool:
        """Whether nothing breaks with it, and something does without it."""
        return self.alone.complete and not self.alone.violation and bool(self.without.violation)

    def document(self) -> dict[str, Any]:
        """Return it as JSON; nothing in it depends on the machine or the time."""
        return {
            "guard": self.mutant.guard.value,
            "caught": self.caught,
            "story": self.mutant.story,
            "breaks": self.without.violation or None,
            "fault": self.without.fault or None,
            "steps": self.without.schedule,
            "also_off": [guard.value for guard in Guard if guard in self.mutant.shadows],
            "budget": spent(self.mutant.budget),
            "states_alone": self.alone.states,
            "schedule": list(self.without.transcript),
        }


def rate(transitions: int, processor_seconds: float) -> int:
    """Return how many moves one process explores in a second of its core."""
    return int(transitions / processor_seconds) if processor_seconds else 0


def spent(budget: Budget) -> dict[str, int]:
    """Return the faults of a budget that may happen at all."""
    return {kind: most for kind, most in budget._asdict().items() if most}


Told = Callable[[str], None]


def explore_family(name: str = SMALL, told: Told | None = None) -> Explorations:
    """Explore the worlds of a name.

    Args:
        name: The family, or one of its worlds.
        told: Is told the name of each world that is done.
    """
    worlds = named(name)
    done: dict[str, Found] = {}
    for world, found in spread(_explore_named, [world.name for world in worlds]):
        done[world] = found
        if told is not None:
            told(f"{world}: {found.states} states, {found.transitions} moves")
    return Explorations(worlds, tuple(done[world.name] for world in worlds))


def explore_mutants(
    guards: Sequence[Guard] = tuple(Guard), told: Told | None = None
) -> tuple[Row, ...]:
    """Explore each guard's world, with it alone and without it.

    Args:
        guards: Which guards.
        told: Is told the name of each guard that is done.
    """
    done: dict[Guard, Row] = {}
    numbers = [number for number, mutant in enumerate(MUTANTS) if mutant.guard in guards]
    for row in spread(explore_mutant, numbers):
        done[row.mutant.guard] = row
        if told is not None:
            told(f"{row.mutant.guard}: {row.without.violation or 'nothing breaks'}")
    return tuple(done[mutant.guard] for mutant in MUTANTS if mutant.guard in done)


def explore_mutant(number: int) -> Row:
    """Explore one row of `MUTANTS`."""
    mutant = MUTANTS[number]
    alone = _explore(mutant.alone, mutant.budget, ANYTHING - mutant.excused)
    return Row(mutant, alone, _explore(mutant.without, mutant.budget, mutant.seeks))


def _explore(setup: Setup, budget: Budget, seeks: frozenset[Fault] = ANYTHING) -> Found:
    world = World(setup, budget)
    return _found(world, Explorer(world, seeks).run(STATES_MAX))


def _explore_named(name: str) -> tuple[str, Found]:
    (place,) = named(name)
    return name, _explore(place.setup, place.budget)


def _found(world: World, explored: Explored) -> Found:
    violation = explored.violation
    transcript = Words(world).transcript(explored.schedule) if violation else []
    return Found(
        states=explored.states,
        transitions=explored.transitions,
        turns=explored.turns,
        ends=explored.ends,
        steps=explored.steps,
        complete=explored.complete,
        seconds=explored.seconds,
        processor_seconds=explored.processor_seconds,
        violation=str(violation) if violation else "",
        fault=violation.fault.value if violation else "",
        schedule=len(explored.schedule),
        transcript=tuple(transcript),
        sometimes=frozenset(str(rare) for rare in explored.sometimes),
    )


TITLES = ("guard", "what goes wrong", "what breaks without it", "steps", "also off")


def table_of(rows: Sequence[dict[str, Any]]) -> list[tuple[str, str, str, str, str]]:
    """Return the cells of a table of mutants under `TITLES`, from their documents.

    Args:
        rows: What `Row.document` returned, or the same read from a file.
    """
    return [
        (
            str(row["guard"]),
            str(row["story"]),
            str(row["breaks"] or "nothing was found"),
            str(row["steps"]),
            ", ".join(row["also_off"]),
        )
        for row in rows
    ]
