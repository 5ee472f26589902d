"""One message as a body: a type name, the fields that must be understood, and the fields.

msgspec checks types, enum values and missing fields, and ignores unknown fields by default. A newer
sender can add a field and, if it matters, list it under `must`: a receiver that does not know it
then refuses instead of ignoring it.
"""

from __future__ import annotations

import dataclasses
from typing import Any, cast

import msgspec

from kvairlock.core import messages
from kvairlock.core.errors import PeerMisbehaved, Reason
from kvairlock.core.messages import Message

TYPES: dict[str, type[Any]] = {
    kind.__name__.lower(): kind
    for kind in (
        messages.Submit,
        messages.Cancel,
        messages.Grant,
        messages.Withdraw,
        messages.Released,
        messages.Receipt,
        messages.Ruling,
        messages.Claim,
        messages.Lent,
        messages.Validate,
        messages.Validated,
        messages.Release,
        messages.Returned,
        messages.Chunk,
        messages.Ended,
        messages.NodeStatus,
        messages.Inspect,
        messages.Beat,
        messages.Drill,
    )
}
"""Every message that may cross, by its name on the wire."""

NAME_CHARACTERS_MAX = 256

_FIELDS = {name: {f.name for f in dataclasses.fields(kind)} for name, kind in TYPES.items()}


class Envelope(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """Type name, critical field names, fields."""

    type: str
    must: list[str]
    body: msgspec.Raw


UNREADABLE = (msgspec.MsgspecError, RecursionError)
"""What msgspec raises for bytes that are no message; it follows nesting without end."""

_encoder = msgspec.msgpack.Encoder()
_envelopes = msgspec.msgpack.Decoder(Envelope)
_bodies = {name: msgspec.msgpack.Decoder(kind) for name, kind in TYPES.items()}


def encode(message: Message) -> bytes:
    """Return the body of a message."""
    name = type(message).__name__.lower()
    return _encoder.encode(Envelope(name, [], msgspec.Raw(_encoder.encode(message))))


def _check_names(message: Any) -> None:
    """Refuse names of a length that nobody gives: they end up in tables, records and logs."""
    for name in _FIELDS[type(message).__name__.lower()]:
        value = getattr(message, name)
        if isinstance(value, str) and len(value) > NAME_CHARACTERS_MAX:
            raise PeerMisbehaved(Reason.MALFORMED, f"{name} has {len(value)} characters")


def decode(data: bytes) -> Message:
    """Read a body.

    Raises:
        PeerMisbehaved: It is not a message that this version understands: `malformed` for wrong
            types, missing fields and unknown enum values, `version` for unknown types and unknown
            critical fields.
    """
    try:
        envelope = _envelopes.decode(data)
    except UNREADABLE as error:
        raise PeerMisbehaved(Reason.MALFORMED, f"not a message: {error}") from None
    known = _FIELDS.get(envelope.type)
    if known is None:
        raise PeerMisbehaved(Reason.VERSION, "unknown message type")
    if not known.issuperset(envelope.must):
        raise PeerMisbehaved(Reason.VERSION, f"unknown critical field in {envelope.type}")
    try:
        message = _bodies[envelope.type].decode(envelope.body)
        _check_names(message)
        return cast(Message, message)
    except UNREADABLE as error:
        raise PeerMisbehaved(Reason.MALFORMED, f"{envelope.type}: {error}") from None
