"""What a lender keeps, and what all its steps share."""

from __future__ import annotations

from kvairlock.core.effects import Value
from kvairlock.core.errors import Reason, Refusal, Stage
from kvairlock.core.guards import Guard, GuardSet
from kvairlock.core.promise.capacity import CapacityReport
from kvairlock.core.protocol.prefill.state import PrefillState
from kvairlock.core.protocol.pull.lender.loan import LenderLimits, Loan
from kvairlock.core.terms import Claimant, Peer, TransferId

OTHERS = Refusal(Reason.REPLAYED, Stage.PREFILL_ADMISSION, "somebody else has claimed these pages")


class LenderState(PrefillState):
    """The books of one lender and everything that is under way on it.

    Args:
        report: What the node measured.
        guards: How all guards are set.
        limits: Deadlines and caps.
        layout: Digest of the node's page layout.
    """

    limits: LenderLimits

    def __init__(
        self, report: CapacityReport, guards: GuardSet, limits: LenderLimits, layout: str
    ) -> None:
        super().__init__(report, guards, limits, layout)
        self.me = Peer(report.node, report.role, report.incarnation)
        self.loans: dict[TransferId, Loan] = {}

    def is_held_by(self, loan: Loan, peer: Peer, nonce: str) -> bool:
        """Whether a loan is this claimant's; where `claimant` does not enforce it is anybody's."""
        if loan.holder is None:
            return False
        known = loan.holder.claimant == Claimant(peer.node, peer.incarnation, nonce)
        route, owner = self.books.route_with(peer.node), loan.job.owner
        refusal = None if known else OTHERS
        return self.books.judge(Guard.CLAIMANT, route, owner, lambda: refusal) is None

    def record_loan(self, event: str, loan: Loan, **fields: Value) -> None:
        """Note what becomes of lent pages."""
        span = loan.span
        pages, generations = tuple(span.pages.tolist()), tuple(span.generations.tolist())
        self.books.record(event, loan.job.owner, pages=pages, generations=generations, **fields)
