"""Pseudonyms: equal everywhere within a period, unlinkable after it, and no key byte ever shows."""

from __future__ import annotations

import pytest

from kvairlock.core.errors import Misuse
from kvairlock.wire.keys import KEY_BYTES, Keyring
from kvairlock.wire.pseudonyms import DAY_S, DIGEST_BYTES, Pseudonyms

HEX = "5e" * KEY_BYTES
START = 1_796_000_000
KEY = Pseudonyms(bytes.fromhex(HEX), START, 90)
PERIOD_S = 90 * DAY_S


def test_a_name_has_one_digest_in_a_period_whoever_makes_it() -> None:
    other = Pseudonyms.parse(KEY.text())
    for at in (START, START + 1, START + PERIOD_S - 1):
        assert KEY.at(at).of("tenant", "acme") == other.of("tenant", "acme")
    assert KEY.of("tenant", "acme") != KEY.of("request", "acme")
    assert len(bytes.fromhex(KEY.of("tenant", "acme"))) == DIGEST_BYTES


def test_each_period_has_another_key_and_all_processes_go_over_at_one_moment() -> None:
    began, restarted = KEY, KEY.at(START + PERIOD_S)
    digests = {KEY.at(START + n * PERIOD_S).of("tenant", "acme") for n in range(5)}
    assert len(digests) == 5
    for later in (PERIOD_S, PERIOD_S + 1, 3 * PERIOD_S - 1, 3 * PERIOD_S):
        assert began.at(START + later) == restarted.at(START + later)


def test_the_key_of_a_later_period_gives_no_earlier_one() -> None:
    taken = KEY.at(START + PERIOD_S)
    assert taken.at(START) == taken
    assert taken.key not in (KEY.key, bytes(KEY_BYTES))
    assert taken.since_unix_s == START + PERIOD_S


def test_periods_of_another_length_begin_now_with_the_next_key() -> None:
    now = START + 1000
    assert KEY.lasting(90, now) is KEY
    shorter = KEY.lasting(7, now)
    assert (shorter.since_unix_s, shorter.days) == (now, 7)
    assert shorter.key == KEY.at(START + PERIOD_S).key


def test_without_a_key_of_its_own_digests_are_those_of_the_first_release() -> None:
    ring = Keyring({"one": bytes.fromhex(HEX), "two": bytes(KEY_BYTES)})
    first = Pseudonyms.of_ring(ring)
    assert (
        first.of("tenant", "acme")
        == ring.mac("one", "evidence pseudonym tenant", b"acme")[:DIGEST_BYTES].hex()
    )
    assert first.at(START + 100 * PERIOD_S) is first


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# nothing",
        HEX,
        f"1 {HEX}",
        f"1 90 {HEX} x",
        f"1 90 {HEX[:-2]}",
        f"1 90 {HEX[:-1]}g",
        f"-1 90 {HEX}",
        f"1 0 {HEX}",
        f"x 90 {HEX}",
        f"1 90 {HEX}\n1 90 {HEX}",
    ],
)
def test_what_is_no_key_is_refused_without_being_shown(text: str) -> None:
    with pytest.raises(Misuse) as caught:
        Pseudonyms.parse(text)
    assert HEX[:16] not in str(caught.value)


def test_comments_are_read_and_no_key_is_shown() -> None:
    assert Pseudonyms.parse(f"# an evidence key\n{START} 90 {HEX} # here\n") == KEY
    assert HEX[:8] not in repr(KEY)
