"""One message as a body: a type name, the fields that must be understood, and the fields.

A message crosses in the version that both ends of its channel agreed on. msgspec checks types, enum
values and missing fields, and ignores unknown fields by default. A sender can add a field and, if
it matters, list it under `must`: a receiver that does not know it then refuses instead of ignoring
it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from kvairlock.core import messages
from kvairlock.core.errors import PeerIncompatible, PeerMisbehaved, Reason
from kvairlock.core.messages import Message
from kvairlock.wire import version1
from kvairlock.wire.texts import texts_in

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
        messages.Resize,
        messages.Rehearse,
        messages.Rehearsed,
        messages.Watch,
        messages.PageMap,
        messages.Beat,
        messages.Drill,
    )
}
"""Every message that may cross, by its name on the wire: those of the newest version."""

NAME_CHARACTERS_MAX = 256
"""Of a text that is a field of the message itself: all of these are names."""

TEXT_CHARACTERS_MAX = 4096
"""Of a text further inside: a refusal's message, a model's path, a fingerprint."""


@dataclass(frozen=True, slots=True)
class Forms:
    """How one version says messages.

    Args:
        types: What a body is read as, by its name on the wire.
        up: From what was read to the message that it is.
        down: From a message to what is said for it.
    """

    types: Mapping[str, type[Any]]
    up: Callable[[Any], Message]
    down: Callable[[Message], Any]


def _as_it_is(message: Any) -> Any:
    return message


FORMS: dict[int, Forms] = {
    1: Forms(version1.TYPES, version1.up, version1.down),
    2: Forms(TYPES, _as_it_is, _as_it_is),
}
"""By version."""


class Envelope(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """Type name, critical field names, fields."""

    type: str
    must: list[str]
    body: msgspec.Raw


UNREADABLE = (msgspec.MsgspecError, RecursionError)
"""What msgspec raises for bytes that are no message; it follows nesting without end."""

_encoder = msgspec.msgpack.Encoder()
_envelopes = msgspec.msgpack.Decoder(Envelope)
_bodies = {kind: msgspec.msgpack.Decoder(kind) for f in FORMS.values() for kind in f.types.values()}
_fields = {kind: {f.name for f in dataclasses.fields(kind)} for kind in _bodies}


def can_say(kind: type[Message], version: int) -> bool:
    """Whether a version has a form for messages of a kind."""
    return _name(kind) in FORMS[version].types


def encode(message: Message, version: int) -> bytes:
    """Return the body of a message.

    Args:
        message: The message.
        version: The version that its receiver was agreed on with.

    Raises:
        PeerIncompatible: That version has no form for it.
    """
    name, forms = _name(type(message)), FORMS[version]
    if name not in forms.types:
        raise PeerIncompatible(f"messages {version} have no {name}")
    return _encoder.encode(Envelope(name, [], msgspec.Raw(_encoder.encode(forms.down(message)))))


def decode(data: bytes, version: int) -> Message:
    """Read a body.

    Args:
        data: The body.
        version: The version that its sender was agreed on with.

    Raises:
        PeerMisbehaved: It is not a message that this version understands: `malformed` for wrong
            types, missing fields and unknown enum values, `version` for unknown types and unknown
            critical fields.
    """
    forms = FORMS[version]
    try:
        envelope = _envelopes.decode(data)
    except UNREADABLE as error:
        raise PeerMisbehaved(Reason.MALFORMED, f"not a message: {error}") from None
    kind = forms.types.get(envelope.type)
    if kind is None:
        raise PeerMisbehaved(Reason.VERSION, "unknown message type")
    if not _fields[kind].issuperset(envelope.must):
        raise PeerMisbehaved(Reason.VERSION, f"unknown critical field in {envelope.type}")
    try:
        said = _bodies[kind].decode(envelope.body)
    except UNREADABLE as error:
        raise PeerMisbehaved(Reason.MALFORMED, f"{envelope.type}: {error}") from None
    _check_names(said)
    _check_texts(said)
    try:
        return forms.up(said)
    except ValueError as error:
        raise PeerMisbehaved(Reason.MALFORMED, f"{envelope.type}: {error}") from None


def _name(kind: type[Any]) -> str:
    return kind.__name__.lower()


def _check_names(said: Any) -> None:
    """Refuse names of a length that nobody gives: they end up in tables, records and logs."""
    for name in _fields[type(said)]:
        value = getattr(said, name)
        if isinstance(value, str) and len(value) > NAME_CHARACTERS_MAX:
            raise PeerMisbehaved(Reason.MALFORMED, f"{name} has {len(value)} characters")


def _check_texts(said: Any) -> None:
    """Refuse texts without end: they are kept, shown to people, and compared."""
    longest = max(map(len, texts_in(said)), default=0)
    if longest > TEXT_CHARACTERS_MAX:
        raise PeerMisbehaved(Reason.MALFORMED, f"a text in it has {longest} characters")
