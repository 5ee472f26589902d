"""Who may enter a prefill node: ticket, layout, and what the own pool can ever hold."""

from __future__ import annotations

from kvairlock.core.effects import DropWindow, Send
from kvairlock.core.ends import End, end_for
from kvairlock.core.errors import Reason, Refusal, Stage
from kvairlock.core.events import Granted
from kvairlock.core.messages import Released, RequestTicket
from kvairlock.core.promise import admission
from kvairlock.core.promise.capacity import Demand
from kvairlock.core.protocol import handoff
from kvairlock.core.protocol.handoff import Signal
from kvairlock.core.protocol.ledger import judge_ticket
from kvairlock.core.protocol.prefill.job import Job
from kvairlock.core.protocol.prefill.receipts import send_receipt
from kvairlock.core.protocol.prefill.state import PrefillState
from kvairlock.core.terms import Claimant, Instant, Owner, after, pages_for

STAGE = Stage.PREFILL_ADMISSION
NO_TICKET = Refusal(Reason.FORGED, STAGE, "there is no ticket that names a request")
PLACEHOLDER_TOKENS = 1
SEEDS = 2**64


def granted(node: PrefillState, asked: Granted, now: Instant) -> None:
    """Queue a prompt, or refuse it with its reason: the refusal crosses as one."""
    if _is_repeated(node, asked):
        return
    route = node.books.route_with(asked.decode.node)
    ticket, refusal = judge_ticket(
        node.books, route, asked.presented, asked.decode, node.claims, STAGE
    )
    refusal = refusal or _judge_grant(node, ticket, asked)
    if ticket is None or refusal is not None:
        owner = ticket.owner if ticket else Owner.named("", asked.transfer)
        _refuse(node, asked, owner, refusal or NO_TICKET)
        return
    tokens = asked.presented.prompt_tokens
    job = Job(asked, ticket, after(now, asked.patience_ms), tokens)
    demand = Demand(tokens, 0)
    refusal = node.books.judge_size(route, ticket.owner, demand)
    if refusal is not None:
        _refuse(node, asked, ticket.owner, refusal)
        return
    if admission.judge_prefill(node.books.report, demand) is not None:
        # What engines without this guard did: note the rejection, compute on a placeholder.
        job.outcome, job.stop = End.REJECTED, PLACEHOLDER_TOKENS
    decode = asked.decode
    admit(node, job, Claimant(decode.node, decode.incarnation, asked.window))


def _is_repeated(node: PrefillState, asked: Granted) -> bool:
    """A transfer is made once: a repeated grant gives its window back, unless it is in use here."""
    known = node.known(asked.transfer)
    if known is None and node.claims.claimant(asked.transfer) is None:
        return False
    owner = known.owner if known else Owner.named("", asked.transfer)
    node.books.record_ignored(owner, "grant", "this transfer was granted before")
    if known is None or known.asked.window != asked.window or not node.uses_window(known):
        drop(node, asked)
    return True


def drop(node: PrefillState, asked: Granted) -> None:
    """Give a window back into which nothing was written."""
    node.emit(DropWindow(asked.transfer, asked.window))
    node.emit(Send(asked.decode.node, Released(asked.transfer, asked.window, 0)))


def _judge_grant(
    node: PrefillState, ticket: RequestTicket | None, asked: Granted
) -> Refusal | None:
    if ticket is None:
        return NO_TICKET
    if ticket.owner.transfer != asked.transfer:
        return Refusal(Reason.IDENTITY, STAGE, "the grant names another request than its ticket")
    size = node.books.pool.page_tokens
    if asked.window_pages < pages_for(asked.presented.prompt_tokens, size):
        return Refusal(Reason.MALFORMED, STAGE, "the window has too little room for the prompt")
    if not 0 <= asked.seed < SEEDS:
        return Refusal(Reason.MALFORMED, STAGE, "the grant's seed is out of range")
    if asked.layout != node.layout:
        return Refusal(Reason.MODEL_LAYOUT, STAGE, "the grant is for another model layout")
    return None


def admit(node: PrefillState, job: Job, claimant: Claimant) -> None:
    """Queue a prompt, and remember who used its ticket."""
    node.claims.remember(job.ticket, claimant, job.asked.presented.now_unix_s)
    job.stage = handoff.advance(job.stage, Signal.GRANT)
    node.jobs[job.name] = job
    node.queue.append(job.name)
    node.books.counters["admitted"] += 1
    node.books.record(
        "request_admitted",
        job.owner,
        stage=STAGE,
        prompt_tokens=job.asked.presented.prompt_tokens,
        max_tokens=job.ticket.max_tokens,
    )


def _refuse(node: PrefillState, asked: Granted, owner: Owner, refusal: Refusal) -> None:
    node.books.record_refusal(owner, refusal)
    drop(node, asked)
    send_receipt(node, asked, owner, end_for(refusal.reason), refusal)
