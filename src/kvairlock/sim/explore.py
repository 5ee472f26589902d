"""Every order of everything that can happen in a small world, breadth first.

The first violation that is found has the shortest schedule. States are known by value, requests
that differ in their names only are sent in one order, and turns of sites are computed once; nothing
else is left out.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from kvairlock.core.effects import Record
from kvairlock.sim.judge import judge
from kvairlock.sim.outcome import Fault, Violation
from kvairlock.sim.state import Move, State, Step
from kvairlock.sim.world import World

ANYTHING = frozenset(Fault)
Parents = dict[State, tuple[State, Move] | None]


@dataclass(slots=True)
class Explored:
    """What was found in a world.

    Args:
        states: How many states were reached.
        transitions: How many moves between them.
        turns: How many turns of sites were computed for them.
        ends: How many states in which nothing is left to happen.
        steps: Moves of the longest of all shortest schedules.
        complete: Whether all that can be reached was looked at.
        seconds: How long it took.
        processor_seconds: How long a core was at it.
        violation: What must never be, if it was found.
        schedule: The shortest schedule that leads there.
        sometimes: Rare states that were reached.
    """

    states: int = 0
    transitions: int = 0
    turns: int = 0
    ends: int = 0
    steps: int = 0
    complete: bool = False
    seconds: float = 0.0
    processor_seconds: float = 0.0
    violation: Violation | None = None
    schedule: tuple[Move, ...] = ()
    sometimes: set[str] = field(default_factory=set)


class Explorer:
    """One exploration.

    Args:
        world: What is explored.
        seeks: What counts as a violation; the schedule goes on past anything else.
    """

    def __init__(self, world: World, seeks: frozenset[Fault] = ANYTHING) -> None:
        self._world, self._seeks = world, seeks
        self._parents: Parents = {}
        self._queue: deque[State] = deque()
        self._found = Explored()

    def run(self, states_max: int | None = None) -> Explored:
        """Explore until a violation is found, nothing is left, or there are too many states.

        Args:
            states_max: After how many states it gives up; None never does.
        """
        began, worked, found = time.perf_counter(), time.process_time(), self._found
        start = self._world.start()
        self._parents[start] = None
        self._queue.append(start)
        while self._queue and found.violation is None:
            if states_max is not None and len(self._parents) > states_max:
                break
            self._expand(self._queue.popleft())
        found.states = len(self._parents)
        found.complete = not self._queue and found.violation is None
        found.turns = len(self._world.turns)
        found.seconds = time.perf_counter() - began
        found.processor_seconds = time.process_time() - worked
        return found

    def _expand(self, state: State) -> None:
        moves = self._world.moves(state)
        if not moves:
            self._end(state)
        for move in moves:
            step = self._world.step(state, move)
            self._found.transitions += 1
            self._note(step)
            if step.violations and self._is_sought(step.violations, state, move):
                return
            if step.state not in self._parents:
                self._parents[step.state] = (state, move)
                self._queue.append(step.state)

    def _note(self, step: Step) -> None:
        self._found.sometimes.update(step.sometimes)
        for _, turn in step.turns:
            if turn.sometimes:
                self._found.sometimes.update(turn.sometimes)

    def _end(self, state: State) -> None:
        """Judge the end of a run on both paths."""
        self._found.ends += 1
        schedule = self._schedule(state)
        self._found.steps = max(self._found.steps, len(schedule))
        violations = tuple(self._world.judge_end(state))
        if Fault.EVIDENCE in self._seeks:
            violations += tuple(judge_run(self._world, schedule))
        self._is_sought(violations, state, None)

    def _is_sought(
        self, violations: tuple[Violation, ...], state: State, move: Move | None
    ) -> bool:
        sought = next((v for v in violations if v.fault in self._seeks), None)
        if sought is not None:
            self._found.violation = sought
            last = () if move is None else (move,)
            self._found.schedule = (*self._schedule(state), *last)
        return sought is not None

    def _schedule(self, state: State) -> tuple[Move, ...]:
        moves: list[Move] = []
        while (came := self._parents[state]) is not None:
            state, move = came
            moves.append(move)
        return tuple(reversed(moves))


def judge_run(world: World, schedule: tuple[Move, ...]) -> list[Violation]:
    """Judge a whole run by the evidence that it leaves."""
    state = world.start()
    records: list[tuple[int, int, Record]] = []
    for move in schedule:
        step = world.step(state, move)
        records += _records(world, step)
        state = step.state
    roles = [role for role, _ in world.topology.nodes]
    return judge(records, roles, state.lives)


def _records(world: World, step: Step) -> Iterator[tuple[int, int, Record]]:
    """The records of a step, with the place and the life that they come from."""
    for place, turn in step.turns:
        for number in turn.records:
            yield place, step.state.lives[place], world.turns.numbers.record(number)


def explore(world: World, seeks: frozenset[Fault] = ANYTHING) -> Explored:
    """Explore a world to its end, or to the first violation."""
    return Explorer(world, seeks).run()
