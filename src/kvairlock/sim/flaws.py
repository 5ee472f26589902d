"""What a prefill node says and writes that is not so, by the flaw that a request is given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from kvairlock.core.ends import End
from kvairlock.core.messages import Receipt
from kvairlock.core.protocol.prefill.job import Job
from kvairlock.sim.bytes import Slots, slot_of
from kvairlock.sim.setup import OTHER_LAYOUT, Ask, Flaw, Setup

Retold = Callable[[Setup, Ask, Receipt], Receipt]

_RETOLD: dict[Flaw, Retold] = {
    Flaw.REJECTED: lambda setup, ask, said: replace(said, outcome=End.REJECTED),
    Flaw.OTHERS_REQUEST: lambda setup, ask, said: replace(said, owner=setup.other(ask).owner),
    Flaw.OTHERS_INPUT: lambda setup, ask, said: replace(said, input_digest=setup.other(ask).digest),
    Flaw.LAYOUT: lambda setup, ask, said: replace(said, layout=OTHER_LAYOUT),
    Flaw.SHORT: lambda setup, ask, said: replace(said, stop=said.stop - 1),
    Flaw.ORDER: lambda setup, ask, said: replace(
        said, pages=said.pages[::-1], digests=said.digests[::-1]
    ),
}


def retold(setup: Setup, ask: Ask, receipt: Receipt) -> Receipt:
    """Return what is stated in place of a receipt: it says what the flaw did."""
    change = _RETOLD.get(ask.flaw)
    return change(setup, ask, receipt) if change else receipt


def torn(setup: Setup, ask: Ask, slots: Slots) -> Slots:
    """Return slots of a page as they land torn: the first is another request's."""
    found = slots.copy()
    found[0] = slot_of(setup.tag(setup.other(ask)), 0)
    return found


def early_receipt(job: Job, layout: str) -> Receipt:
    """Return the receipt of a job whose write has not ended."""
    return Receipt(
        transfer=job.name,
        owner=job.owner,
        outcome=End.COMPLETED,
        refusal=None,
        window=job.asked.window,
        input_digest=job.input_digest,
        layout=layout,
        pages=tuple(range(len(job.digests))),
        start=0,
        stop=job.stop,
        generations=job.asked.generations,
        digests=job.digests,
        reused=0,
    )
