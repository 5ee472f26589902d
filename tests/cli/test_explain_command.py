"""`kvairlock explain`: the story of one request, and the bundle that its tenant is handed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvairlock.cli import main

from .conftest import Command
from .made_evidence import Made, make_state


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return make_state(tmp_path_factory.mktemp("made") / "state")


@pytest.fixture(scope="module")
def written(made: Made, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The bundle of a request that is excluded, which had other requests around it."""
    path = tmp_path_factory.mktemp("written") / "bundle.json"
    with pytest.raises(SystemExit) as ended:
        main(["explain", made.ids[chosen(made)], str(made.evidence), "--bundle", str(path)])
    assert ended.value.code == 0
    return path.read_bytes()


@pytest.fixture
def bundle(written: bytes, tmp_path: Path) -> Path:
    path = tmp_path / "bundle.json"
    path.write_bytes(written)
    return path


def chosen(made: Made) -> str:
    """An excluded request that was handed over, into pages which others had before it."""
    handed = {row["request"] for row in made.rows if row["event"] == "verdict"}
    had: set[int] = set()
    for row in made.rows:
        if row["event"] == "pages_allocated" and row["role"] == "decode":
            if row["request"] in handed & made.excluded and had & set(row["pages"]):
                return str(row["request"])
            had |= set(row["pages"])
    raise AssertionError("nobody was given a page that another had before")


def test_an_affected_request_is_told_from_its_admission_to_its_drain(
    kvairlock: Command, made: Made
) -> None:
    (affected,) = made.affected
    ran = kvairlock("explain", affected, made.evidence)
    assert ran.status == 1
    told = [
        "request_admitted",
        "pages_allocated",
        "window_granted",
        "receipt_sent",
        "verdict",
        "read_started",
        "request_ended",
        "drain_ended",
    ]
    assert all(event in ran.out for event in told)
    assert "prefill_refused: prefill refused, and decode read all the same" in ran.out
    assert "could have read of request" in ran.out


def test_a_request_is_found_by_the_id_that_its_client_got(kvairlock: Command, made: Made) -> None:
    digest = chosen(made)
    ran = kvairlock("explain", made.ids[digest], made.evidence, "--json")
    assert ran.status == 0
    (told,) = ran.json
    assert (told["attempt"], told["verdict"]["request"]) == (1, digest)
    assert told["missing"] == []
    assert told["unchecked"] == []
    own = [row for row in made.rows if row.get("request") == digest]
    assert len(told["records"]) == len(own)


def test_what_is_not_on_record_is_named(kvairlock: Command, made: Made, tmp_path: Path) -> None:
    for path in made.evidence.iterdir():
        if not path.name.startswith("prefill"):
            (tmp_path / path.name).write_bytes(path.read_bytes())
    ran = kvairlock("explain", chosen(made), tmp_path, "--json")
    assert ran.status == 3
    assert "receipt (receipt_sent of prefill)" in ran.json[0]["missing"]


@pytest.mark.parametrize("request_", ["cmpl-unknown", "0" * 24])
def test_a_request_that_nobody_recorded_is_no_excluded_one(
    kvairlock: Command, made: Made, request_: str
) -> None:
    ran = kvairlock("explain", request_, made.evidence)
    assert ran.status == 2
    assert "nothing is on record" in ran.err


def test_an_id_without_the_keys_that_digest_it_is_refused(
    kvairlock: Command, made: Made, tmp_path: Path
) -> None:
    for path in made.evidence.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    ran = kvairlock("explain", "cmpl-1", tmp_path)
    assert ran.status == 2
    assert "only be looked up with the cluster's keys" in ran.err


def test_a_bundle_verifies_in_an_empty_home_and_comes_to_the_verdict_again(
    kvairlock: Command, bundle: Path, home: Path
) -> None:
    before = sorted(home.rglob("*"))
    key = json.loads(bundle.read_text())["public_key"]
    ran = kvairlock("explain", "--verify", bundle, "--public-key", key, "--json")
    assert ran.status == 0
    assert ran.json["verifies"]
    (attempt,) = ran.json["bundle"]["attempts"]
    assert (attempt["verdict"], attempt["rederived"]) == ("excluded", True)
    assert sorted(home.rglob("*")) == before


def test_a_bundle_that_is_verified_says_who_signed_and_what_is_claimed(
    kvairlock: Command, bundle: Path
) -> None:
    key = json.loads(bundle.read_text())["public_key"]
    ran = kvairlock("explain", "--verify", bundle, "--public-key", key)
    assert ran.status == 0
    assert f"signed by {key}, the key that you named" in ran.out
    assert "verdict: excluded, observed" in ran.out
    assert "the rules came to the same verdict again" in ran.out
    bundle.with_name("key").write_text(key + "\n")
    assert (
        kvairlock("explain", "--verify", bundle, "--public-key", bundle.with_name("key")).status
        == 0
    )


def test_a_bundle_whose_signer_nobody_named_is_not_taken_for_proof(
    kvairlock: Command, bundle: Path
) -> None:
    ran = kvairlock("explain", "--verify", bundle)
    assert ran.status == 3
    assert ran.out.startswith("unknown signer")


def test_a_bundle_of_another_key_is_refused(kvairlock: Command, bundle: Path) -> None:
    ran = kvairlock("explain", "--verify", bundle, "--public-key", "0" * 64)
    assert ran.status == 1
    assert "not by the key that was named" in ran.err


def test_a_changed_byte_is_refused_with_status_1(kvairlock: Command, bundle: Path) -> None:
    data = bytearray(bundle.read_bytes())
    data[len(data) // 2] ^= 1
    bundle.write_bytes(data)
    ran = kvairlock("explain", "--verify", bundle)
    assert ran.status == 1
    assert "was changed" in ran.err
    assert "Traceback" not in ran.err


def test_nothing_of_another_tenant_or_request_is_in_a_bundle(made: Made, bundle: Path) -> None:
    text, own = bundle.read_text(), chosen(made)
    mine = {row["tenant"] for row in made.rows if row.get("request") == own}
    others = {r["tenant"] for r in made.rows if r.get("tenant")} - mine
    assert own in text
    assert not [name for name in (set(made.ids) - {own}) | others if name in text]


def test_two_bundles_call_the_same_neighbour_by_two_names(
    kvairlock: Command, made: Made, bundle: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other.json"
    kvairlock("explain", made.ids[chosen(made)], made.evidence, "--bundle", other)
    names = [
        {r["request"] for r in json.loads(path.read_text())["attempts"][0]["records"]}
        for path in (bundle, other)
    ]
    assert names[0] & names[1] == {chosen(made)}
    assert all(len(each) > 1 for each in names)


def test_the_signing_key_is_private_and_made_once(made: Made, bundle: Path) -> None:
    key = made.state / "bundle.key"
    assert key.stat().st_mode & 0o077 == 0
    secret = key.read_text().splitlines()[-1]
    assert secret not in bundle.read_text()


def test_a_bundle_does_not_overwrite_a_file(kvairlock: Command, made: Made, bundle: Path) -> None:
    before = bundle.read_bytes()
    ran = kvairlock("explain", chosen(made), made.evidence, "--bundle", bundle)
    assert ran.status == 2
    assert bundle.read_bytes() == before


@pytest.mark.parametrize(
    "words", [(), ("--verify", "no-such-file"), ("x", "--public-key", "0" * 64)]
)
def test_a_wrong_command_line_has_status_2(
    kvairlock: Command, made: Made, words: tuple[str, ...]
) -> None:
    ran = kvairlock("explain", *words)
    assert (ran.status, ran.out) == (2, "")
    assert "Traceback" not in ran.err
