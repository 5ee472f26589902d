"""Lending: offer what is sealed, tell one claimant where it is, say whether it still stands."""

from __future__ import annotations

from functools import partial

from kvairlock.core.effects import Offer, Send
from kvairlock.core.errors import Reason, Refusal, Stage
from kvairlock.core.events import Claimed, Digested
from kvairlock.core.guards import Guard
from kvairlock.core.memory.page import PageStage
from kvairlock.core.memory.pool import Hold
from kvairlock.core.messages import RequestTicket, TransferTicket, Validate, Validated
from kvairlock.core.protocol import handoff
from kvairlock.core.protocol.handoff import Signal
from kvairlock.core.protocol.ledger import judge_ticket
from kvairlock.core.protocol.pull.lender.answers import lend, refuse
from kvairlock.core.protocol.pull.lender.loan import Holder, Loan
from kvairlock.core.protocol.pull.lender.state import OTHERS, LenderState
from kvairlock.core.protocol.pull.loans import LoanSignal, LoanStage, move
from kvairlock.core.terms import Instant, Owner, Peer, Route, after

LENT_STAGES = frozenset({PageStage.SEALED, PageStage.SHARED})
AT_CLAIM, AFTER_READ = Stage.PREFILL_ADMISSION, Stage.TRANSFER
NO_OFFER = Refusal(
    Reason.TIMEOUT, AT_CLAIM, "no offer stands: it was not claimed in time, taken back or returned"
)
"""Nothing against the request: whoever claims too late may compute the prompt itself."""


def digested(node: LenderState, event: Digested, now: Instant) -> None:
    """The sealed pages are digested: offer them, with a deadline."""
    job = node.let_go(event.transfer, Hold.COMPUTE)
    if job is None:
        return
    job.digests, job.input_digest = event.digests, event.input_digest
    job.stage = handoff.advance(job.stage, Signal.REPORT)
    job.deadline = after(now, node.limits.offer_ms)
    loan = Loan(job, node.books.pool.span(job.table))
    node.loans[job.name] = loan
    node.record_loan("pages_offered", loan, peer=loan.receiver.node)
    node.emit(Offer(job.name, loan.receiver))


def claimed(node: LenderState, event: Claimed, now: Instant) -> None:
    """Hold the pages for the first claimant and say where they are; a repeat is answered again."""
    loan = node.loans.get(event.claim.transfer)
    refusal = _judge(node, loan, event)
    if loan is None or refusal is not None:
        refuse(node, event, refusal or NO_OFFER)
        return
    if loan.stage is LoanStage.OFFERED:
        _hold(node, loan, event, now)
    lend(node, event, loan)


def _judge(node: LenderState, loan: Loan | None, event: Claimed) -> Refusal | None:
    presented, peer, judge = event.presented, event.peer, node.books.judge
    route = node.books.route_with(peer.node)
    ticket, refusal = judge_ticket(node.books, route, presented, peer, node.claims, AT_CLAIM)
    refusal = refusal or _judge_offer(node, route, event)
    if refusal is not None:
        return refusal
    if loan is None or loan.stage is LoanStage.REVOKED:
        return NO_OFFER
    refusal = judge(Guard.TICKET, route, loan.job.owner, partial(_judge_prompt, ticket, loan))
    if refusal is None and loan.holder is not None:
        held = node.is_held_by(loan, peer, event.claim.nonce)
        refusal = None if held else OTHERS
    return refusal


def _judge_prompt(ticket: RequestTicket | None, loan: Loan) -> Refusal | None:
    if ticket == loan.job.ticket:
        return None
    return Refusal(Reason.IDENTITY, AT_CLAIM, "the pages hold another request's prompt")


def _judge_offer(node: LenderState, route: Route, event: Claimed) -> Refusal | None:
    """Judge the transfer ticket: an offer of this life, for this transfer, to this node.

    As of a request ticket, a signature that is wrong is refused however the guard is set.
    """
    if isinstance(event.offer, Refusal):
        return event.offer
    owner = Owner.named(event.claim.tenant, event.claim.transfer)
    terms = partial(_judge_terms, node, event.offer, event)
    return node.books.judge(Guard.TICKET, route, owner, terms)


def _judge_terms(node: LenderState, offer: TransferTicket, event: Claimed) -> Refusal | None:
    if offer.transfer != event.claim.transfer:
        return Refusal(Reason.IDENTITY, AT_CLAIM, "another transfer is claimed than was offered")
    if offer.receiver != event.peer or offer.lender.node != node.me.node:
        return Refusal(Reason.REPLAYED, AT_CLAIM, "the offer was made to or by another node")
    if offer.lender != node.me:
        return Refusal(Reason.PEER_LOST, AT_CLAIM, "the life of this node that offered has ended")
    return None


def _hold(node: LenderState, loan: Loan, event: Claimed, now: Instant) -> None:
    claim, job = event.claim, loan.job
    loan.holder = Holder(event.peer, claim.nonce, claim.reader)
    loan.stage = move(loan.stage, LoanSignal.CLAIM)
    job.deadline = after(now, node.limits.verdict_ms)
    if loan.is_pinned:
        job.own.hold(Hold.LOAN)
    peer = event.peer.node
    node.record_loan("pages_claimed", loan, peer=peer, claim=claim.nonce, reader=claim.reader)


def validate(node: LenderState, peer: Peer, asked: Validate) -> None:
    """Say whether lent pages stand to this moment, by the books that decide what is freed."""
    loan = node.loans.get(asked.transfer)
    refusal = _judge_standing(node, loan, peer, asked.nonce)
    if loan is not None:
        outcome = refusal.reason if refusal else "stood"
        node.record_loan(
            "pages_validated", loan, peer=peer.node, claim=asked.nonce, outcome=outcome
        )
    node.emit(Send(peer.node, Validated(asked.transfer, asked.nonce, refusal)))


def _judge_standing(node: LenderState, loan: Loan | None, peer: Peer, nonce: str) -> Refusal | None:
    if loan is None or loan.stage is not LoanStage.CLAIMED:
        return Refusal(Reason.GENERATION, AFTER_READ, "the loan has ended")
    if not node.is_held_by(loan, peer, nonce):
        return Refusal(Reason.REPLAYED, AFTER_READ, "the loan is somebody else's")
    stale = node.books.pool.stale(loan.span, LENT_STAGES)
    if len(stale):
        return Refusal(
            Reason.GENERATION, AFTER_READ, f"{len(stale)} pages have other content by now"
        )
    return None
