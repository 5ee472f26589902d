"""One offer of a lender, as data: which pages, in which moment, claimed by whom."""

from __future__ import annotations

from dataclasses import dataclass

from kvairlock.core.memory.pool import Lease
from kvairlock.core.protocol.prefill.job import Job, PrefillLimits
from kvairlock.core.protocol.pull.loans import LoanStage
from kvairlock.core.terms import Claimant, PageSpan, Peer, Reader


@dataclass(frozen=True, slots=True)
class LenderLimits(PrefillLimits):
    """Deadlines and caps of a lender; `verdict_ms` is how long a claim holds the pages.

    Args:
        offer_ms: Longest wait for a claim.
    """

    offer_ms: int


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a loan.

    Args:
        peer: The node that claimed.
        nonce: The name of its claim.
        reader: Whether it asks afterwards.
    """

    peer: Peer
    nonce: str
    reader: Reader

    @property
    def claimant(self) -> Claimant:
        """Who may repeat the claim, ask about it and give it back."""
        return Claimant(self.peer.node, self.peer.incarnation, self.nonce)


@dataclass(slots=True)
class Loan:
    """Pages that are offered, or held by one claimant.

    Args:
        job: The prompt that they hold.
        span: The pages in token order, as they were when they were offered.
        stage: Where the loan is.
        holder: Who holds it, once claimed.
    """

    job: Job
    span: PageSpan
    stage: LoanStage = LoanStage.OFFERED
    holder: Holder | None = None

    @property
    def receiver(self) -> Peer:
        """The decode node that the request was issued for."""
        return self.job.ticket.receiver

    @property
    def leases(self) -> tuple[Lease, ...]:
        """The own pages, and those of shared prefixes in front of them."""
        return (self.job.own, *(entry.lease for entry in self.job.prefix.entries))

    @property
    def is_pinned(self) -> bool:
        """Whether somebody may be reading who will not ask afterwards."""
        return self.holder is not None and self.holder.reader is Reader.TRUSTING
