"""Who may have a prompt computed here: ticket, then what the own pool can ever hold."""

from __future__ import annotations

from kvairlock.core.effects import Decline, Offer
from kvairlock.core.ends import End
from kvairlock.core.errors import Reason, Refusal, Stage
from kvairlock.core.events import Asked, Granted
from kvairlock.core.messages import RequestTicket
from kvairlock.core.promise import admission
from kvairlock.core.promise.capacity import Demand
from kvairlock.core.protocol.ledger import judge_ticket
from kvairlock.core.protocol.prefill.intake import PLACEHOLDER_TOKENS, SEEDS, admit
from kvairlock.core.protocol.prefill.job import Job
from kvairlock.core.protocol.pull.lender.state import LenderState
from kvairlock.core.protocol.pull.loans import LoanStage
from kvairlock.core.terms import Claimant, Instant, Owner, WindowId, after

STAGE = Stage.PREFILL_ADMISSION
NO_WINDOW = WindowId("")


def asked(node: LenderState, event: Asked, now: Instant) -> None:
    """Queue a prompt, or decline with the reason."""
    ticket = event.presented.ticket
    if isinstance(ticket, Refusal):
        _decline(node, event, ticket)
        return
    before = node.claims.claimant(ticket.owner.transfer)
    if before is not None:
        _asked_again(node, ticket, event, before)
        return
    refusal = _judge(node, ticket, event)
    if refusal is not None:
        _decline(node, event, refusal)
        return
    admit(node, _job(node, ticket, event, now), event.claimant)


def _asked_again(node: LenderState, ticket: RequestTicket, event: Asked, before: Claimant) -> None:
    """A prompt is computed once: who asked is answered again, anybody else is declined."""
    if event.claimant != before:
        _decline(node, event, Refusal(Reason.REPLAYED, STAGE, "the ticket was used before"))
        return
    node.books.record_ignored(ticket.owner, "ask", "repeated by who asked")
    loan = node.loans.get(ticket.owner.transfer)
    if loan is not None and loan.stage is LoanStage.OFFERED:
        node.emit(Offer(loan.job.name, loan.receiver))


def _judge(node: LenderState, ticket: RequestTicket, event: Asked) -> Refusal | None:
    # Who will claim is not here yet: the ticket says who may.
    route, presented = node.books.route_with(ticket.receiver.node), event.presented
    _, refusal = judge_ticket(node.books, route, presented, ticket.receiver, node.claims, STAGE)
    if refusal is not None:
        return refusal
    if ticket.owner.transfer != event.transfer:
        return Refusal(Reason.IDENTITY, STAGE, "another request is asked for than the ticket names")
    if event.presented.prompt_tokens < 1:
        return Refusal(Reason.MALFORMED, STAGE, "there is no prompt to compute")
    if not 0 <= event.seed < SEEDS:
        return Refusal(Reason.MALFORMED, STAGE, "the seed is out of range")
    return node.books.judge_size(route, ticket.owner, Demand(event.presented.prompt_tokens, 0))


def _judge_room(node: LenderState, event: Asked) -> Refusal | None:
    demand = Demand(event.presented.prompt_tokens, 0)
    return admission.judge_prefill(node.books.report, demand)


def _job(node: LenderState, ticket: RequestTicket, event: Asked, now: Instant) -> Job:
    deadline = after(now, event.patience_ms)
    job = Job(_order(event, ticket), ticket, deadline, event.presented.prompt_tokens)
    if _judge_room(node, event) is not None:
        # What engines without the `capacity` guard did: note it, compute on a placeholder.
        job.outcome, job.stop = End.REJECTED, PLACEHOLDER_TOKENS
    return job


def _order(event: Asked, ticket: RequestTicket) -> Granted:
    """Return the prompt as the steps of push take it; a loan has no window to write into."""
    return Granted(
        transfer=event.transfer,
        presented=event.presented,
        decode=ticket.receiver,
        window=NO_WINDOW,
        window_pages=0,
        generations=(),
        layout="",
        seed=event.seed,
        patience_ms=event.patience_ms,
        page_keys=event.page_keys,
    )


def _decline(node: LenderState, event: Asked, refusal: Refusal) -> None:
    # In the name of who presented the ticket: whose it is has nothing to do with it.
    node.books.record_refusal(Owner.named(event.presented.tenant, event.transfer), refusal)
    node.emit(Decline(event.transfer, refusal))
