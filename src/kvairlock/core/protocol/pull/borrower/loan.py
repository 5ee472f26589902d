"""One claim of a borrower, as data: from whom, what was lent, how far the read is."""

from __future__ import annotations

from dataclasses import dataclass

from kvairlock.core.effects import SendClaim
from kvairlock.core.memory.windows import Window
from kvairlock.core.protocol.decode.reception import DecodeLimits
from kvairlock.core.protocol.pull.loans import LoanSignal, LoanStage, move
from kvairlock.core.terms import Instant, Owner, Pages, Peer, TransferId


@dataclass(frozen=True, slots=True)
class BorrowerLimits(DecodeLimits):
    """Deadlines and caps of a borrower.

    `prefill_ms` is the longest wait for the answer to a claim, `landing_ms` the longest for a read
    and the word that it stood, `landing_pages` caps the pages that are being read into.

    Args:
        repeat_ms: After how long a claim, a question or a release is repeated.
    """

    repeat_ms: int = 200


@dataclass(slots=True)
class Loan:
    """What one request has claimed.

    Args:
        owner: Whose request it is.
        window: The own pages to read into; it has the claim's name, and the lender as its writer.
        claim: The claim, to be repeated until it is answered.
        lender: Whose pages they are; None once its process has ended: nothing is left to return.
        stage: Where the loan is.
        digests: Digests of what landed, once the read is terminal.
        repeat_at: When to say again what was not answered.
    """

    owner: Owner
    window: Window
    claim: SendClaim
    lender: Peer | None
    repeat_at: Instant
    stage: LoanStage = LoanStage.OFFERED
    digests: tuple[int, ...] = ()

    @property
    def name(self) -> TransferId:
        """The transfer's name."""
        return self.claim.transfer

    @property
    def nonce(self) -> str:
        """The claim's name."""
        return self.claim.nonce

    @property
    def target(self) -> Pages:
        """The own pages to read into, in token order, shape (pages,)."""
        return self.window.lease.pages[: self.window.pages]

    def is_with(self, peer: Peer, nonce: str) -> bool:
        """Whether what a peer says is about this claim."""
        return self.lender == peer and self.nonce == nonce

    def move(self, signal: LoanSignal) -> None:
        """Go on to the next stage.

        Raises:
            InvariantBroken: The table has no such edge.
        """
        self.stage = move(self.stage, signal)
