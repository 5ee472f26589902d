"""One valid message of every kind, made from the types of its fields, and the keys to sign with."""

from __future__ import annotations

import dataclasses
from enum import Enum
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

import msgspec

from kvairlock.core.messages import RequestTicket
from kvairlock.core.terms import Fence, Incarnation, NodeName, Peer, Role
from kvairlock.core.waits import Wait, Waited
from kvairlock.wire.codec import TYPES
from kvairlock.wire.frames import Hello
from kvairlock.wire.keys import KEY_BYTES, Keyring
from kvairlock.wire.versions import SPEAKS
from tests.fuzz.odd import Tree

NEWEST = SPEAKS[-1]
NEW, OLD, STRANGE = (bytes([n]) * KEY_BYTES for n in (1, 2, 3))
RING = Keyring({"new": NEW, "old": OLD})
THIEF = Keyring({"new": STRANGE})
D = Peer(NodeName("d"), Role.DECODE, Incarnation("d-1"))
P = Peer(NodeName("p"), Role.PREFILL, Incarnation("p-1"))
HELLO_D = Hello(D, "p", bytes(16), "layout", speaks=SPEAKS)
HELLO_P = Hello(P, "d", b"\1" * 16, "layout", bytes(16), SPEAKS)

_PLAIN: dict[Any, Any] = {bool: True, int: 3, float: 0.5, str: "r/1", bytes: b"bytes"}
_CHOSEN: dict[Any, Any] = {Waited: Waited(Wait.DRAIN, "256", "", Fence.SEALED, 3, 3, {1: 3})}
"""Of types whose fields do not go together whatever they are."""


def example(hint: Any) -> Any:
    """Return a value that a field of this type can have."""
    hint = getattr(hint, "__supertype__", hint)
    if hint in (known := _PLAIN | _CHOSEN):
        return known[hint]
    inner = [arg for arg in get_args(hint) if arg not in (..., NoneType)]
    if get_origin(hint) is tuple:
        return (example(inner[0]),) * 2
    if get_origin(hint) is dict:
        return {example(inner[0]): example(inner[1])}
    if inner:
        return example(inner[0])
    if issubclass(hint, Enum):
        return next(iter(hint))
    hints = get_type_hints(hint)
    return hint(**{f.name: example(hints[f.name]) for f in dataclasses.fields(hint)})


def plain(value: Any) -> Tree:
    """Return a message as plain data."""
    tree: Tree = msgspec.to_builtins(value, builtin_types=(bytes,))
    return tree


MESSAGES: dict[str, Any] = {name: example(kind) for name, kind in TYPES.items()}
TICKET: RequestTicket = example(RequestTicket)
