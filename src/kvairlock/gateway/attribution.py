"""Whose doing it is that a node refuses: the gateway knows, and does not take the node's word.

    a node states       and the gateway knows                    so it is
    context_length      its nodes' live reports are exceeded     its client's doing, as stated
                        they are not                             the node's: peer_rejected
    ticket, input, ...  it signed and checked all of that        the node's: peer_rejected
                        a drill sent a ticket of its own         the drill's, as stated
    cancelled           its client is still there                the node's: peer_lost
    anything else                                                as stated

Otherwise a broken node could have its clients blamed, get them shut out, and never be distrusted.
"""

from __future__ import annotations

from enum import StrEnum

from kvairlock.core.errors import REASONS, Fault, Reason, Refusal, Stage

CLIENTS = frozenset(reason for reason, row in REASONS.items() if row.fault is Fault.CLIENT)
"""Reasons that lay a refusal at a client's door."""


class Voucher(StrEnum):
    """Who vouches for a request that is sent to a node."""

    GATEWAY = "gateway"
    """It signed the ticket, and checked what goes with it."""
    DRILL = "drill"
    """The ticket came from a client, on purpose: nothing of it is the gateway's."""


def attributed(stated: Refusal, voucher: Voucher, over: Refusal | None) -> Refusal:
    """Return a refusal of a node as whose doing it is.

    Args:
        stated: What the node states.
        voucher: Who vouches for the request.
        over: Why the route cannot hold the request, by what its nodes report now; None if it can.
    """
    confirmed = stated.reason is Reason.CONTEXT_LENGTH and over is not None
    if stated.reason not in CLIENTS or confirmed or voucher is Voucher.DRILL:
        return stated
    message = (
        f"a node refused what the gateway vouches for: it says `{stated.reason}` at {stated.stage}"
    )
    return Refusal(Reason.PEER_REJECTED, stated.stage, message)


def gateway_lost() -> Refusal:
    """Return what it is if a node ends a request as cancelled whose client is still there.

    Decode ends the requests of a gateway that it has lost as cancelled. A gateway that stood still
    may hear of that before it counts the node as lost.
    """
    message = "the decode node lost the gateway while it served the request"
    return Refusal(Reason.PEER_LOST, Stage.GATEWAY, message)


def misbehaved(reason: Reason) -> Refusal:
    """Return what it is if a node itself said what no node says.

    Args:
        reason: What was wrong with it.
    """
    message = f"the node broke the protocol: {reason}"
    return Refusal(Reason.PEER_REJECTED, Stage.GATEWAY, message)
