"""The evidence key: made once, the next one when its period is over, and the former one is gone."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import anyio
import pytest

from kvairlock.cli import places
from kvairlock.cli.stack import Stack
from kvairlock.runtime.secrets import KeysWrong, load_pseudonyms, pseudonyms_in, write_private
from kvairlock.runtime.settings import Settings
from kvairlock.wire.keys import Keyring
from kvairlock.wire.pseudonyms import DAY_S, Pseudonyms

RING = Keyring({"one": b"1" * 32})
NOW = 1_796_000_000


@pytest.fixture(autouse=True)
def _no_key_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KVAIRLOCK_EVIDENCE_KEY", raising=False)


def file_in(state: Path) -> Path:
    return state / places.EVIDENCE_KEY_FILE


def test_the_first_use_makes_a_private_key_and_later_ones_take_it(tmp_path: Path) -> None:
    first = places.pseudonyms(RING, tmp_path, 90, NOW)
    assert (first.since_unix_s, first.days) == (NOW, 90)
    assert first.key != RING.keys["one"]
    assert file_in(tmp_path).stat().st_mode & 0o777 == 0o600
    assert places.pseudonyms(RING, tmp_path, 90, NOW + 89 * DAY_S) == first
    assert pseudonyms_in(file_in(tmp_path)) == first


def test_the_cluster_keys_rotation_changes_no_pseudonym(tmp_path: Path) -> None:
    first = places.pseudonyms(RING, tmp_path, 90, NOW)
    rotated = Keyring({"two": b"2" * 32, **RING.keys})
    assert places.pseudonyms(rotated, tmp_path, 90, NOW + 1) == first


def test_after_a_period_the_file_holds_the_next_key_and_not_the_one_before(tmp_path: Path) -> None:
    first = places.pseudonyms(RING, tmp_path, 90, NOW)
    later = places.pseudonyms(RING, tmp_path, 90, NOW + 200 * DAY_S)
    assert later == first.at(NOW + 200 * DAY_S)
    assert first.key.hex() not in file_in(tmp_path).read_text()
    shorter = places.pseudonyms(RING, tmp_path, 30, NOW + 201 * DAY_S)
    assert (shorter.since_unix_s, shorter.days) == (NOW + 201 * DAY_S, 30)
    assert later.key.hex() not in file_in(tmp_path).read_text()


def test_a_running_stack_brings_the_file_up_to_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = places.pseudonyms(RING, tmp_path, 90, NOW)
    other = tmp_path / "run.key"
    places.write_pseudonyms(other, first)
    looks = 0

    async def sleep(_: float) -> None:
        nonlocal looks
        looks += 1
        if looks > 3:
            raise anyio.ClosedResourceError
        if looks == 2:
            file_in(tmp_path).chmod(0o644)  # somebody's mistake ends nothing
        if looks == 3:
            file_in(tmp_path).unlink()

    monkeypatch.setattr(anyio, "sleep", sleep)
    monkeypatch.setattr("kvairlock.cli.places.time.time", lambda: NOW + 90.0 * DAY_S)
    with pytest.raises(anyio.ClosedResourceError):
        anyio.run(places.keep_pseudonyms, (file_in(tmp_path), other))
    assert pseudonyms_in(other) == first.at(NOW + 90 * DAY_S)
    assert not file_in(tmp_path).exists(), "a key that is gone is not made anew while it runs"


def test_what_is_left_of_a_write_that_was_killed_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places.pseudonyms(RING, tmp_path, 90, NOW)
    left = tmp_path / f".{places.EVIDENCE_KEY_FILE}.{2**22 + 1}"  # no process has that id
    left.write_text("5ec2e7")
    busy = tmp_path / f".{places.EVIDENCE_KEY_FILE}.{os.getpid()}"
    busy.write_text("5ec2e7")
    places.pseudonyms(RING, tmp_path, 90, NOW)
    assert (left.exists(), busy.exists()) == (False, True)


def test_no_process_has_it_in_its_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There it would stay when its period is over; they read a file that moves on."""
    key = Pseudonyms.fresh(NOW, 90)
    monkeypatch.setenv("KVAIRLOCK_EVIDENCE_KEY", key.text())
    stack = Stack(Settings(), RING, tmp_path, tmp_path, tmp_path, tmp_path)
    stack.write_evidence_key(key)
    for spec in itertools.chain.from_iterable(stack.waves()):
        assert not any(key.key.hex() in text for text in spec.env.values())
        file = Path(spec.argv[spec.argv.index("--evidence-key") + 1])
        assert pseudonyms_in(file) == key


def test_other_hosts_are_given_the_key_in_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = Pseudonyms(b"e" * 32, NOW, 90)
    monkeypatch.setenv("KVAIRLOCK_EVIDENCE_KEY", given.text())
    later = NOW + 91 * DAY_S
    assert places.pseudonyms(RING, tmp_path, 7, later) == given.at(later)
    assert not file_in(tmp_path).exists()
    assert load_pseudonyms(tmp_path / "nowhere", RING) == given


def test_a_key_that_others_can_read_or_that_is_none_is_refused(tmp_path: Path) -> None:
    secret = "5ec2e7" * 10
    write_private(file_in(tmp_path), f"{NOW} 90 {secret}")
    with pytest.raises(KeysWrong) as caught:
        places.pseudonyms(RING, tmp_path, 90, NOW)
    assert secret not in str(caught.value)
    file_in(tmp_path).chmod(0o640)
    with pytest.raises(KeysWrong, match="chmod 600"):
        places.pseudonyms(RING, tmp_path, 90, NOW)


def test_a_process_without_one_has_the_pseudonyms_of_the_first_release() -> None:
    assert load_pseudonyms(None, RING) == Pseudonyms.of_ring(RING)
