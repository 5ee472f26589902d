"""A story: a world that a test leads through moves of its choice, and small setups for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from kvairlock.sim.setup import Ask, Setup
from kvairlock.sim.state import Budget, Kind, Move, State
from kvairlock.sim.world import World

ALICE, BOB = Ask("alice", "a", 2), Ask("bob", "b", 2)
TWO = Setup((ALICE, BOB))
DECODE, PREFILL = 0, 1
"""Places in a world of two nodes."""
TO_DECODE, TO_PREFILL = 0, 1
"""Its wires."""


def one(**changed: object) -> Setup:
    """A setup with one request, changed."""
    return replace(Setup((ALICE,)), **changed)  # type: ignore[arg-type]


class Story:
    """A world that a test leads through moves of its choice."""

    def __init__(self, setup: Setup, **budget: int) -> None:
        self.world = World(setup, Budget(**budget))
        self.state: State = self.world.start()
        self.ended: list[tuple[str, str, str]] = []
        self.sometimes: set[str] = set()
        self.violations: list[str] = []

    @property
    def moves(self) -> list[Move]:
        return self.world.moves(self.state)

    def can(self, kind: Kind, at: int | None = None) -> bool:
        return any(move.kind is kind and at in (None, move.at) for move in self.moves)

    def does(self, kind: Kind, at: int | None = None, work: str = "") -> None:
        """Let the one move happen that fits."""
        fitting = [
            move
            for move in self.moves
            if move.kind is kind
            and at in (None, move.at)
            and (not work or (move.work is not None and move.work.kind == work))
        ]
        assert fitting, f"{kind} {at} {work} is not among {self.moves}"
        self.play(fitting[0])

    def play(self, move: Move) -> None:
        step = self.world.step(self.state, move)
        self.state = step.state
        self.sometimes.update(step.sometimes)
        self.violations += map(str, step.violations)
        for _, turn in step.turns:
            self.sometimes.update(turn.sometimes)
            self.ended += [(e.transfer, e.end, e.reason) for e in turn.endings]

    def until(self, done: Callable[[Story], bool]) -> None:
        """Let what will happen anyway happen, first things first, until something is so."""
        for _ in range(500):
            if done(self):
                return
            self.play(self.moves[0])
        raise AssertionError("it never was so")

    def finish(self) -> None:
        """Let everything come to its end, and judge that."""
        self.state = self.state._replace(left=Budget())
        self.until(lambda story: not story.moves)
        self.violations += map(str, self.world.judge_end(self.state))

    def works(self, kind: str) -> bool:
        """Whether some work of a kind can be done next."""
        return any(move.work is not None and move.work.kind == kind for move in self.moves)
