"""What can be done to a valid message: to its bytes, and to its fields while it stays msgpack.

bytes    flip, overwrite, insert, leave out, repeat, cut, splice with another
fields   leave out, rename, add, give twice, exchange, put something odd or almost right
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import msgspec

Tree = dict[str, Any]

encode = msgspec.msgpack.Encoder().encode
Raw = msgspec.Raw

BOMBS: dict[str, bytes] = {
    "array of 2**32 - 1": b"\xdd\xff\xff\xff\xff",
    "array of 65,535": b"\xdc\xff\xff",
    "map of 2**32 - 1": b"\xdf\xff\xff\xff\xff",
    "map of 65,535": b"\xde\xff\xff",
    "bytes of 4 GiB": b"\xc6\xff\xff\xff\xff",
    "text of 4 GiB": b"\xdb\xff\xff\xff\xff",
    "extension of 4 GiB": b"\xc9\xff\xff\xff\xff\x05",
    "arrays in arrays": b"\x91" * 60 + b"\xc0",
    "maps in maps": b"\x81\xa1z" * 60 + b"\xc0",
    "maps as names": b"\x81" * 60 + b"\xc0",
}
"""What announces more than it holds, or is nested; by what it is."""

ODD: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    1,
    -1,
    2**31,
    2**32,
    2**63 - 1,
    2**63,
    2**64 - 1,
    -(2**63),
    1.0,
    0.5,
    -0.0,
    float("nan"),
    float("inf"),
    "",
    "\0",
    "completed",
    "x" * 300,
    b"",
    bytes(32),
    [],
    {},
    [None],
    [[]],
    {"": None},
    msgspec.msgpack.Ext(5, b"x"),
    msgspec.msgpack.Ext(-1, bytes(8)),
    Raw(b"\xc1"),  # never used by msgpack
    Raw(b"\xa1\xff"),  # text that is no UTF-8
    Raw(b"\xd3" + bytes(7) + b"\x01"),  # 1, in eight bytes
    Raw(b"\xcf" + bytes(8)),
    Raw(b"\xdc\x00\x01\x00"),  # an array of one, in a long form
    Raw(b"\xca\x3f\x80\x00\x00"),  # 1.0, in four bytes
    Raw(b""),
    *map(Raw, BOMBS.values()),
)
"""Values that are no field's, or are at an edge of one."""


def almost(rng: Random, value: Any) -> Any:
    """Return something close to a value, of the same type; for nothing, something odd."""
    match value:
        case None:
            return rng.choice(ODD)
        case bool():
            return not value
        case int():
            return _fits(rng.choice((value + 1, value - 1, -value, value ^ 1 << rng.randrange(64))))
        case float():
            return rng.choice((value + 1, -value, value / 2, float("nan")))
        case str():
            return rng.choice((value + "x", value[:-1], value.upper(), f" {value}", value * 30))
        case bytes():
            return changed(rng, value)
        case dict() if value:
            name = rng.choice(list(value))
            return {**value, name: almost(rng, value[name])}
        case list():
            return _almost_list(rng, value)
    return rng.choice(ODD)


def _fits(value: int) -> int:
    """Return the value, or 0 if msgpack has no integer of this size."""
    return value if -(2**63) <= value < 2**64 else 0


def _almost_list(rng: Random, values: list[Any]) -> list[Any]:
    if not values:
        return [rng.choice(ODD)]
    at = rng.randrange(len(values))
    match rng.randrange(5):
        case 0:
            return values[:-1]
        case 1:
            return [*values, values[at]]
        case 2:
            return values[::-1]
        case 3:
            return [*values[at:], *values[:at]]
    return [*values[:at], almost(rng, values[at]), *values[at + 1 :]]


def with_odd_fields(rng: Random, tree: Tree) -> Tree:
    """Return a map in which one to three fields are not as they should be."""
    found = dict(tree)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        if found:
            _make_odd(rng, found, rng.choice(list(found)))
    return found


def _make_odd(rng: Random, tree: Tree, name: str) -> None:
    match rng.randrange(10):
        case 0:
            del tree[name]
        case 1:
            tree[rng.choice((name.upper(), name + "_", "", "x"))] = tree.pop(name)
        case 2:
            tree["more"] = rng.choice(ODD)
        case 3:
            other = rng.choice(list(tree))
            tree[name], tree[other] = tree[other], tree[name]
        case 4 | 5 | 6:
            tree[name] = rng.choice(ODD)
        case 7 if isinstance(tree[name], dict):
            tree[name] = with_odd_fields(rng, tree[name])
        case _:
            tree[name] = almost(rng, tree[name])


def twice(rng: Random, tree: Tree) -> bytes:
    """Return a map as msgpack that has one of its fields twice, with two values."""
    name = rng.choice(list(tree))
    again = encode(name) + encode(rng.choice((tree[name], almost(rng, tree[name]))))
    parts = [encode(key) + encode(value) for key, value in tree.items()]
    parts.insert(rng.randrange(len(parts) + 1), again)
    return b"\xde" + len(parts).to_bytes(2, "big") + b"".join(parts)


def fields_as_bytes(rng: Random, tree: Tree) -> bytes:
    """Return a map as msgpack whose fields are not as they should be."""
    if tree and rng.random() < 0.05:
        return twice(rng, tree)
    return encode(with_odd_fields(rng, tree))


# Bytes


def _flip(rng: Random, data: bytearray, at: int) -> None:
    data[at] ^= 1 << rng.randrange(8)


def _overwrite(rng: Random, data: bytearray, at: int) -> None:
    data[at] = rng.choice((0x00, 0x7F, 0x80, 0x90, 0xA0, 0xC0, 0xC1, 0xC4, 0xDB, 0xDD, 0xDF, 0xFF))


def _insert(rng: Random, data: bytearray, at: int) -> None:
    data[at:at] = rng.randbytes(rng.choice((1, 1, 2, 4)))


def _leave_out(rng: Random, data: bytearray, at: int) -> None:
    del data[at : at + rng.choice((1, 1, 2, 8))]


def _repeat(rng: Random, data: bytearray, at: int) -> None:
    data[at:at] = data[at : at + rng.choice((1, 4, 16))]


def _cut(rng: Random, data: bytearray, at: int) -> None:
    del data[at:]


_TO_BYTES: Sequence[Callable[[Random, bytearray, int], None]] = (
    _flip,
    _flip,
    _overwrite,
    _overwrite,
    _insert,
    _leave_out,
    _repeat,
    _cut,
)


def changed(rng: Random, data: bytes) -> bytes:
    """Return bytes of which one to three places were changed; they may be the same again."""
    found = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        if found:
            rng.choice(_TO_BYTES)(rng, found, rng.randrange(len(found)))
    return bytes(found)


def spliced(rng: Random, one: bytes, other: bytes) -> bytes:
    """Return the beginning of one and the end of another."""
    return one[: rng.randrange(len(one) + 1)] + other[rng.randrange(len(other) + 1) :]
