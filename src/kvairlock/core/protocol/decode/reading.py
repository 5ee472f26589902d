"""Reading: before every step each page table is checked against the pool, and its pages held."""

from __future__ import annotations

import numpy as np

from kvairlock.core.effects import StopDecode
from kvairlock.core.errors import InvariantBroken, Reason, Refusal, Stage
from kvairlock.core.events import StepBegan, StepEnded
from kvairlock.core.guards import Guard
from kvairlock.core.memory.page import PageStage
from kvairlock.core.memory.pool import Hold
from kvairlock.core.protocol.decode.ending import finish
from kvairlock.core.protocol.decode.reception import Reception
from kvairlock.core.protocol.decode.state import DecodeState
from kvairlock.core.terms import Instant, Owner, TransferId

READ_STAGES = frozenset({PageStage.READABLE, PageStage.FILLING})


def step_began(node: DecodeState, event: StepBegan, now: Instant) -> None:
    """Hold the pages of all that may take part in a step; stop the others."""
    for name in event.transfers:
        reception = node.receptions.get(name)
        if node.on(Guard.MAPPING) and not (reception and _mapped(node, reception)):
            _stop(node, name, reception, now)
        elif reception is not None and reception.reserved is not None:
            node.hold(name, reception.reserved.lease, Hold.COMPUTE)


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
    message = "the page table names pages that are not this request's"
    finish(node, reception, Refusal(Reason.GENERATION, Stage.DECODE, message), now)


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
