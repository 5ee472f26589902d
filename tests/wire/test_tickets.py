"""Request tickets: what a gateway signed and nothing else."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvairlock.core.errors import PeerMisbehaved, Reason
from kvairlock.core.messages import RequestTicket
from kvairlock.core.terms import Incarnation, NodeName, Owner, Peer, Role
from kvairlock.wire import tickets
from kvairlock.wire.keys import KEY_BYTES, KEY_ID_BYTES, MAC_BYTES, Keyring

NEW, OLD, STRANGE = (bytes([n]) * KEY_BYTES for n in (1, 2, 3))
RING = Keyring({"new": NEW, "old": OLD})
DECODE = Peer(NodeName("d"), Role.DECODE, Incarnation("d-1"))
TICKET = RequestTicket(
    Owner("alice", "r1", 1), b"digest", 6, 2, 1, "team", 1_700_000_000, "salt", DECODE
)
SIGNED = tickets.sign(RING, TICKET)


def refused(data: bytes, ring: Keyring = RING) -> Reason:
    with pytest.raises(PeerMisbehaved) as caught:
        tickets.verify(ring, data)
    return caught.value.reason


@settings(max_examples=100)
@given(
    st.builds(
        RequestTicket,
        owner=st.builds(Owner, st.text(max_size=10), st.text(max_size=10), st.integers(0, 99)),
        input_digest=st.binary(max_size=32),
        prompt_tokens=st.integers(0, 10**9),
        max_tokens=st.integers(0, 10**9),
        choices=st.integers(0, 100),
        scope=st.text(max_size=10),
        expires_unix_s=st.integers(0, 2**62),
        salt=st.text(max_size=32),
    )
)
def test_a_ticket_comes_back_as_it_was(ticket: RequestTicket) -> None:
    assert tickets.verify(RING, tickets.sign(RING, ticket)) == ticket


def test_a_ticket_is_small() -> None:
    assert len(SIGNED) < 500


def test_every_changed_bit_is_refused() -> None:
    for place in range(len(SIGNED)):
        for bit in (1, 128):
            changed = bytearray(SIGNED)
            changed[place] ^= bit
            expected = Reason.VERSION if place == 0 else Reason.FORGED
            assert refused(bytes(changed)) is expected, (place, bit)


def test_a_truncated_ticket_is_refused_at_every_length() -> None:
    for length in range(len(SIGNED)):
        assert refused(SIGNED[:length]) in {Reason.MALFORMED, Reason.FORGED}
    assert refused(b"") is Reason.MALFORMED
    assert refused(SIGNED[: 1 + KEY_ID_BYTES + MAC_BYTES]) is Reason.MALFORMED


@pytest.mark.parametrize("extra", [b"\0", SIGNED, bytes(5_000)])
def test_a_longer_ticket_is_refused(extra: bytes) -> None:
    assert refused(SIGNED + extra) in {Reason.MALFORMED, Reason.FORGED}
    assert refused(SIGNED + bytes(5_000)) is Reason.MALFORMED


def test_keys_rotate_while_both_are_valid() -> None:
    before, after = Keyring({"old": OLD}), Keyring({"new": NEW})
    signed_old = tickets.sign(before, TICKET)
    assert tickets.verify(RING, signed_old) == TICKET
    assert tickets.key_id_of(signed_old) == "old"
    assert tickets.key_id_of(SIGNED) == "new"
    assert refused(signed_old, after) is Reason.FORGED
    assert refused(SIGNED, before) is Reason.FORGED


def test_a_key_of_the_same_name_with_other_bytes_is_refused() -> None:
    assert refused(tickets.sign(Keyring({"new": STRANGE}), TICKET)) is Reason.FORGED


def test_a_mac_of_another_purpose_makes_no_ticket() -> None:
    signed = SIGNED[:-MAC_BYTES]
    for purpose in ("hello", "request ticket ", "frame"):
        assert refused(signed + RING.mac("new", purpose, signed)) is Reason.FORGED


def resigned(body: bytes) -> bytes:
    """A body under a valid signature: an older or newer gateway of the same cluster."""
    signed = SIGNED[: 1 + KEY_ID_BYTES] + body
    return signed + RING.mac("new", tickets.PURPOSE, signed)


FIELDS = msgspec.to_builtins(TICKET, builtin_types=(bytes,))


@pytest.mark.parametrize("name", FIELDS)
def test_a_missing_or_wrong_field_under_a_valid_signature_is_refused(name: str) -> None:
    missing = {k: v for k, v in FIELDS.items() if k != name}
    wrong = {**FIELDS, name: 1.5}
    for fields in (missing, wrong):
        assert refused(resigned(msgspec.msgpack.encode(fields))) is Reason.MALFORMED


@pytest.mark.parametrize("depth", [100, 50_000])
def test_a_nested_body_under_a_valid_signature_is_refused(depth: int) -> None:
    body = b"\x91" * min(depth, 3_900) + b"\xc0"
    assert refused(resigned(body)) is Reason.MALFORMED
    unknown = b"\x81\xa1z" + b"\x91" * min(depth, 3_900) + b"\xc0"
    assert refused(resigned(unknown)) is Reason.MALFORMED


def test_without_its_guard_a_forged_ticket_is_believed() -> None:
    """What `ticket` is for: the same bytes with the check off."""
    forged = tickets.sign(
        Keyring({"new": STRANGE}), replace(TICKET, owner=Owner("mallory", "r1", 1))
    )
    assert refused(forged) is Reason.FORGED
    assert tickets.verify(RING, forged, check=False).owner.tenant == "mallory"


@settings(max_examples=1_000)
@given(st.binary(max_size=300), st.booleans())
def test_random_bytes_are_refused(data: bytes, check: bool) -> None:
    with pytest.raises(PeerMisbehaved):
        tickets.verify(RING, data, check=check)


@settings(max_examples=1_000)
@given(st.binary(max_size=200))
def test_random_bodies_under_a_valid_signature_are_refused(body: bytes) -> None:
    with pytest.raises(PeerMisbehaved) as caught:
        tickets.verify(RING, resigned(body))
    assert caught.value.reason is Reason.MALFORMED
