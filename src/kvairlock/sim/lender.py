"""A lender of the simulator: it offers what it computed, and anybody with an address reads it.

A read finds a page as it is at that moment, whatever the lender's books say by then: nothing but
the protocol stands between it and the next owner's bytes.
"""

from __future__ import annotations

from dataclasses import replace

from kvairlock.core.effects import Decline, Effect, Offer
from kvairlock.core.ends import end_for
from kvairlock.core.guards import GuardSet
from kvairlock.core.messages import Lent, Message, Release, Ruling, TransferTicket, Validate
from kvairlock.core.protocol.pull.lender import LenderLimits, LenderNode
from kvairlock.core.protocol.pull.loans import LoanStage
from kvairlock.core.terms import NodeName, Peer
from kvairlock.sim import flaws
from kvairlock.sim.outcome import Ending, Fault, Violation
from kvairlock.sim.prefill import PrefillSite
from kvairlock.sim.setup import LAYOUT, OFFER_MS, Setup
from kvairlock.sim.sometimes import Rare
from kvairlock.sim.stimuli import ClaimParcel, Content, Fetch, Remote, Store


class LenderSite(PrefillSite):
    """One life of a lender.

    Args:
        setup: The world.
        peer: Which life of which node.
    """

    def __init__(self, setup: Setup, peer: Peer) -> None:
        limits = setup.prefill_limits
        machine = LenderNode(
            setup.report(peer),
            GuardSet(setup.guards_off),
            LenderLimits(limits.verdict_ms, limits.prefix_pages, OFFER_MS),
            LAYOUT,
        )
        super().__init__(setup, peer, machine)
        self.lender = machine

    def hear(self, sender: Peer, content: Content) -> None:
        """Take a claim, or what its claimant says."""
        match content:
            case ClaimParcel(claimed):
                loan = self.lender.loans.get(claimed.claim.transfer)
                repeated = loan is not None and loan.stage is LoanStage.CLAIMED
                self.tell(claimed)
                if repeated and not any(r.event == "request_refused" for r in self.out.records):
                    self.reached(Rare.CLAIM_REPEATED)
            case Validate() | Release() | Ruling():
                self.tell_of(sender, content)
            case _:
                super().hear(sender, content)

    def perform(self, effect: Effect) -> None:
        """Give the gateway an offer or a refusal, or do what all prefill nodes do."""
        match effect:
            case Offer(transfer, receiver):
                self.out.offers.append(TransferTicket(transfer, self.peer, receiver))
            case Decline(transfer, refusal):
                end = end_for(refusal.reason)
                self.out.endings.append(Ending(transfer, end.value, refusal.reason.value))
            case _:
                super().perform(effect)

    def send(self, to: NodeName, message: Message) -> None:
        """State what was done, or what a flaw has in its place."""
        if isinstance(message, Lent) and message.pages:
            ask = self._ask(message.transfer)
            receipt = flaws.retold(self.setup, ask, message.receipt)
            message = replace(message, receipt=receipt)
        super().send(to, message)

    def touched(self, remote: Remote) -> None:
        """A page is read from outside."""
        if not isinstance(remote, Fetch):
            self.violate(Fault.HOST, f"{remote} from outside")
            return
        alive = remote.incarnation == self.peer.incarnation
        slots = tuple(self.memory[remote.page].tolist()) if alive else None
        self.out.remote.append((remote.back, Store(remote.window, remote.row, slots)))

    def left_behind(self) -> list[Violation]:
        """Loans, and what is left of a prefill node."""
        found = super().left_behind()
        if self.lender.loans:
            detail = f"{self.peer.node}: {len(self.lender.loans)} loans left"
            found.append(Violation(Fault.PAGES_LOST, detail))
        return found
