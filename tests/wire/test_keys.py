"""The key ring: one key signs, all verify, and no key byte ever shows."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvairlock.core.errors import Misuse, PeerMisbehaved, Reason
from kvairlock.wire.keys import KEY_BYTES, Keyring, input_digest

HEX = "0f" * KEY_BYTES
OTHER = "a5" * KEY_BYTES
SECRET = "5ec2e7" * 10 + "5ec2"


def test_the_first_key_signs_and_comments_and_commas_are_read() -> None:
    ring = Keyring.parse(f"# cluster\nnew {HEX}  # since today\n\nold {OTHER}")
    assert (ring.active_id, list(ring.keys)) == ("new", ["new", "old"])
    assert Keyring.parse(f"new {HEX},old {OTHER}") == ring


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# nothing",
        SECRET,
        f"a {SECRET} x",
        f"a {SECRET[:-2]}",
        f"a {SECRET}00",
        f"a {SECRET[:-1]}g",
        f"a {SECRET}\na {SECRET}",
        f"toolongid {SECRET}",
        f"a-b {SECRET}",
        f"\u00e9 {SECRET}",
        f"a={SECRET}",
        f"{SECRET} a",
        f"a 0x{SECRET}",
    ],
)
def test_what_is_no_key_ring_is_misuse_and_shows_no_key_byte(text: str) -> None:
    with pytest.raises(Misuse) as caught:
        Keyring.parse(text)
    shown = f"{caught.value} {caught.value!r} {caught.value.__context__!r}"
    assert SECRET[:8] not in shown


@settings(max_examples=300)
@given(st.text(max_size=80))
def test_any_text_is_a_ring_or_misuse(text: str) -> None:
    try:
        ring = Keyring.parse(text)
    except Misuse:
        return
    assert all(len(key) == KEY_BYTES for key in ring.keys.values())


def test_a_ring_shows_its_ids_and_no_key() -> None:
    ring = Keyring.parse(f"k1 {HEX}")
    assert repr(ring) == str(ring) == "Keyring(k1)"
    assert "15" not in f"{ring}", "the decimal form of the bytes"


def test_an_unknown_key_id_is_forged() -> None:
    ring = Keyring.parse(f"k1 {HEX}")
    with pytest.raises(PeerMisbehaved, match="unknown key id") as caught:
        ring.check("k2", "p", b"data", bytes(32))
    assert caught.value.reason is Reason.FORGED


def test_a_mac_is_worth_nothing_for_another_purpose_key_or_byte() -> None:
    ring = Keyring.parse(f"k1 {HEX}\nk2 {OTHER}")
    mac = ring.mac("k1", "frames", b"data")
    ring.check("k1", "frames", b"data", mac)
    wrong = [
        ("k2", "frames", b"data", mac),
        ("k1", "tickets", b"data", mac),
        ("k1", "frames", b"datA", mac),
        ("k1", "frames", b"data", mac[:-1]),
        ("k1", "frames", b"data", b""),
    ]
    for case in wrong:
        with pytest.raises(PeerMisbehaved) as caught:
            ring.check(*case)
        assert caught.value.reason is Reason.FORGED


def test_an_input_digest_differs_by_everything_that_shapes_the_cache() -> None:
    ring = Keyring.parse(f"k1 {HEX}\nk2 {OTHER}")
    base = input_digest(ring, "k1", "salt", "layout", b"tokens")
    others = {
        input_digest(ring, "k2", "salt", "layout", b"tokens"),
        input_digest(ring, "k1", "salt2", "layout", b"tokens"),
        input_digest(ring, "k1", "salt", "layout2", b"tokens"),
        input_digest(ring, "k1", "salt", "layout", b"tokens2"),
    }
    assert len({base} | others) == 5
    assert input_digest(ring, "k1", "salt", "layout", b"tokens") == base


def test_salt_and_layout_of_an_input_digest_cannot_be_shifted_into_each_other() -> None:
    ring = Keyring.parse(f"k1 {HEX}")
    assert input_digest(ring, "k1", "a b", "c", b"t") != input_digest(ring, "k1", "a", "b c", b"t")
