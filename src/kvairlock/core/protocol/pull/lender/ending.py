"""Ends of a loan: returned, revoked by time, or its reader is gone. Pages drain on evidence."""

from __future__ import annotations

from kvairlock.core.effects import Decline, Send
from kvairlock.core.errors import Reason, Refusal, Stage
from kvairlock.core.memory.pool import Hold
from kvairlock.core.messages import Release, Returned, Ruling
from kvairlock.core.protocol import handoff
from kvairlock.core.protocol.handoff import HandoffStage, Signal
from kvairlock.core.protocol.prefill import ending as push
from kvairlock.core.protocol.prefill.job import Job
from kvairlock.core.protocol.prefill.sharing import keep
from kvairlock.core.protocol.pull.lender.loan import Loan
from kvairlock.core.protocol.pull.lender.state import LenderState
from kvairlock.core.protocol.pull.loans import LoanSignal, LoanStage, move
from kvairlock.core.terms import Fence, Instant, Owner, Peer, TransferId

UNUSED = Refusal(Reason.PEER_REJECTED, Stage.VERDICT, "decode returned the pages without use")
GONE = Refusal(Reason.PEER_LOST, Stage.TRANSFER, "the decode node's process has ended")
LEFT = Refusal(Reason.CANCELLED, Stage.GATEWAY, "the client left")


def ruled(node: LenderState, peer: Peer, ruling: Ruling) -> None:
    """Decode has judged what it read: what it admitted may be kept as a prefix once returned."""
    loan = node.loans.get(ruling.transfer)
    if not ruling.admitted:
        return  # Its release follows, and is what ends the loan.
    if loan is None or not _is_reported_to(loan, peer):
        node.books.record_ignored(loan.job.owner if loan else None, "ruling", "no receipt is open")
        return
    loan.job.stage = handoff.advance(loan.job.stage, Signal.CONFIRM)


def _is_reported_to(loan: Loan, peer: Peer) -> bool:
    """Whether this peer was told what was done, and has not judged it yet."""
    holder = loan.holder
    open_stages = (LoanStage.CLAIMED, HandoffStage.REPORTED)
    return (
        holder is not None and holder.peer == peer and (loan.stage, loan.job.stage) == open_stages
    )


def released(node: LenderState, peer: Peer, release: Release, now: Instant) -> None:
    """A claimant gives its claim back. It is answered in any case: it holds nothing here."""
    loan = node.loans.get(release.transfer)
    if loan is not None and _may_return(node, loan, peer, release.nonce):
        _return(node, loan, Fence.ACKNOWLEDGED, UNUSED, now)
    else:
        owner = loan.job.owner if loan else None
        node.books.record_ignored(owner, "release", "nothing is held under this claim")
    node.emit(Send(peer.node, Returned(release.transfer, release.nonce)))


def _may_return(node: LenderState, loan: Loan, peer: Peer, nonce: str) -> bool:
    """Whether it is the claimant's, or its claim was lost and only the release arrived."""
    if loan.holder is None:
        return loan.receiver == peer
    return node.is_held_by(loan, peer, nonce)


def _return(node: LenderState, loan: Loan, fence: Fence, unused: Refusal, now: Instant) -> None:
    """End a loan of which it is known that nobody reads it any more."""
    job, claim = loan.job, loan.holder.nonce if loan.holder else ""
    pages = tuple(loan.span.pages.tolist())
    node.books.record("pages_returned", job.owner, claim=claim, pages=pages)
    _forget(node, loan, fence)
    if job.name not in node.jobs:
        return  # It was revoked, and only waited for its reader.
    admitted = job.stage is HandoffStage.CONFIRMED
    if admitted:
        keep(node, job, now)
    _close(node, job, None if admitted else unused, now)


def expire(node: LenderState, job: Job, now: Instant) -> None:
    """End what waited too long: a prompt for its turn, an offer for a claim, a claim to end."""
    loan = node.loans.get(job.name)
    waits = loan.stage if loan else "filling"
    refusal = Refusal(Reason.TIMEOUT, Stage.PREFILL, f"waited too long while {waits}")
    fail(node, job, refusal, now)


def fail(node: LenderState, job: Job, refusal: Refusal, now: Instant) -> None:
    """End a prompt for a reason of ours: decline it, or take back what was offered."""
    loan = node.loans.get(job.name)
    if loan is not None:
        _revoke(node, loan, refusal)
    else:
        node.books.record_refusal(job.owner, refusal)
        node.emit(Decline(job.name, refusal))
    _close(node, job, refusal, now)


def _revoke(node: LenderState, loan: Loan, refusal: Refusal) -> None:
    """Take pages back. Who asks afterwards is told so; for a reader that does not, they wait."""
    holder = loan.holder
    node.record_loan(
        "pages_revoked",
        loan,
        claim=holder.nonce if holder else "",
        reader=holder.reader if holder else "",
        reason=refusal.reason,
    )
    loan.stage = move(loan.stage, LoanSignal.REVOKE)
    if not loan.is_pinned:
        _forget(node, loan, Fence.REVOKED if holder else Fence.LOCAL)


def _forget(node: LenderState, loan: Loan, fence: Fence) -> None:
    """Let go of a loan on evidence that nobody reads it, or that its reader will ask in vain."""
    if loan.is_pinned:
        loan.job.own.release(Hold.LOAN)
    for lease in loan.leases:
        lease.fence = fence
    loan.stage = move(loan.stage, LoanSignal.RETURN)
    del node.loans[loan.job.name]


def peer_gone(node: LenderState, peer: Peer, now: Instant) -> None:
    """The process of a decode node has ended: it reads nothing, and nobody else may claim."""
    for loan in list(node.loans.values()):
        if peer in (loan.receiver, loan.holder.peer if loan.holder else None):
            _return(node, loan, Fence.PROCESS_GONE, GONE, now)
    for job in list(node.jobs.values()):
        if job.ticket.receiver == peer:
            fail(node, job, GONE, now)


def cancelled(node: LenderState, gateway: Peer, name: TransferId, now: Instant) -> None:
    """End a prompt whose client left before it was claimed: after that, decode hears of it."""
    job, loan = node.jobs.get(name), node.loans.get(name)
    if job is None or (loan is not None and loan.stage is not LoanStage.OFFERED):
        owner = job.owner if job else Owner.named("", name)
        node.books.record_ignored(owner, "cancel", "nothing waits to be claimed")
    elif not _may_cancel(node, gateway, name):
        node.books.record_ignored(job.owner, "cancel", "from another gateway")
    else:
        fail(node, job, LEFT, now)


def _may_cancel(node: LenderState, gateway: Peer, name: TransferId) -> bool:
    """Whether it is the gateway that asked; a ticket that has been forgotten nobody can claim."""
    asker = node.claims.claimant(name)
    return asker is None or (asker.node, asker.incarnation) == (gateway.node, gateway.incarnation)


def engine_failed(node: LenderState, name: TransferId, message: str, now: Instant) -> None:
    """The engine raised while it computed a prompt."""
    job = node.let_go(name, Hold.COMPUTE)
    if job is not None:
        fail(node, job, Refusal(Reason.ENGINE, Stage.PREFILL, message), now)


def _close(node: LenderState, job: Job, refusal: Refusal | None, now: Instant) -> None:
    push.stop(node, job)
    push.give_back(node, job, refusal, now)
