"""The request ticket as bytes: signed by the gateway, opaque to routers, verified by every node.

version 1 | key id 8 | body | MAC 32
"""

from __future__ import annotations

import msgspec

from kvairlock.core.errors import PeerMisbehaved, Reason
from kvairlock.core.messages import RequestTicket
from kvairlock.wire.codec import UNREADABLE
from kvairlock.wire.keys import KEY_ID_BYTES, MAC_BYTES, Keyring

VERSION = 1
PURPOSE = "request ticket"
TICKET_BYTES_MAX = 4096


def sign(ring: Keyring, ticket: RequestTicket) -> bytes:
    """Return the signed ticket."""
    key_id = ring.active_id
    name = key_id.encode().ljust(KEY_ID_BYTES, b"\0")
    signed = bytes([VERSION]) + name + msgspec.msgpack.encode(ticket)
    return signed + ring.mac(key_id, PURPOSE, signed)


def key_id_of(data: bytes) -> str:
    """Return the id of the key that a ticket claims to be signed with."""
    return data[1 : 1 + KEY_ID_BYTES].rstrip(b"\0").decode("ascii", "replace")


def verify(ring: Keyring, data: bytes, *, check: bool = True) -> RequestTicket:
    """Read a ticket; what it says is worth nothing before this returns.

    Args:
        ring: The cluster's keys.
        data: The bytes as they came.
        check: False only in drills in which the `ticket` guard is off.

    Raises:
        PeerMisbehaved: It is of another version, forged or malformed.
    """
    if not 1 + KEY_ID_BYTES + MAC_BYTES < len(data) <= TICKET_BYTES_MAX:
        raise PeerMisbehaved(Reason.MALFORMED, "not a ticket")
    if data[0] != VERSION:
        raise PeerMisbehaved(Reason.VERSION, f"ticket version {data[0]}, expected {VERSION}")
    signed, mac = data[:-MAC_BYTES], data[-MAC_BYTES:]
    if check:
        ring.check(key_id_of(data), PURPOSE, signed, mac)
    try:
        return msgspec.msgpack.decode(signed[1 + KEY_ID_BYTES :], type=RequestTicket)
    except UNREADABLE as error:
        raise PeerMisbehaved(Reason.MALFORMED, f"ticket: {error}") from None
