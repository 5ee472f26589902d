"""Whether a transfer ticket fits the request that it came with, before anything is reserved."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from kvairlock.core.errors import Reason, Refusal, Stage
from kvairlock.core.events import Referred, Submitted
from kvairlock.core.guards import Guard
from kvairlock.core.messages import RequestTicket, TransferTicket
from kvairlock.core.protocol.pull.borrower.state import BorrowerState

STAGE = Stage.DECODE_ADMISSION
NO_OFFER = Refusal(Reason.FORGED, STAGE, "there is no transfer ticket that names an offer")


def judged(node: BorrowerState, asked: Submitted) -> Submitted:
    """Return a request as it came, or with the refusal of its transfer ticket for its ticket.

    Whether the lender's life still lasts is not judged here but by the lender, so that a repeated
    request is answered as it was before.
    """
    ticket = asked.presented.ticket
    if isinstance(ticket, Refusal):
        return asked
    offer = asked.offer if isinstance(asked, Referred) else NO_OFFER
    refusal = offer if isinstance(offer, Refusal) else _judge(node, asked, ticket, offer)
    if refusal is None:
        return asked
    return replace(asked, presented=replace(asked.presented, ticket=refusal))


def _judge(
    node: BorrowerState, asked: Submitted, ticket: RequestTicket, offer: TransferTicket
) -> Refusal | None:
    route = node.books.route_with(asked.prefill)
    terms = partial(_judge_terms, node, asked, ticket, offer)
    return node.books.judge(Guard.TICKET, route, ticket.owner, terms)


def _judge_terms(
    node: BorrowerState, asked: Submitted, ticket: RequestTicket, offer: TransferTicket
) -> Refusal | None:
    if offer.transfer != ticket.owner.transfer or offer.lender.node != asked.prefill:
        return Refusal(Reason.IDENTITY, STAGE, "the offer is of another transfer or another node")
    if offer.receiver != node.me:
        message = "the offer was made to another node, or to another life of this one"
        return Refusal(Reason.REPLAYED, STAGE, message)
    return None
