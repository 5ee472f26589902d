"""Frames of one channel: forged, reflected, repeated, left out, cut, of another version."""

from __future__ import annotations

import struct
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvairlock.core.ends import End
from kvairlock.core.errors import PeerIncompatible, PeerMisbehaved, Reason
from kvairlock.core.messages import Beat, Cancel, Inspect, Message, Receipt, Withdraw
from kvairlock.core.terms import Incarnation, NodeName, Owner, Peer, Role, TransferId, WindowId
from kvairlock.wire import codec, frames
from kvairlock.wire.frames import HEADER, HELLO, MESSAGE, Hello, Nonsense, Session
from kvairlock.wire.keys import KEY_BYTES, MAC_BYTES, Keyring

NEW, OLD, STRANGE = (bytes([n]) * KEY_BYTES for n in (1, 2, 3))
RING = Keyring({"new": NEW, "old": OLD})
THIEF = Keyring({"new": STRANGE})
D = Peer(NodeName("d"), Role.DECODE, Incarnation("d-1"))
P = Peer(NodeName("p"), Role.PREFILL, Incarnation("p-1"))
HELLO_D = Hello(D, "p", bytes(16), "layout")
HELLO_P = Hello(P, "d", b"\x01" * 16, "layout")
CANCEL = Cancel(TransferId("r/1"))
RECEIPT = Receipt(
    transfer=TransferId("r/1"),
    owner=Owner("alice", "r", 1),
    outcome=End.COMPLETED,
    refusal=None,
    window=WindowId("w"),
    input_digest=b"d",
    layout="l",
    pages=(0,),
    start=0,
    stop=4,
    generations=(0,),
    digests=(7,),
    reused=0,
)


def pair(ring: Keyring = RING, other: Keyring = RING) -> tuple[Session, Session]:
    """Both ends of one channel: decode, prefill."""
    return Session(ring, HELLO_D, HELLO_P), Session(other, HELLO_P, HELLO_D)


def refused(session: Session, frame: bytes) -> Reason:
    with pytest.raises(PeerMisbehaved) as caught:
        session.open(frame)
    return caught.value.reason


def with_header(frame: bytes, **fields: object) -> bytes:
    """The frame with other header fields and its old MAC."""
    names = ("magic", "version", "kind", "key", "sequence", "length")
    values = dict(zip(names, HEADER.unpack_from(frame), strict=True)) | fields
    return HEADER.pack(*(values[name] for name in names)) + frame[HEADER.size :]


def signed(ring: Keyring, purpose: str, kind: int, sequence: int, body: bytes) -> bytes:
    """A frame under a valid MAC, with whatever body a peer may send."""
    head = HEADER.pack(frames.MAGIC, 1, kind, b"new".ljust(8, b"\0"), sequence, len(body))
    return head + body + ring.mac("new", purpose, head + body)


def purpose(sender: Hello, receiver: Hello) -> str:
    nonces = b"".join(sorted((sender.nonce, receiver.nonce))).hex()
    name = sender.peer.node
    return f"frame {nonces} {len(name)} {name} to {receiver.peer.node}"


def test_messages_cross_in_order_in_both_directions() -> None:
    decode, prefill = pair()
    sent: list[Message] = [CANCEL, Beat(), Inspect(), Withdraw(TransferId("r/2"), End.FAILED)]
    assert [prefill.open(decode.seal(message)) for message in sent] == sent
    assert [decode.open(prefill.seal(message)) for message in sent] == sent


@settings(max_examples=50)
@given(st.lists(st.tuples(st.booleans(), st.text(max_size=20)), max_size=20))
def test_any_interleaving_of_two_directions_is_read(turns: list[tuple[bool, str]]) -> None:
    decode, prefill = pair()
    for forth, name in turns:
        sender, receiver = (decode, prefill) if forth else (prefill, decode)
        message = Cancel(TransferId(name))
        assert receiver.open(sender.seal(message)) == message


def test_a_frame_is_refused_at_every_length_that_is_not_its_own() -> None:
    decode, prefill = pair()
    frame = decode.seal(RECEIPT)
    for length in range(len(frame)):
        assert refused(prefill, frame[:length]) is Reason.MALFORMED
    assert refused(prefill, frame + b"\0") is Reason.MALFORMED
    assert refused(prefill, frame + frame) is Reason.MALFORMED
    assert prefill.open(frame) == RECEIPT, "what was refused changed nothing"


def test_every_flipped_byte_is_refused() -> None:
    decode, prefill = pair()
    frame = decode.seal(CANCEL)
    for place in range(len(frame)):
        changed = bytearray(frame)
        changed[place] ^= 0x40
        with pytest.raises((PeerMisbehaved, PeerIncompatible)) as caught:
            prefill.open(bytes(changed))
        if place >= HEADER.size:
            assert isinstance(caught.value, PeerMisbehaved)
            assert caught.value.reason is Reason.FORGED, place
    assert prefill.open(frame) == CANCEL


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"magic": b"VK"}, Reason.MALFORMED),
        ({"kind": HELLO}, Reason.FORGED),
        ({"kind": 9}, Reason.FORGED),
        ({"key": b"old"}, Reason.FORGED),
        ({"key": b"nobody"}, Reason.FORGED),
        ({"key": b"\xff" * 8}, Reason.FORGED),
        ({"sequence": 2}, Reason.FORGED),
        ({"sequence": 2**64 - 1}, Reason.FORGED),
        ({"length": 0}, Reason.MALFORMED),
        ({"length": 2**32 - 1}, Reason.MALFORMED),
    ],
)
def test_a_changed_header_is_refused(fields: dict[str, object], reason: Reason) -> None:
    decode, prefill = pair()
    assert refused(prefill, with_header(decode.seal(CANCEL), **fields)) is reason


@pytest.mark.parametrize("version", [0, 2, 255])
def test_another_version_is_honest_and_incompatible(version: int) -> None:
    decode, prefill = pair()
    frame = with_header(decode.seal(CANCEL), version=version)
    with pytest.raises(PeerIncompatible, match=f"version {version}"):
        prefill.open(frame)
    with pytest.raises(PeerIncompatible):
        frames.open_hello(RING, with_header(frames.seal_hello(RING, HELLO_D), version=version))


def test_the_length_is_judged_from_the_header_alone() -> None:
    def header(length: int) -> bytes:
        return HEADER.pack(frames.MAGIC, 1, MESSAGE, b"new", 1, length)

    most = frames.FRAME_BYTES_MAX
    assert frames.frame_bytes(header(0)) == MAC_BYTES
    assert frames.frame_bytes(header(most)) == most + MAC_BYTES
    with pytest.raises(PeerMisbehaved, match="over the limit") as caught:
        frames.frame_bytes(header(most + 1))
    assert caught.value.reason is Reason.MALFORMED


def test_an_own_frame_that_comes_back_is_refused() -> None:
    decode, prefill = pair()
    frame = decode.seal(CANCEL)
    assert refused(decode, frame) is Reason.FORGED
    assert prefill.open(frame) == CANCEL


def test_a_repeated_frame_is_refused_on_its_channel() -> None:
    decode, prefill = pair()
    first = decode.seal(CANCEL)
    prefill.open(first)
    assert refused(prefill, first) is Reason.REPLAYED
    assert prefill.open(decode.seal(Beat())) == Beat()


def test_a_frame_of_another_channel_is_forged() -> None:
    """The same two processes in the same lives, one new nonce."""
    old, _ = pair()
    frame = old.seal(CANCEL)
    fresh = replace(HELLO_P, nonce=b"\x02" * 16)
    assert refused(Session(RING, fresh, HELLO_D), frame) is Reason.FORGED


@pytest.mark.parametrize("order", [(1, 0), (2, 0, 1), (0, 2)])
def test_frames_out_of_order_are_refused(order: tuple[int, ...]) -> None:
    decode, prefill = pair()
    sealed = [decode.seal(Cancel(TransferId(str(n)))) for n in range(3)]
    wrong = next(place for place, index in enumerate(order) if index != place)
    for place in range(wrong):
        prefill.open(sealed[order[place]])
    assert refused(prefill, sealed[order[wrong]]) is Reason.REPLAYED


def test_a_frame_for_another_process_is_forged() -> None:
    decode, _ = pair()
    third = Peer(NodeName("q"), Role.PREFILL, Incarnation("q-1"))
    other = Session(RING, Hello(third, "d", HELLO_P.nonce, "layout"), replace(HELLO_D, to="q"))
    assert refused(other, decode.seal(CANCEL)) is Reason.FORGED


def test_a_hello_is_no_message_and_a_message_no_hello() -> None:
    decode, prefill = pair()
    assert refused(prefill, frames.seal_hello(RING, HELLO_D)) is Reason.FORGED
    with pytest.raises(PeerMisbehaved) as caught:
        frames.open_hello(RING, decode.seal(CANCEL))
    assert caught.value.reason is Reason.FORGED
    odd = signed(RING, purpose(HELLO_D, HELLO_P), HELLO, 1, codec.encode(CANCEL, 1))
    assert refused(prefill, odd) is Reason.MALFORMED


# Hello


@settings(max_examples=50)
@given(
    st.builds(Peer, st.text(max_size=9), st.sampled_from(Role), st.text(max_size=9)),
    st.text(max_size=9),
    st.binary(min_size=16, max_size=16),
    st.text(max_size=9),
)
def test_a_hello_comes_back_as_it_was(peer: Peer, to: str, nonce: bytes, layout: str) -> None:
    hello = Hello(peer, to, nonce, layout)
    assert frames.open_hello(RING, frames.seal_hello(RING, hello)) == hello


def test_a_hello_is_refused_at_every_length_and_flipped_byte() -> None:
    frame = frames.seal_hello(RING, HELLO_D)
    for length in range(len(frame)):
        with pytest.raises(PeerMisbehaved) as caught:
            frames.open_hello(RING, frame[:length])
        assert caught.value.reason is Reason.MALFORMED
    for place in range(len(frame)):
        changed = bytearray(frame)
        changed[place] ^= 0x08
        with pytest.raises((PeerMisbehaved, PeerIncompatible)):
            frames.open_hello(RING, bytes(changed))


@pytest.mark.parametrize("nonce", [b"", bytes(15), bytes(17)])
def test_a_hello_without_a_whole_nonce_is_refused(nonce: bytes) -> None:
    with pytest.raises(PeerMisbehaved, match="nonce"):
        frames.open_hello(RING, frames.seal_hello(RING, replace(HELLO_D, nonce=nonce)))


@pytest.mark.parametrize("name", ["peer", "to", "nonce", "layout"])
def test_a_hello_without_a_field_is_refused(name: str) -> None:
    fields = msgspec.to_builtins(HELLO_D, builtin_types=(bytes,))
    del fields[name]
    frame = signed(RING, "hello", HELLO, 0, msgspec.msgpack.encode(fields))
    with pytest.raises(PeerMisbehaved, match=name) as caught:
        frames.open_hello(RING, frame)
    assert caught.value.reason is Reason.MALFORMED


@pytest.mark.parametrize("depth", [100, 50_000])
def test_a_nested_hello_is_refused(depth: int) -> None:
    body = b"\x81\xa1z" + b"\x91" * depth + b"\xc0"
    with pytest.raises(PeerMisbehaved) as caught:
        frames.open_hello(RING, signed(RING, "hello", HELLO, 0, body))
    assert caught.value.reason is Reason.MALFORMED


def test_a_hello_for_somebody_else_opens_no_channel() -> None:
    with pytest.raises(PeerMisbehaved) as caught:
        Session(RING, HELLO_D, replace(HELLO_P, to="q"))
    assert caught.value.reason is Reason.IDENTITY


def test_an_own_hello_that_comes_back_opens_no_channel() -> None:
    to_itself = replace(HELLO_D, to="d")
    with pytest.raises(PeerMisbehaved) as caught:
        Session(RING, to_itself, to_itself)
    assert caught.value.reason is Reason.REPLAYED


# Keys


def test_two_keys_are_valid_while_they_rotate() -> None:
    old_first = Keyring({"old": OLD, "new": NEW})
    decode, prefill = pair(RING, old_first)
    assert prefill.open(decode.seal(CANCEL)) == CANCEL
    assert decode.open(prefill.seal(CANCEL)) == CANCEL
    assert frames.open_hello(old_first, frames.seal_hello(RING, HELLO_D)) == HELLO_D


def test_a_key_that_was_withdrawn_is_unknown() -> None:
    decode, prefill = pair(Keyring({"old": OLD}), Keyring({"new": NEW}))
    assert refused(prefill, decode.seal(CANCEL)) is Reason.FORGED
    with pytest.raises(PeerMisbehaved, match="unknown key id"):
        frames.open_hello(Keyring({"new": NEW}), frames.seal_hello(Keyring({"old": OLD}), HELLO_D))


# The guard


def test_without_the_frame_guard_a_forged_receipt_is_believed() -> None:
    """The same bytes of somebody without the key, with the guard on and off."""
    forger = Session(THIEF, HELLO_P, HELLO_D)
    forged = forger.seal(RECEIPT)
    assert refused(Session(RING, HELLO_D, HELLO_P), forged) is Reason.FORGED
    assert Session(RING, HELLO_D, HELLO_P, verify=False).open(forged) == RECEIPT


def test_without_the_frame_guard_a_replayed_receipt_is_believed() -> None:
    decode, prefill = pair()
    frame = prefill.seal(RECEIPT)
    assert decode.open(frame) == RECEIPT
    assert refused(decode, frame) is Reason.REPLAYED
    off = Session(RING, HELLO_D, HELLO_P, verify=False)
    assert [off.open(frame), off.open(frame)] == [RECEIPT, RECEIPT]


def test_without_the_frame_guard_a_malformed_frame_is_still_refused() -> None:
    off = Session(RING, HELLO_D, HELLO_P, verify=False)
    frame = Session(THIEF, HELLO_P, HELLO_D).seal(RECEIPT)
    for length in range(len(frame)):
        assert refused(off, frame[:length]) is Reason.MALFORMED


# Anything at all


@settings(max_examples=1_000)
@given(st.binary(max_size=200), st.booleans())
def test_random_bytes_are_refused(data: bytes, verify: bool) -> None:
    session = Session(RING, HELLO_D, HELLO_P, verify=verify)
    with pytest.raises((PeerMisbehaved, PeerIncompatible)):
        session.open(data)
    with pytest.raises((PeerMisbehaved, PeerIncompatible)):
        frames.open_hello(RING, data, verify)


@settings(max_examples=1_000)
@given(st.binary(max_size=120), st.integers(0, 3), st.integers(0, 2**64 - 1), st.booleans())
def test_random_bodies_behind_a_true_header_are_refused(
    body: bytes, kind: int, sequence: int, authentic: bool
) -> None:
    """Also under a valid MAC: whoever has the key may still be wrong."""
    head = HEADER.pack(frames.MAGIC, 1, kind, b"new".ljust(8, b"\0"), sequence, len(body))
    mac = RING.mac("new", purpose(HELLO_P, HELLO_D), head + body) if authentic else bytes(32)
    for verify in (True, False):
        with pytest.raises(PeerMisbehaved):
            Session(RING, HELLO_D, HELLO_P, verify=verify).open(head + body + mac)


def test_the_header_has_no_padding() -> None:
    assert HEADER.size == 2 + 1 + 1 + 8 + 8 + 4
    assert struct.calcsize(HEADER.format) == HEADER.size


def sealed(sender: Session, body: bytes) -> bytes:
    """The next frame of a sender, with a body that no honest one sends."""
    sender._sent += 1
    return frames._seal(RING, sender._sends, MESSAGE, sender._sent, body)


@pytest.mark.parametrize("body", [b"", b"\xc1", msgspec.msgpack.encode(["gossip", [], {}])])
def test_only_what_is_authentic_is_laid_at_its_senders_door(body: bytes) -> None:
    decode, prefill = pair()
    with pytest.raises(Nonsense):
        prefill.open(sealed(decode, body))
    decode, prefill = pair(THIEF, RING)
    with pytest.raises(PeerMisbehaved) as caught:
        prefill.open(decode.seal(CANCEL))
    assert not isinstance(caught.value, Nonsense), "whoever has no key may have said it"
    believing = Session(RING, HELLO_P, HELLO_D, verify=False)
    decode, _ = pair()
    with pytest.raises(PeerMisbehaved) as caught:
        believing.open(sealed(decode, body))
    assert not isinstance(caught.value, Nonsense), "nobody has looked who said it"
