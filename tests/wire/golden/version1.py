"""Prints what 0.1.0 says: its messages, frames and tickets as hex, and the members of its enums.

    PYTHONPATH=RELEASE/src python tests/wire/golden/version1.py > tests/wire/golden/version1.json

It runs on the code of the release, imports nothing else of the project, and makes every value from
the types of the fields, no two alike within a message. Version 1 is closed: the file never changes.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterator
from enum import Enum
from itertools import count
from typing import Any, get_args, get_origin, get_type_hints

from kvairlock import __version__
from kvairlock.core import ends, errors, messages, terms
from kvairlock.wire import codec, frames, tickets
from kvairlock.wire.keys import Keyring

RING = Keyring.parse("one " + "ab" * 32)
ENUMS = (ends.End, errors.Reason, errors.Stage, terms.Reader, terms.Role)


def example(hint: Any, numbers: Iterator[int]) -> Any:
    """Return a value of a type that no other field of the message has."""
    hint = getattr(hint, "__supertype__", hint)
    number = next(numbers)
    plain: dict[Any, Any] = {
        bool: True,
        int: number,
        float: 1 / (number + 1),
        str: f"word {number}",
        bytes: number.to_bytes(3, "big"),
    }
    if hint in plain:
        return plain[hint]
    inner = [arg for arg in get_args(hint) if arg not in (..., type(None))]
    if get_origin(hint) is tuple:
        return (example(inner[0], numbers), example(inner[0], numbers))
    if get_origin(hint) is dict:
        return {example(inner[0], numbers): example(inner[1], numbers) for _ in range(2)}
    if inner:
        return example(inner[0], numbers)
    if issubclass(hint, Enum):
        return list(hint)[number % len(hint)]
    hints = get_type_hints(hint)
    names = [field.name for field in dataclasses.fields(hint)]
    return hint(**{name: example(hints[name], numbers) for name in names})


def made(kind: type[Any]) -> Any:
    """Return the example of a kind."""
    return example(kind, count(1))


def hello(node: str, role: terms.Role, to: str, answers: bytes) -> frames.Hello:
    """Return one of the two greetings of a channel."""
    peer = terms.Peer(terms.NodeName(node), role, terms.Incarnation(f"{node}-1"))
    return frames.Hello(peer, to, node.encode() * 16, "layout", answers)


def channel() -> dict[str, str]:
    """Return a channel: both greetings, and the first two frames from decode to prefill."""
    mine = hello("d", terms.Role.DECODE, "p", b"")
    theirs = hello("p", terms.Role.PREFILL, "d", mine.nonce)
    session = frames.Session(RING, mine, theirs)
    return {
        "hello": frames.seal_hello(RING, mine).hex(),
        "answer": frames.seal_hello(RING, theirs).hex(),
        "first": session.seal(messages.Beat()).hex(),
        "second": session.seal(made(messages.Grant)).hex(),
    }


def everything() -> dict[str, Any]:
    """Return all that the file holds."""
    said: Any = codec.encode
    return {
        "release": __version__,
        "messages": {name: said(made(kind)).hex() for name, kind in codec.TYPES.items()},
        "channel": channel(),
        "ticket": tickets.sign(RING, made(messages.RequestTicket)).hex(),
        "enums": {kind.__name__: [member.value for member in kind] for kind in ENUMS},
    }


if __name__ == "__main__":
    json.dump(everything(), sys.stdout, indent=1)
    print()
