"""Returning: every claim is given back in the end, once no read of it is under way any more.

What is not answered is said again, until the lender acknowledges it or its process has ended.
"""

from __future__ import annotations

from kvairlock.core.effects import Send
from kvairlock.core.errors import Reason, Refusal, Stage
from kvairlock.core.messages import Release, Returned, Validate
from kvairlock.core.protocol.decode.ending import fail_or_recover
from kvairlock.core.protocol.pull.borrower.loan import Loan
from kvairlock.core.protocol.pull.borrower.state import BorrowerState
from kvairlock.core.protocol.pull.loans import LoanSignal, LoanStage
from kvairlock.core.terms import Fence, Instant, Peer, after

SPEAKING = frozenset({LoanStage.CLAIMED, LoanStage.READ, LoanStage.RETURNED})
"""Stages in which the lender's answer is waited for."""


def say(node: BorrowerState, loan: Loan, now: Instant) -> None:
    """Tell the lender, or tell it again, what its answer is waited for."""
    loan.repeat_at = after(now, node.limits.repeat_ms)
    lender = loan.window.writer.node
    match loan.stage:
        case LoanStage.CLAIMED:
            node.emit(loan.claim)
        case LoanStage.READ:
            node.emit(Send(lender, Validate(loan.name, loan.nonce)))
        case LoanStage.RETURNED:
            node.emit(Send(lender, Release(loan.name, loan.nonce)))


def deadlines(node: BorrowerState) -> list[Instant]:
    """When something is to be said again to a lender that is there."""
    return [loan.repeat_at for loan in node.loans.values() if _waits(node, loan)]


def _waits(node: BorrowerState, loan: Loan) -> bool:
    lender = loan.lender
    return lender is not None and node.peers.get(lender.node) == lender and loan.stage in SPEAKING


def settle(node: BorrowerState, now: Instant) -> None:
    """Give back what no request waits for, and repeat what was not answered."""
    for loan in list(node.loans.values()):
        if loan.stage not in {LoanStage.READING, LoanStage.RETURNED} and not node.wants(loan):
            _give_back(node, loan, now)
        elif _waits(node, loan) and loan.repeat_at <= now:
            say(node, loan, now)


def _give_back(node: BorrowerState, loan: Loan, now: Instant) -> None:
    node.windows.fence(loan.window.id, Fence.LOCAL, now)  # Unless its read was the evidence.
    loan.move(LoanSignal.RETURN)
    pages = tuple(loan.target.tolist())
    node.books.record("pages_returned", loan.owner, claim=loan.nonce, pages=pages)
    if loan.lender is None:
        del node.loans[loan.name]
    else:
        say(node, loan, now)


def returned(node: BorrowerState, peer: Peer, answer: Returned) -> None:
    """The lender holds nothing under a claim any more: forget it."""
    loan = node.loans.get(answer.transfer)
    if loan is None or not loan.is_with(peer, answer.nonce):
        node.books.record_ignored(None, "returned", "no such claim")
    elif loan.stage is LoanStage.RETURNED:
        del node.loans[loan.name]


def lender_lost(node: BorrowerState, peer: Peer, now: Instant) -> None:
    """Without its lender nobody can say that a read stood; the read itself runs to its end."""
    refusal = Refusal(Reason.PEER_LOST, Stage.TRANSFER, f"{peer.node} was lost during the read")
    for loan in list(node.loans.values()):
        if loan.lender == peer and node.wants(loan):
            fail_or_recover(node, node.receptions[loan.name], refusal, now)


def lender_gone(node: BorrowerState, peer: Peer, now: Instant) -> None:
    """The process of a lender has ended, and with it whatever it held for us."""
    lender_lost(node, peer, now)
    for loan in list(node.loans.values()):
        if loan.lender == peer:
            loan.lender = None
            if loan.stage is LoanStage.RETURNED:
                del node.loans[loan.name]


def lender_up(node: BorrowerState, peer: Peer, now: Instant) -> None:
    """A node is there: if it is another life of a lender, the former one has ended."""
    for loan in list(node.loans.values()):
        lender = loan.lender
        if lender is not None and lender.node == peer.node and lender != peer:
            lender_gone(node, lender, now)
