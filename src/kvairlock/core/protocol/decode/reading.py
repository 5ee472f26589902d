"""Reading: before every step each page table is checked against the pool, and its pages held."""

from __future__ import annotations

from functools import partial

import numpy as np

from kvairlock.core.effects import StopDecode
from kvairlock.core.errors import InvariantBroken, Reason, Refusal, Stage
from kvairlock.core.events import StepBegan, StepEnded
from kvairlock.core.guards import Guard
from kvairlock.core.memory.page import PageStage
from kvairlock.core.memory.pool import Hold
from kvairlock.core.protocol.decode.covering import count_reads
from kvairlock.core.protocol.decode.ending import finish
from kvairlock.core.protocol.decode.reception import Reception
from kvairlock.core.protocol.decode.state import DecodeState
from kvairlock.core.terms import Instant, Owner, TransferId

READ_STAGES = frozenset({PageStage.READABLE, PageStage.FILLING})
STALE = Refusal(
    Reason.GENERATION, Stage.DECODE, "the page table names pages that are not this request's"
)


def step_began(node: DecodeState, event: StepBegan, now: Instant) -> None:
    """Hold the pages of all that may take part in a step; stop the others."""
    for name in event.transfers:
        reception = node.receptions.get(name)
        if _judge(node, reception) is not None:
            _stop(node, name, reception, now)
        elif reception is not None:
            _begin(node, reception)


def _begin(node: DecodeState, reception: Reception) -> None:
    """Count what is about to be read, and hold it."""
    count_reads(node, reception)
    if reception.reserved is not None:
        node.hold(reception.name, reception.reserved.lease, Hold.COMPUTE)


def _judge(node: DecodeState, reception: Reception | None) -> Refusal | None:
    """Judge the page table of a request that is about to be read."""
    if reception is None:
        # What has ended has no route any more that a waiver could be for.
        return STALE if node.on(Guard.MAPPING) else None
    route, table = node.route_of(reception), partial(_judge_table, node, reception)
    return node.books.judge(Guard.MAPPING, route, reception.owner, table)


def _judge_table(node: DecodeState, reception: Reception) -> Refusal | None:
    return None if _mapped(node, reception) else STALE


def _mapped(node: DecodeState, reception: Reception) -> bool:
    """Whether every page is still this request's, in a stage and generation that may be read."""
    span, lease, pool = reception.span, reception.lease, node.books.pool
    if span is None or lease is None or not np.all(pool.lease[span.pages] == lease.id):
        return False
    return not len(pool.stale(span, READ_STAGES))


def _stop(node: DecodeState, name: TransferId, reception: Reception | None, now: Instant) -> None:
    node.emit(StopDecode(name))
    if reception is None:
        node.books.record("mapping_refused", Owner.named("", name), pages=())
        return
    stale: tuple[int, ...] = ()
    if reception.span is not None:
        stale = tuple(node.books.pool.stale(reception.span, READ_STAGES).tolist())
    node.books.record("mapping_refused", reception.owner, pages=stale)
    finish(node, reception, STALE, now)


def step_ended(node: DecodeState, event: StepEnded) -> None:
    """Let go of the pages that a step has read.

    Raises:
        InvariantBroken: A hold was not there; those of all others are let go all the same.
    """
    broken: InvariantBroken | None = None
    for name, tokens in zip(event.transfers, event.tokens, strict=True):
        try:
            node.let_go(name, Hold.COMPUTE)
        except InvariantBroken as error:
            broken = error
        reception = node.receptions.get(name)
        if reception is not None:
            reception.generated_tokens += tokens
    if broken is not None:
        raise broken
