"""What a prefill node may give as its reason; any other becomes the one that blames the node.

    refusal of a receipt ---> is it one that a prefill node can have? yes -> taken as it is stated
                               | no
                              PEER_REJECTED at the verdict, with what it stated in the message

A reason says whose fault a refusal is, and so who pays for it: a client, the load, or a node. What
is stated by the node that failed decides that only where nobody else can know, which is about its
own pool, its own work and its own links. Decode has verified the ticket, its tenant, its input and
its time by itself before it granted anything. That a ticket of which this is true is forged, of
another tenant or expired is no refusal of the request: it is a contradiction of that node.
"""

from __future__ import annotations

from kvairlock.core.errors import Reason, Refusal, Stage

MAY_STATE: dict[Stage, frozenset[Reason]] = {
    Stage.PREFILL_ADMISSION: frozenset(
        {
            Reason.CONTEXT_LENGTH,
            Reason.MODEL_LAYOUT,
            # To a claim (pull): that no offer stands, or that the life that offered has ended.
            Reason.TIMEOUT,
            Reason.PEER_LOST,
        }
    ),
    Stage.PREFILL: frozenset({Reason.TIMEOUT, Reason.ENGINE, Reason.INVARIANT}),
    Stage.TRANSFER: frozenset({Reason.PEER_LOST}),
    # 0.1.0 has no other stage for an invariant that broke, on nodes of either role.
    Stage.DECODE: frozenset({Reason.INVARIANT}),
}
"""The reasons that a prefill node's refusal may have, by the stage that it may have with them."""


def as_stated(refusal: Refusal) -> Refusal:
    """Return a prefill node's refusal as it is, if it may state that, else as what it is.

    Args:
        refusal: What its receipt states.
    """
    if refusal.reason in MAY_STATE.get(refusal.stage, frozenset()):
        return refusal
    stated = f"{refusal.reason} at {refusal.stage}"
    message = f"prefill refused with what it cannot know or may not say: {stated}"
    return Refusal(Reason.PEER_REJECTED, Stage.VERDICT, message)
