"""Who may enter a decode node: ticket, claim, capacity, share, in this order."""

from __future__ import annotations

from dataclasses import replace

from kvairlock.core.effects import Send, StartDecode
from kvairlock.core.ends import end_for
from kvairlock.core.errors import Reason, Refusal, Stage
from kvairlock.core.events import Submitted
from kvairlock.core.guards import Guard
from kvairlock.core.messages import Ended, RequestTicket
from kvairlock.core.promise import admission
from kvairlock.core.promise.capacity import Demand
from kvairlock.core.protocol.decode.ending import finish
from kvairlock.core.protocol.decode.reception import Reception
from kvairlock.core.protocol.decode.state import DecodeState
from kvairlock.core.protocol.handoff import HandoffStage
from kvairlock.core.protocol.ledger import judge_ticket
from kvairlock.core.terms import Claimant, Instant, Owner, after

STAGE = Stage.DECODE_ADMISSION
NO_TICKET = Refusal(Reason.FORGED, STAGE, "there is no ticket that names a request")


def submitted(node: DecodeState, asked: Submitted, now: Instant) -> None:
    """Admit a request to the queue, or refuse it with its reason."""
    presented, guards = asked.presented, node.books.guards
    ticket, refusal = judge_ticket(presented, node.me, node.claims, guards, STAGE)
    if ticket is None:
        _refuse(node, asked, refusal or NO_TICKET)
        return
    claim = node.claims.claimant(ticket.owner.transfer)
    if refusal is None and claim == asked.claimant:
        node.books.record_ignored(ticket.owner, "submit", "repeated by the same claimant")
        return
    refusal = refusal or _judge_sense(asked) or _judge(node, ticket, claim, asked)
    if refusal is not None:
        _refuse(node, asked, refusal)
    elif claim is not None and ticket.owner.transfer in node.receptions:
        _attach(node, ticket, asked, now)
    else:
        _admit(node, ticket, asked, now)


def demand_of(asked: Submitted) -> Demand:
    """Return what a submitted request needs."""
    return Demand(asked.presented.prompt_tokens, asked.max_tokens, asked.choices)


def _judge_sense(asked: Submitted) -> Refusal | None:
    """Refuse what makes no sense; the gateway does before, a node relies on nobody."""
    if min(asked.presented.prompt_tokens, asked.max_tokens, asked.choices) >= 1:
        return None
    message = "a request has a prompt, and at least one token and one choice to generate"
    return Refusal(Reason.MALFORMED, STAGE, message)


def _judge(
    node: DecodeState, ticket: RequestTicket, claim: Claimant | None, asked: Submitted
) -> Refusal | None:
    if claim is not None and node.on(Guard.CLAIMANT):
        return Refusal(Reason.REPLAYED, STAGE, "the ticket was used by somebody else before")
    if node.on(Guard.TICKET) and _exceeds(ticket, asked):
        return Refusal(Reason.INPUT, STAGE, "more is asked than the ticket was issued for")
    if asked.prefill not in node.peers:
        return Refusal(Reason.PEER_LOST, STAGE, f"no link to {asked.prefill}")
    return _judge_room(node, ticket.owner.tenant, demand_of(asked))


def _exceeds(ticket: RequestTicket, asked: Submitted) -> bool:
    return asked.max_tokens > ticket.max_tokens or asked.choices > ticket.choices


def _judge_room(node: DecodeState, tenant: str, demand: Demand) -> Refusal | None:
    report = node.books.report
    if node.on(Guard.CAPACITY):
        refusal = admission.judge_decode(report, demand)
        if refusal is not None:
            return refusal
    if node.on(Guard.SHARE):
        pages = demand.prompt_pages(report.page_tokens)
        pinned = node.pages_draining(tenant)
        refusal = admission.judge_share(pinned, pages, report.landing_pages)
        if refusal is not None:
            return refusal
    return admission.judge_place(node.queue, tenant, node.limits.queue_max)


def _admit(node: DecodeState, ticket: RequestTicket, asked: Submitted, now: Instant) -> None:
    name, demand = ticket.owner.transfer, demand_of(asked)
    deadline = after(now, node.limits.queue_ms)
    node.receptions[name] = Reception(name, ticket, asked, demand, deadline)
    node.claims.remember(ticket, asked.claimant, asked.presented.now_unix_s)
    node.queue.join(ticket.owner.tenant, name)
    node.books.counters["admitted"] += 1
    node.books.record(
        "request_admitted",
        ticket.owner,
        stage=STAGE,
        prompt_tokens=demand.prompt_tokens,
        max_tokens=demand.max_tokens,
    )
    if len(node.queue) > node.limits.queue_max:
        _push_out(node, now)


def _push_out(node: DecodeState, now: Instant) -> None:
    """End the youngest request of the tenant of whom most wait: it gives its place to another."""
    tenant = node.queue.longest()
    youngest = node.receptions[node.queue.youngest(tenant)]
    waiting = node.queue.waiting(tenant)
    refusal = admission.over_equal_places(node.queue, waiting, node.limits.queue_max)
    node.books.counters["pushed_out"] += 1
    finish(node, youngest, refusal, now)


def _refuse(node: DecodeState, asked: Submitted, refusal: Refusal) -> None:
    # In the name of who presented the ticket: whose it is has nothing to do with it.
    presenter = Owner.named(asked.presented.tenant, asked.transfer)
    node.books.record_refusal(presenter, refusal)
    ended = Ended(asked.transfer, end_for(refusal.reason), refusal, 0, 0, 0)
    node.emit(Send(asked.gateway.node, ended))


def _attach(node: DecodeState, ticket: RequestTicket, asked: Submitted, now: Instant) -> None:
    """Without the `claimant` guard: whoever presents a ticket reads what it names."""
    original = node.receptions[ticket.owner.transfer]
    if original.stage is not HandoffStage.CONFIRMED:
        _refuse(node, asked, NO_TICKET)
        return
    named = replace(ticket, owner=Owner.named(asked.presented.tenant, asked.transfer))
    deadline = after(now, node.limits.decode_ms)
    stage = HandoffStage.CONFIRMED
    guest = Reception(asked.transfer, named, asked, original.demand, deadline, stage)
    guest.tables = original.tables[:1]
    guest.computed_tokens = original.computed_tokens
    guest.reused_tokens = original.reused_tokens
    node.receptions[guest.name] = guest
    node.record_reading("read_started", guest, node.books.pool.span(guest.tables[0]))
    node.emit(StartDecode(guest.name, guest.tables, original.name))
