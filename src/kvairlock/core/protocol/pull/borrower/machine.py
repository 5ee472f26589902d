"""The machine of a borrower: what a decode node is told, and what is about loans."""

from __future__ import annotations

from kvairlock.core.events import Event, PeerGone, PeerLost, PeerUp, ReadEnded, Submitted, Told
from kvairlock.core.messages import Lent, Receipt, Released, Returned, Validated
from kvairlock.core.protocol.decode import ending
from kvairlock.core.protocol.pull.borrower import claiming, fetching, offers, returning
from kvairlock.core.protocol.pull.borrower.state import BorrowerState
from kvairlock.core.terms import Instant, Peer


class BorrowerNode(BorrowerState):
    """The machine of one borrower; see `BorrowerState` for its arguments."""

    def handle(self, event: Event, now: Instant) -> None:
        """Take one event; what should happen is in `books.out`."""
        match event:
            case Submitted():
                super().handle(offers.judged(self, event), now)
            case ReadEnded():
                fetching.read_ended(self, event, now)
                self._settle(now)
            case Told(peer, Lent() | Validated() | Returned() as answer):
                self._answered(peer, answer, now)
                self._settle(now)
            case Told(_, Receipt() | Released()):
                self.books.record_ignored(None, "receipt", "nothing is pushed to a borrower")
            case PeerGone(peer):
                # Windows stay: they are our own pages, and the writer is our own read.
                returning.lender_gone(self, peer, now)
                ending.abandon(self, peer, now)
                self._settle(now)
            case _:
                self._peer_changed(event, now)
                super().handle(event, now)

    def deadline(self) -> Instant | None:
        """Return when `tick` is due, if anything waits."""
        first, times = super().deadline(), returning.deadlines(self)
        return min(times if first is None else [first, *times], default=None)

    def _answered(self, peer: Peer, answer: Lent | Validated | Returned, now: Instant) -> None:
        match answer:
            case Lent():
                claiming.lent(self, peer, answer, now)
            case Validated():
                fetching.validated(self, peer, answer, now)
            case Returned():
                returning.returned(self, peer, answer)

    def _peer_changed(self, event: Event, now: Instant) -> None:
        """End what waits for a lender that is lost, or that is there in another life."""
        match event:
            case PeerLost(peer):
                returning.lender_lost(self, peer, now)
            case PeerUp(peer):
                returning.lender_up(self, peer, now)

    def _settle(self, now: Instant) -> None:
        returning.settle(self, now)
        super()._settle(now)
        claiming.claim_granted(self, now)
