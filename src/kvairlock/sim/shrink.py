"""Makes a failing schedule short: what can be left out, without the failure going away, is."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from kvairlock.sim.outcome import Fault
from kvairlock.sim.state import Move
from kvairlock.sim.swarm import Plan, Run, replay

Item = TypeVar("Item")
TRIES_MAX = 400


def shrink(plan: Plan, run: Run, fault: Fault) -> Run:
    """Return a run with the same kind of violation and as few moves as could be found.

    Args:
        plan: The world.
        run: A run that ended in a violation.
        fault: Of which kind it was.
    """
    best = run

    def fails(moves: list[Move]) -> bool:
        nonlocal best
        found = replay(plan, moves)
        if not _is(found, fault):
            return False
        best = found
        return True

    reduce(run.moves, fails)
    return best


def reduce(moves: list[Item], fails: Callable[[list[Item]], bool]) -> list[Item]:
    """Leave out chunks of a list, ever smaller ones, as long as it fails.

    Args:
        moves: A list that fails, of moves or anything else.
        fails: Whether a list does.
    """
    size, tries = max(len(moves) // 2, 1), 0
    while tries < TRIES_MAX:
        before = len(moves)
        at = 0
        while at < len(moves) and tries < TRIES_MAX:
            shorter = moves[:at] + moves[at + size :]
            tries += 1
            if fails(shorter):
                moves = shorter
            else:
                at += size
        if size == 1 and len(moves) == before:
            break
        size = max(size // 2, 1)
    return moves


def _is(run: Run, fault: Fault) -> bool:
    return run.violation is not None and run.violation.fault is fault
