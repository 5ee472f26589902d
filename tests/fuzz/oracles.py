"""What the fuzzed code is judged by, written without it: types by their hints, MACs by hashlib.

An accepted message has in every field a value of the field's own type (1 is no truth value, 1.0 is
no integer), and the value that plain msgpack finds at that place.
"""

from __future__ import annotations

import dataclasses
import hashlib
import hmac
import struct
from collections.abc import Callable
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec

LEFT_OUT = (None, b"", (1,))
"""What a field may be that was left out."""

Fits = Callable[[Any], bool]


def fits(hint: Any) -> Fits:
    """Return the predicate of a type hint: whether a value has exactly this type, and inside."""
    return _fits(hint)


@cache
def _fits(hint: Any) -> Fits:
    hint = getattr(hint, "__supertype__", hint)
    if hint in (bool, int, float, str, bytes, NoneType):
        return lambda value: type(value) is hint
    inner = tuple(fits(arg) for arg in get_args(hint) if arg is not ...)
    if get_origin(hint) is tuple:
        return lambda value: type(value) is tuple and all(map(inner[0], value))
    if get_origin(hint) is dict:
        return lambda value: (
            type(value) is dict and all(inner[0](k) and inner[1](v) for k, v in value.items())
        )
    if get_origin(hint) in (Union, UnionType):
        return lambda value: any(fit(value) for fit in inner)
    if issubclass(hint, Enum):
        return lambda value: type(value) is hint
    return _fits_fields(hint)


def _fits_fields(kind: type[Any]) -> Fits:
    hints = get_type_hints(kind)
    fields = [(field.name, fits(hints[field.name])) for field in dataclasses.fields(kind)]

    def fit(value: Any) -> bool:
        return type(value) is kind and all(fit(getattr(value, name)) for name, fit in fields)

    return fit


def says_the_same(plain: Any, found: Any) -> bool:
    """Whether a value, as plain data, is what untyped msgpack finds; more fields are no matter.

    Refusals and greetings have fields that may be left out: then they are empty, and a greeting
    without versions speaks the first.
    """
    match found:
        case dict():
            return isinstance(plain, dict) and all(
                says_the_same(plain[name], value) if name in plain else value in LEFT_OUT
                for name, value in found.items()
            )
        case list() | tuple():
            return len(plain) == len(found) and all(map(says_the_same, plain, found))
        case float():  # An integer may stand for one, rounded if it has to be.
            return float(plain) == found or found != found
    return bool(plain == found)


def is_what_it_says(message: Any, body: bytes) -> bool:
    """Whether a message that was read from a body has the types and the values that it must have.

    Args:
        message: What was read.
        body: The msgpack map that it was read from.
    """
    if not fits(type(message))(message):
        return False
    try:
        plain = msgspec.msgpack.decode(body)
    except (msgspec.MsgspecError, RecursionError, TypeError):
        return True  # Only in what nobody reads: fields of no name that is known.
    return says_the_same(plain, msgspec.to_builtins(message, builtin_types=(bytes,)))


def keyed(key: bytes, data: bytes) -> bytes:
    """Keyed BLAKE2b with 32 bytes."""
    return hashlib.blake2b(data, key=key, digest_size=32).digest()


def is_signed(keys: dict[str, bytes], name: bytes, purpose: str, data: bytes) -> bool:
    """Whether the last 32 bytes are the MAC of the rest, under the named key and for the purpose.

    Args:
        keys: Valid keys by id.
        name: The id as it is sent, filled up with zeros.
        purpose: What the MAC is made for.
        data: What is signed, and the MAC.
    """
    key = keys.get(name.rstrip(b"\0").decode("latin-1"))
    if key is None or len(data) < 32:
        return False
    return hmac.compare_digest(keyed(keyed(key, purpose.encode()), data[:-32]), data[-32:])


HEAD = struct.Struct(">2sBB8sQI")


def framed(keys: dict[str, bytes], purpose: str, frame: bytes) -> tuple[int, int, bytes] | None:
    """Return kind, sequence and body of a frame that is whole and authentic, else None."""
    if len(frame) < HEAD.size + 32:
        return None
    magic, version, kind, name, sequence, length = HEAD.unpack_from(frame)
    if (magic, version) != (b"KV", 1) or length != len(frame) - HEAD.size - 32:
        return None
    if not is_signed(keys, name, purpose, frame):
        return None
    return kind, sequence, frame[HEAD.size : -32]
