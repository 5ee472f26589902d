"""Makes a mishap happen to a stack, waits until it is noticed, and undoes it.

crash        SIGKILL                           the supervisor starts it again
stop         SIGSTOP ... SIGCONT               longer or shorter than silence that counts as lost
partition    `link.held`, `gateway.held`       of the same two lengths
reset        `link.broken`
"""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass

from kvairlock.drills.faults.bench import D0, D1, GATEWAY, P0, P1, Bench
from kvairlock.drills.faults.table import Cell, Mishap, Struck
from kvairlock.drills.stack import wait_for
from kvairlock.runtime.failpoints import Cut

PROCESS = {Struck.GATEWAY: GATEWAY, Struck.PREFILL: P0, Struck.DECODE: D0}

CUT_AT = {Struck.PREFILL_DECODE: P0, Struck.GATEWAY_DECODE: D0, Struck.GATEWAY_PREFILL: P0}
"""The node that does not let through: its links to all peers of that kind are cut."""

LOSE: Mapping[Struck, tuple[tuple[str, str], ...]] = {
    Struck.GATEWAY: tuple((node, GATEWAY) for node in (P0, P1, D0, D1)),
    Struck.PREFILL: tuple((peer, P0) for peer in (GATEWAY, D0, D1)),
    Struck.DECODE: tuple((peer, D0) for peer in (GATEWAY, P0, P1)),
    Struck.PREFILL_DECODE: ((P0, D0), (P0, D1), (D0, P0), (D1, P0)),
    Struck.GATEWAY_DECODE: ((GATEWAY, D0), (D0, GATEWAY)),
    Struck.GATEWAY_PREFILL: ((GATEWAY, P0), (P0, GATEWAY)),
}
"""Who loses whom, once it is noticed."""


@dataclass(frozen=True, slots=True)
class Blow:
    """A mishap that has begun.

    Args:
        cell: What happens to what.
        lives: The incarnations before.
        at_s: When it began, on the monotonic clock.
    """

    cell: Cell
    lives: Mapping[str, str]
    at_s: float


def strike(bench: Bench, cell: Cell) -> Blow:
    """Make it happen."""
    blow = Blow(cell, bench.lives(), time.monotonic())
    match cell.mishap:
        case Mishap.CRASH:
            bench.send(PROCESS[cell.struck], signal.SIGKILL)
        case Mishap.STOP | Mishap.LONG_STOP:
            bench.send(PROCESS[cell.struck], signal.SIGSTOP)
        case Mishap.PARTITION | Mishap.LONG_PARTITION | Mishap.RESET:
            bench.hold(CUT_AT[cell.struck], _cut(cell))
    return blow


def wait_until_noticed(bench: Bench, cell: Cell) -> None:
    """Wait until all its peers have recorded that they lost what was struck.

    Raises:
        DrillFailed: Somebody does not notice.
    """
    for node, peer in LOSE[cell.struck]:
        bench.journal.last("peer_lost", node=node, peer=peer)


def undo(bench: Bench, blow: Blow) -> float:
    """End it; return when it was over, on the monotonic clock: a crash is as soon as it is there.

    Raises:
        DrillFailed: The process is not started again, or the node cannot be told.
    """
    cell, now_s = blow.cell, time.monotonic()
    match cell.mishap:
        case Mishap.CRASH:
            name = PROCESS[cell.struck]
            wait_for(f"{name} to be started again", lambda: _is_another(bench, blow, name))
            return blow.at_s
        case Mishap.STOP | Mishap.LONG_STOP:
            bench.send(PROCESS[cell.struck], signal.SIGCONT)
        case Mishap.PARTITION | Mishap.LONG_PARTITION | Mishap.RESET:
            bench.let_go(CUT_AT[cell.struck], _cut(cell))
    return now_s


def _cut(cell: Cell) -> Cut:
    if cell.struck is not Struck.PREFILL_DECODE:
        return Cut.GATEWAY_HELD
    return Cut.BROKEN if cell.mishap is Mishap.RESET else Cut.HELD


def _is_another(bench: Bench, blow: Blow, name: str) -> bool | None:
    return True if bench.lives()[name] != blow.lives[name] else None
