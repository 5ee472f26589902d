"""Answers to a claim: a receipt with coordinates, or a receipt of refusal that lends nothing."""

from __future__ import annotations

from kvairlock.core.effects import Send
from kvairlock.core.ends import End, end_for
from kvairlock.core.errors import Refusal
from kvairlock.core.events import Claimed
from kvairlock.core.messages import Lent, Receipt
from kvairlock.core.protocol.pull.lender.loan import Loan
from kvairlock.core.protocol.pull.lender.state import LenderState
from kvairlock.core.terms import Owner, TransferId, WindowId


def lend(node: LenderState, event: Claimed, loan: Loan) -> None:
    """State what was really done, and where it is: the same to every repeat of a claim."""
    job, span = loan.job, loan.span
    receipt = _receipt(node, event, job.owner, job.outcome, None, loan)
    pages, generations = tuple(span.pages.tolist()), tuple(span.generations.tolist())
    _send(node, event, Lent(*_claim(event), receipt, pages, generations, job.asked.seed))


def refuse(node: LenderState, event: Claimed, refusal: Refusal) -> None:
    """Refuse a claim with its reason: it crosses as a refusal."""
    owner = Owner.named(event.claim.tenant, event.claim.transfer)
    node.books.record_refusal(owner, refusal)
    receipt = _receipt(node, event, owner, end_for(refusal.reason), refusal, None)
    _send(node, event, Lent(*_claim(event), receipt, (), (), 0))


def _receipt(
    node: LenderState,
    event: Claimed,
    owner: Owner,
    outcome: End,
    refusal: Refusal | None,
    lent: Loan | None,
) -> Receipt:
    job = lent.job if lent else None
    digests = job.digests if job else ()
    return Receipt(
        transfer=event.claim.transfer,
        owner=owner,
        outcome=outcome,
        refusal=refusal,
        window=WindowId(event.claim.nonce),
        input_digest=job.input_digest if job else b"",
        layout=node.layout,
        pages=tuple(range(len(digests))),
        start=0,
        stop=job.stop if job else 0,
        generations=event.claim.generations,
        digests=digests,
        reused=job.reused_tokens(node.books.report.page_tokens) if job else 0,
    )


def _claim(event: Claimed) -> tuple[TransferId, str]:
    return event.claim.transfer, event.claim.nonce


def _send(node: LenderState, event: Claimed, lent: Lent) -> None:
    receipt = lent.receipt
    outcome, start, stop = receipt.outcome, receipt.start, receipt.stop
    node.books.record("receipt_sent", receipt.owner, outcome=outcome, start=start, stop=stop)
    node.emit(Send(event.peer.node, lent))
