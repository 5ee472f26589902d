"""What a borrower keeps beside what every decode node keeps, and what all its steps share."""

from __future__ import annotations

from kvairlock.core.effects import Effect, OpenWindow
from kvairlock.core.errors import Reason, Refusal, Stage
from kvairlock.core.guards import Guard, GuardSet
from kvairlock.core.promise.capacity import CapacityReport
from kvairlock.core.protocol.decode import DecodeNode
from kvairlock.core.protocol.decode.reception import Reception
from kvairlock.core.protocol.handoff import HandoffStage
from kvairlock.core.protocol.pull.borrower.loan import BorrowerLimits, Loan
from kvairlock.core.protocol.pull.loans import LoanStage
from kvairlock.core.terms import LandingPolicy, Reader, TransferId

WANTED = frozenset({HandoffStage.GRANTED, HandoffStage.REPORTED})


class BorrowerState(DecodeNode):
    """The books of one borrower and everything that is under way on it.

    Args:
        report: What the node measured; `landing_pages` in it is what one tenant may read into.
        guards: How all guards are set.
        limits: Deadlines and caps.
        layout: Digest of the node's page layout.
        reader: Whether it asks after its reads; it can only trust a lender that waits for it.
    """

    limits: BorrowerLimits

    def __init__(
        self,
        report: CapacityReport,
        guards: GuardSet,
        limits: BorrowerLimits,
        layout: str,
        reader: Reader = Reader.VALIDATING,
    ) -> None:
        super().__init__(report, guards, limits, LandingPolicy.COPY, layout)
        self.reader = reader
        self.loans: dict[TransferId, Loan] = {}

    @property
    def asks(self) -> bool:
        """Whether the lender is asked after a read: the `generation` guard of pull, unless off."""
        return self.reader is Reader.VALIDATING and self.on(Guard.GENERATION)

    def emit(self, effect: Effect) -> None:
        """Add an effect; what is granted is no window to open, but own pages to read into."""
        if not isinstance(effect, OpenWindow):
            super().emit(effect)

    def wants(self, loan: Loan) -> bool:
        """Whether a request still waits for what it has claimed."""
        reception = self.receptions.get(loan.name)
        if reception is None or reception.window is not loan.window:
            return False
        return reception.stage in WANTED

    def pages_draining(self, tenant: str | None = None) -> int:
        """Pages of ended leases; windows are among them, since they are pool pages here."""
        return self.books.drain.pages_of(tenant)

    def refusal_for_wait(self, reception: Reception) -> Refusal:
        """Say why a request whose deadline has passed is refused."""
        loan, wait_ms = self.loans.get(reception.name), self.limits.landing_ms
        if loan is None or reception.stage is not HandoffStage.REPORTED:
            return super().refusal_for_wait(reception)
        if loan.stage is LoanStage.READING:
            message = f"the read did not end within {wait_ms} ms"
            return Refusal(Reason.TIMEOUT, Stage.TRANSFER, message)
        message = f"the lender did not say within {wait_ms} ms whether its pages stood"
        return Refusal(Reason.MISSING_EVIDENCE, Stage.TRANSFER, message)
