"""Who may enter a decode node: ticket, claim, capacity, share, in this order."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from kvairlock.core.effects import Send, StartDecode
from kvairlock.core.ends import end_for
from kvairlock.core.errors import Reason, Refusal, Stage
from kvairlock.core.events import Submitted
from kvairlock.core.guards import Guard
from kvairlock.core.messages import Ended, RequestTicket
from kvairlock.core.promise import admission
from kvairlock.core.promise.capacity import Demand
from kvairlock.core.protocol.decode.covering import weaken
from kvairlock.core.protocol.decode.ending import finish
from kvairlock.core.protocol.decode.reception import Reception
from kvairlock.core.protocol.decode.state import DecodeState
from kvairlock.core.protocol.handoff import HandoffStage
from kvairlock.core.protocol.ledger import judge_ticket
from kvairlock.core.terms import Claimant, Instant, Owner, Route, after

STAGE = Stage.DECODE_ADMISSION
NO_TICKET = Refusal(Reason.FORGED, STAGE, "there is no ticket that names a request")


def submitted(node: DecodeState, asked: Submitted, now: Instant) -> None:
    """Admit a request to the queue, or refuse it with its reason."""
    route = node.books.route_with(asked.prefill)
    ticket, refusal = judge_ticket(node.books, route, asked.presented, node.me, node.claims, STAGE)
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
    judge, route = node.books.judge, node.books.route_with(asked.prefill)
    used, exceeds = partial(_judge_claim, claim), partial(_judge_extent, ticket, asked)
    refusal = judge(Guard.CLAIMANT, route, _presenter(asked), used)
    refusal = refusal or judge(Guard.TICKET, route, ticket.owner, exceeds)
    if refusal is None and asked.prefill not in node.peers:
        refusal = Refusal(Reason.PEER_LOST, STAGE, f"no link to {asked.prefill}")
    return refusal or _judge_room(node, route, ticket.owner, demand_of(asked))


def _judge_claim(claim: Claimant | None) -> Refusal | None:
    if claim is None:
        return None
    return Refusal(Reason.REPLAYED, STAGE, "the ticket was used by somebody else before")


def _judge_extent(ticket: RequestTicket, asked: Submitted) -> Refusal | None:
    if asked.max_tokens <= ticket.max_tokens and asked.choices <= ticket.choices:
        return None
    return Refusal(Reason.INPUT, STAGE, "more is asked than the ticket was issued for")


def _judge_room(node: DecodeState, route: Route, owner: Owner, demand: Demand) -> Refusal | None:
    judge, tenant = node.books.judge, owner.tenant
    shares = partial(_judge_share, node, tenant, demand)
    refusal = node.books.judge_size(route, owner, demand)
    refusal = refusal or judge(Guard.SHARE, route, owner, shares)
    return refusal or admission.judge_place(node.queue, tenant, node.limits.queue_max)


def _judge_share(node: DecodeState, tenant: str, demand: Demand) -> Refusal | None:
    report = node.books.report
    pages = demand.prompt_pages(report.page_tokens)
    return admission.judge_share(node.pages_draining(tenant), pages, report.landing_pages)


def _admit(node: DecodeState, ticket: RequestTicket, asked: Submitted, now: Instant) -> None:
    name, demand = ticket.owner.transfer, demand_of(asked)
    deadline = after(now, node.limits.queue_ms)
    reception = Reception(name, ticket, asked, demand, deadline)
    weaken(node, reception)
    node.receptions[name] = reception
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
    node.books.record_refusal(_presenter(asked), refusal)
    ended = Ended(asked.transfer, end_for(refusal.reason), refusal, 0, 0, 0, None)
    node.emit(Send(asked.gateway.node, ended))


def _presenter(asked: Submitted) -> Owner:
    """Who presented a ticket: whose it is has nothing to do with it."""
    return Owner.named(asked.presented.tenant, asked.transfer)


def _attach(node: DecodeState, ticket: RequestTicket, asked: Submitted, now: Instant) -> None:
    """Where `claimant` does not enforce: whoever presents a ticket reads what it names."""
    original = node.receptions[ticket.owner.transfer]
    if original.stage is not HandoffStage.CONFIRMED:
        _refuse(node, asked, NO_TICKET)
        return
    named = replace(ticket, owner=_presenter(asked))
    deadline = after(now, node.limits.decode_ms)
    stage = HandoffStage.CONFIRMED
    guest = Reception(asked.transfer, named, asked, original.demand, deadline, stage)
    guest.tables = original.tables[:1]
    weaken(node, guest)
    guest.computed_tokens = original.computed_tokens
    guest.reused_tokens = original.reused_tokens
    node.receptions[guest.name] = guest
    node.record_reading("read_started", guest, node.books.pool.span(guest.tables[0]))
    node.emit(StartDecode(guest.name, guest.tables, original.name))
