"""One synchronous turn of a node: event in, effects out, invariants checked in between.

    handle(event, now) -> effects        deadline() -> Instant | None        tick(now) -> effects

A broken invariant ends the request that was worked on and quarantines its pages. Only if the books
do not add up afterwards either can the node not go on: `LedgerBroken` tells the host to flush the
evidence and stop.
"""

from __future__ import annotations

from collections.abc import Callable

from kvairlock.core.effects import Effect
from kvairlock.core.errors import InvariantBroken, Reason, Refusal, Stage
from kvairlock.core.events import Event, Told
from kvairlock.core.memory import invariants
from kvairlock.core.protocol.decode import DecodeNode
from kvairlock.core.protocol.prefill import PrefillNode
from kvairlock.core.protocol.pull.lender import LenderNode
from kvairlock.core.terms import Instant, Role, TransferId

Machine = DecodeNode | PrefillNode | LenderNode

BROKEN = "invariant_broken"
WORKS_AT = {Role.PREFILL: Stage.PREFILL, Role.DECODE: Stage.DECODE}


class LedgerBroken(InvariantBroken):
    """The node's own ledger can no longer be trusted."""


class Node:
    """The host's handle on one machine.

    Args:
        machine: The machine of a prefill node, a lender or a decode node; a borrower is one.
    """

    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    def handle(self, event: Event, now: Instant) -> list[Effect]:
        """Take one event and return what should happen, in order.

        Raises:
            LedgerBroken: The node must stop.
        """
        return self._turn(lambda: self.machine.handle(event, now), _transfer_of(event), now)

    def tick(self, now: Instant) -> list[Effect]:
        """Handle deadlines that have passed; after a resume this comes before any message.

        Raises:
            LedgerBroken: The node must stop.
        """
        books = self.machine.books
        broken = books.counters[BROKEN]
        effects = self._turn(lambda: self.machine.tick(now), None, now)
        due = self.deadline()
        if books.counters[BROKEN] > broken and due is not None and due <= now:
            # It would break again at once, and no request is there to blame.
            books.out.extend(effects)
            raise LedgerBroken("deadlines", "a deadline that has passed cannot be handled")
        return effects

    def deadline(self) -> Instant | None:
        """Return when `tick` is due."""
        return self.machine.deadline()

    def _turn(
        self, step: Callable[[], None], transfer: TransferId | None, now: Instant
    ) -> list[Effect]:
        books = self.machine.books
        try:
            step()
            invariants.check(books.pool)
        except InvariantBroken as broken:
            books.counters[BROKEN] += 1
            books.record("invariant_broken", None, invariant=broken.invariant, detail=str(broken))
            self._recover(broken, transfer, now)
        return books.take()

    def _recover(self, broken: InvariantBroken, transfer: TransferId | None, now: Instant) -> None:
        try:
            if transfer is not None:
                stage = WORKS_AT[self.machine.books.report.role]
                refusal = Refusal(Reason.INVARIANT, stage, str(broken))
                self.machine.fail(transfer, refusal, now)
            invariants.check(self.machine.books.pool)
        except InvariantBroken as again:
            raise LedgerBroken(again.invariant, str(again)) from broken


def _transfer_of(event: Event) -> TransferId | None:
    subject = event.message if isinstance(event, Told) else event
    return getattr(subject, "transfer", None)
