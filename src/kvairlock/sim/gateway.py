"""The gateway as far as a world needs it: contract, transfer parameters, tickets.

It decides as `kvairlock.gateway` does: what no route holds is refused, what steers transfers is
taken out of a client's request, and a ticket is signed for who asks.
"""

from __future__ import annotations

from kvairlock.core.errors import Refusal
from kvairlock.core.events import Asked, Presented, Referred, Submitted
from kvairlock.core.guards import Guard
from kvairlock.core.messages import RequestTicket, TransferTicket
from kvairlock.core.promise.admission import judge
from kvairlock.core.terms import Peer, Role, WindowId
from kvairlock.sim.setup import (
    GATEWAY,
    OFFER_MS,
    UNIX_S,
    Ask,
    Setup,
    Theft,
    page_keys,
    peer_of,
    ticket_for,
)


def refusal_by_contract(setup: Setup, ask: Ask) -> Refusal | None:
    """Return why no route holds a request, or None if one does, or if nobody looks."""
    if not setup.on(Guard.CONTRACT):
        return None
    reports = (setup.report(peer_of(role, 0, 1)) for role in (Role.PREFILL, Role.DECODE))
    return next((r for report in reports if (r := judge(report, ask.demand)) is not None), None)


def keeps_to_contract(setup: Setup, ask: Ask) -> bool:
    """Whether a route holds a request, whoever looks."""
    reports = (setup.report(peer_of(role, 0, 1)) for role in (Role.PREFILL, Role.DECODE))
    return all(judge(report, ask.demand) is None for report in reports)


def presented(setup: Setup, ask: Ask, receiver: Peer) -> Presented:
    """Return the ticket that reaches a node, with what is presented along with it."""
    ticket = ticket_for(ask, receiver)
    given = ask
    if ask.stolen and (ask.theft is not Theft.BY_CLIENT or not setup.on(Guard.STRIP)):
        ticket = _stolen(setup, ask, receiver)
        if ask.theft is Theft.WITH_ALL:
            given = setup.asked_with(ticket.input_digest)
    return Presented(ticket, given.tenant, given.digest, given.tokens, UNIX_S)


def _stolen(setup: Setup, thief: Ask, receiver: Peer) -> RequestTicket:
    victim = next(ask for ask in setup.asks if ask.transfer == thief.stolen)
    return ticket_for(victim, receiver)


def submitted(setup: Setup, ask: Ask, decode: Peer) -> Submitted:
    """Return the event that a request becomes at its decode node (push)."""
    return Submitted(
        transfer=ask.transfer,
        presented=presented(setup, ask, decode),
        claimant=ask.claimant,
        gateway=GATEWAY,
        prefill=peer_of(Role.PREFILL, ask.prefill, 1).node,
        max_tokens=ask.max_tokens,
        choices=1,
        window=WindowId(f"window of {ask.transfer}"),
        seed=setup.tag(ask),
        sample_seed=len(setup.asks) + setup.tag(ask),
    )


def asked(setup: Setup, ask: Ask, decode: Peer) -> Asked:
    """Return the event that a request becomes at its prefill node (pull)."""
    return Asked(
        transfer=ask.transfer,
        presented=presented(setup, ask, decode),
        claimant=ask.claimant,
        seed=setup.tag(ask),
        patience_ms=OFFER_MS,
        page_keys=page_keys(ask, setup.page_tokens),
    )


def referred(setup: Setup, ask: Ask, decode: Peer, offer: TransferTicket) -> Referred:
    """Return the event that a request with an offer becomes at its decode node (pull)."""
    plain = submitted(setup, ask, decode)
    return Referred(
        transfer=plain.transfer,
        presented=plain.presented,
        claimant=plain.claimant,
        gateway=plain.gateway,
        prefill=plain.prefill,
        max_tokens=plain.max_tokens,
        choices=plain.choices,
        window=WindowId(f"claim of {ask.transfer}"),
        seed=plain.seed,
        sample_seed=plain.sample_seed,
        offer=offer,
    )
