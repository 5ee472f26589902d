"""The rows of the table of versions as stories: a stack, and what is done and looked at there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from kvairlock.core.guards import Guard
from kvairlock.drills.canaries import Marked
from kvairlock.drills.client import Call
from kvairlock.drills.versions import sights
from kvairlock.drills.versions.sights import FITTING_TOKENS, TENANTS, Sight
from kvairlock.drills.versions.stack import Mixed
from kvairlock.drills.versions.table import (
    COMBINATIONS,
    DECODE,
    INCOMPATIBLE,
    PREFILL,
    REPLACEMENTS,
    Build,
    Incompatible,
    Replacement,
    Seat,
)
from kvairlock.runtime.failpoints import Failpoint

ROUTE = f"{PREFILL}/{DECODE}"
HELD_AT = {DECODE: Failpoint.DECODE_STEP, PREFILL: Failpoint.WRITE_PIECE}
"""Where a request is in flight when the node that works on it gives way."""


@dataclass(frozen=True, slots=True)
class Story:
    """One row.

    Args:
        name: Its name in reports.
        seats: What is started.
        play: What is done and looked at while the stack runs.
        off: Guards that are off at the gateway, so that what is behind them is seen.
    """

    name: str
    seats: Mapping[str, Seat]
    play: Callable[[Mixed], Iterator[Sight]]
    off: frozenset[Guard] = frozenset()


def stories() -> tuple[Story, ...]:
    """Return all rows, in the order in which they are carried out."""
    without = frozenset({Guard.CONTRACT})
    return (
        *(Story(row.name, row.seats, _serves) for row in COMBINATIONS),
        *(Story(f"{row.name}:let-through", row.seats, _refuses, without) for row in COMBINATIONS),
        *(Story(row.name, row.seats, partial(_replaces, row)) for row in REPLACEMENTS),
        *(Story(row.name, row.seats, partial(_stays_closed, row)) for row in INCOMPATIBLE),
    )


def _serves(stack: Mixed) -> Iterator[Sight]:
    stack.until_up(ROUTE)
    yield sights.answers(stack)
    yield sights.refuses_at_the_entry(stack)
    yield sights.drains(stack)
    yield sights.speaks(stack)


def _refuses(stack: Mixed) -> Iterator[Sight]:
    """The entry lets through what prefill cannot hold: the refusal crosses from node to node."""
    stack.until_up(ROUTE)
    yield sights.refuses_at_prefill(stack)
    yield sights.answers(stack)


def _replaces(row: Replacement, stack: Mixed) -> Iterator[Sight]:
    for build in (Build.OLD, Build.NEW):
        stack.until_up(ROUTE)
        asked = stack.canaries.prompt(TENANTS[0], FITTING_TOKENS)
        call = _in_flight(stack, row.process, asked)
        stack.replace(row.process, Seat(build))
        yield sights.ends_typed(stack, asked, call)
        stack.until_up(ROUTE)
        yield sights.answers(stack)


def _in_flight(stack: Mixed, process: str, asked: Marked) -> Call:
    point = HELD_AT[process]
    stack.client.point(process, "arm", point, after=1)
    call = stack.client.ask(asked)
    stack.client.held(process, point)
    return call


def _stays_closed(row: Incompatible, stack: Mixed) -> Iterator[Sight]:
    stack.until_up(row.serves)
    yield sights.is_refused(stack, row)
    yield sights.answers(stack, row.serves)
