"""A few bytes that announce gigabytes, or nest without end, are refused for what they are worth.

They come behind a valid MAC, from a peer that is wrong, so nothing but the decoder stands in front.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import pytest

from kvairlock.core.errors import PeerMisbehaved, Reason
from kvairlock.wire import codec, frames, tickets
from kvairlock.wire.frames import HELLO
from tests.fuzz import valid
from tests.fuzz.odd import BOMBS, Raw, Tree, encode
from tests.fuzz.oracles import HEAD
from tests.fuzz.valid import HELLO_D, MESSAGES, NEWEST, RING, TICKET

PEAK_BYTES = 256 * 1024
"""A hundred times what is sent; honest messages of this size take some kilobytes."""
DEEP = {
    **BOMBS,
    "50,000 arrays": b"\x91" * 50_000 + b"\xc0",
    "50,000 maps": b"\x81\xa1z" * 50_000 + b"\xc0",
}


def body(name: str, fields: bytes) -> bytes:
    return b"\x93" + encode(name) + b"\x90" + fields


def hello(fields: bytes) -> bytes:
    data = HEAD.pack(b"KV", 1, HELLO, b"new", 0, len(fields)) + fields
    return data + RING.mac("new", "hello", data)


def ticket(fields: bytes) -> bytes:
    data = b"\1" + b"new".ljust(8, b"\0") + fields
    return data + RING.mac("new", tickets.PURPOSE, data)


def reader(name: str) -> Callable[[bytes], object]:
    """Return what reads a message of a name from its fields."""
    return lambda fields: codec.decode(body(name, fields), NEWEST)


READERS: dict[str, tuple[Tree, Callable[[bytes], object]]] = {
    **{name: (valid.plain(message), reader(name)) for name, message in MESSAGES.items()},
    "hello": (valid.plain(HELLO_D), lambda fields: frames.open_hello(RING, hello(fields))),
    "ticket": (valid.plain(TICKET), lambda fields: tickets.verify(RING, ticket(fields))),
}


def refused_within_memory(read: Callable[[bytes], object], fields: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(PeerMisbehaved) as caught:
            read(fields)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert caught.value.reason is Reason.MALFORMED
    assert peak < PEAK_BYTES + 8 * len(fields)


@pytest.mark.parametrize("bomb", DEEP.values(), ids=DEEP)
@pytest.mark.parametrize("name", READERS)
def test_a_bomb_in_any_field_costs_little_and_is_refused(name: str, bomb: bytes) -> None:
    tree, read = READERS[name]
    for field in tree:
        refused_within_memory(read, encode({**tree, field: Raw(bomb)}))
    if tree:  # Else it is a message without fields, and one of no name that is known.
        refused_within_memory(read, bomb)


@pytest.mark.parametrize("bomb", DEEP.values(), ids=DEEP)
def test_a_bomb_in_place_of_an_envelope_is_refused(bomb: bytes) -> None:
    for data in (bomb, b"\x93" + bomb, b"\x93\xa4beat" + bomb, b"\x93\xa4beat\x90\x81" + bomb):
        refused_within_memory(lambda data: codec.decode(data, NEWEST), data)


def test_the_measure_sees_what_a_decoder_takes() -> None:
    """An honest long message goes over the mark that bombs have to stay under."""
    long = {**valid.plain(MESSAGES["receipt"]), "digests": [2**63] * 50_000}
    tracemalloc.start()
    codec.decode(body("receipt", encode(long)), NEWEST)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak > PEAK_BYTES
