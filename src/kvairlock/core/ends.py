"""How a request may end, as one table: five different ends, never one "done".

The first end wins and is written once; a later one is recorded and changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from kvairlock.core.errors import Reason


class End(StrEnum):
    """The ends of a request, and the outcomes that a receipt can state."""

    COMPLETED = "completed"
    REJECTED = "rejected"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"
    FAILED = "failed"


class ClientGets(StrEnum):
    """What the client is given."""

    ANSWER = "answer"
    REASON = "reason"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class EndRow:
    """What follows from an end.

    Args:
        may_hand_over: A receipt with this outcome may make pages readable.
        tells_peer: The other node must be told.
        drains: Pages go through the drain before they are free.
        client: What the client gets.
    """

    may_hand_over: bool
    tells_peer: bool
    drains: bool
    client: ClientGets


ENDS: dict[End, EndRow] = {
    End.COMPLETED: EndRow(True, False, True, ClientGets.ANSWER),
    End.REJECTED: EndRow(False, True, True, ClientGets.REASON),
    End.CANCELLED: EndRow(False, True, True, ClientGets.NOTHING),
    End.TIMED_OUT: EndRow(False, True, True, ClientGets.REASON),
    End.FAILED: EndRow(False, True, True, ClientGets.REASON),
}

_BY_REASON = {
    Reason.TIMEOUT: End.TIMED_OUT,
    Reason.EXPIRED: End.REJECTED,
    Reason.CANCELLED: End.CANCELLED,
    Reason.CONTEXT_LENGTH: End.REJECTED,
    Reason.CAPACITY: End.REJECTED,
    Reason.DRAINING: End.REJECTED,
    Reason.TENANT_SHARE: End.REJECTED,
    Reason.TENANT: End.REJECTED,
    Reason.INPUT: End.REJECTED,
    Reason.REPLAYED: End.REJECTED,
    Reason.FORGED: End.REJECTED,
    Reason.MALFORMED: End.REJECTED,
    Reason.ROUTE_CLOSED: End.REJECTED,
    Reason.PEER_REJECTED: End.REJECTED,
}


def end_for(reason: Reason) -> End:
    """Return the end that a refusal for `reason` is; what is not listed has failed."""
    return _BY_REASON.get(reason, End.FAILED)
