"""Bundles: every byte counts, nobody else is in them, their records come to the same verdict."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from ibis.backends import BaseBackend

from kvairlock.audit.auditing import audit
from kvairlock.audit.blinding import TIMES
from kvairlock.audit.bundle import (
    ATTEMPTS_MAX,
    FORMAT,
    MENTIONS_MAX,
    PAGES_MAX,
    RECORDS_MAX,
    Attempt,
    Bundle,
    BundleBroken,
    parsed,
    signed,
    write_bundle,
)
from kvairlock.audit.bundling import attempt_of
from kvairlock.audit.explaining import explain
from kvairlock.audit.histories import INCIDENTS, history
from kvairlock.audit.rederiving import agrees, rederive
from kvairlock.audit.signing import KEY_FILE, Signer, SigningKeyWrong, public_key_of
from kvairlock.audit.tables import evidence_of
from kvairlock.sink.columns import WIDE

SIGNER = Signer(bytes(range(32)))


def attempts(engine: BaseBackend, name: str) -> tuple[list[Attempt], frozenset[str]]:
    """Return what bundles say of the planted requests of an incident, and of one beside them."""
    made = history(3, INCIDENTS[name])
    rows = pa.Table.from_pylist(list(made.rows), schema=WIDE)
    evidence = evidence_of(engine.create_table("made_for_bundles", rows, overwrite=True))
    report = audit(evidence)
    handed = {r["request"] for r in made.rows if r["event"] == "verdict"}
    wanted = [*sorted(made.affected), min(handed - made.affected)]
    told = [explain(evidence, report, request) for request in wanted]
    found = [attempt_of(evidence, [], each, 0, []) for each in told if each is not None]
    return found, made.requests


@pytest.fixture(scope="module")
def bundle(engine: BaseBackend) -> Bundle:
    (*_, beside), _ = attempts(engine, "the incident")
    return of_attempt(beside)


def of_attempt(attempt: Attempt) -> Bundle:
    now = int(time.time())
    return signed(Bundle(FORMAT, "0", now, "", (attempt,), "", ""), SIGNER)


def line(bundle: Bundle, tmp_path: Path) -> bytes:
    path = tmp_path / "bundle"
    write_bundle(bundle, path)
    return path.read_bytes()


def test_a_bundle_is_read_as_it_was_written(bundle: Bundle, tmp_path: Path) -> None:
    assert parsed(line(bundle, tmp_path), "b", SIGNER.public_key) == bundle


@pytest.mark.slow
def test_no_byte_can_be_changed(bundle: Bundle, tmp_path: Path) -> None:
    data = bytearray(line(bundle, tmp_path))
    for place in range(len(data)):
        data[place] ^= 1 << place % 8
        with pytest.raises(BundleBroken):
            parsed(bytes(data), "b")
        data[place] ^= 1 << place % 8
    assert parsed(bytes(data), "b") == bundle


@pytest.mark.parametrize("more", [b" ", b"\n", b"{}"])
def test_nothing_can_be_added(bundle: Bundle, tmp_path: Path, more: bytes) -> None:
    for data in (line(bundle, tmp_path) + more, more + (tmp_path / "bundle").read_bytes()):
        with pytest.raises(BundleBroken):
            parsed(data, "b")


def test_another_who_signs_the_same_is_found_out_by_the_key(bundle: Bundle, tmp_path: Path) -> None:
    other = signed(bundle, Signer(bytes(32)))
    assert parsed(line(other, tmp_path), "b").public_key != SIGNER.public_key
    with pytest.raises(BundleBroken, match="not by the key that was named"):
        parsed((tmp_path / "bundle").read_bytes(), "b", SIGNER.public_key)


def test_a_signed_verdict_that_its_records_do_not_give_is_found_out(bundle: Bundle) -> None:
    (attempt,) = bundle.attempts
    lied = msgspec.structs.replace(attempt, verdict="affected", reasons=("prefill_refused",))
    assert agrees(attempt, rederive(attempt))
    assert not agrees(lied, rederive(lied))


def test_a_record_that_is_left_out_of_a_bundle_excludes_nobody(bundle: Bundle) -> None:
    (attempt,) = bundle.attempts
    for event in ("verdict", "drain_ended", "receipt_sent"):
        kept = tuple(record for record in attempt.records if record["event"] != event)
        short = msgspec.structs.replace(attempt, records=kept)
        assert rederive(short).verdict != "excluded", event


@pytest.mark.slow
@pytest.mark.parametrize("name", INCIDENTS)
def test_the_records_of_a_bundle_come_to_the_verdict_of_all_records(
    engine: BaseBackend, name: str
) -> None:
    found, requests = attempts(engine, name)
    assert [attempt.rederived for attempt in found] == [True] * len(found)
    for attempt in found:
        text = msgspec.json.encode(attempt).decode()
        assert not [other for other in requests - {attempt.request} if other in text]


def beyond(attempt: Attempt) -> dict[str, Bundle]:
    """Return bundles that nobody should have to judge, each too large in one way."""

    def held(*records: dict[str, object]) -> Attempt:
        return msgspec.structs.replace(attempt, records=records)

    given = next(r for r in attempt.records if r["event"] == "pages_allocated")
    whole = of_attempt(attempt)
    large = given | {"pages": list(range(PAGES_MAX + 1))}
    return {
        "attempts": msgspec.structs.replace(whole, attempts=(attempt,) * (ATTEMPTS_MAX + 1)),
        "no attempt": msgspec.structs.replace(whole, attempts=()),
        "records": of_attempt(held(*(given,) * (RECORDS_MAX + 1))),
        "no record": of_attempt(held()),
        "records of others only": of_attempt(held(given | {"request": "f" * 24})),
        "mentions of a page": of_attempt(held(*(given,) * (MENTIONS_MAX + 1))),
        "pages": of_attempt(held(large)),
        "time": msgspec.structs.replace(whole, made_unix_s=2**60),
    }


BEYOND = (
    "attempts",
    "no attempt",
    "records",
    "no record",
    "records of others only",
    "mentions of a page",
    "pages",
    "time",
)


@pytest.mark.parametrize("what", BEYOND)
def test_a_bundle_that_is_too_large_or_claims_nothing_is_neither_judged_nor_written(
    bundle: Bundle, tmp_path: Path, what: str
) -> None:
    wrong = signed(beyond(bundle.attempts[0])[what], SIGNER)
    with pytest.raises(BundleBroken):
        parsed(msgspec.json.encode(wrong, order="sorted") + b"\n", "b")
    with pytest.raises(BundleBroken):
        write_bundle(wrong, tmp_path / "bundle")
    assert not (tmp_path / "bundle").exists()


def test_to_verify_leaves_nothing_behind(
    bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    rederive(bundle.attempts[0])
    assert not list(tmp_path.iterdir())


def test_who_had_pages_between_two_requests_is_only_known_by_page_and_generation(
    engine: BaseBackend,
) -> None:
    made = history(7, quiet=40)
    rows = pa.Table.from_pylist(list(made.rows), schema=WIDE)
    evidence = evidence_of(engine.create_table("made_for_two", rows, overwrite=True))
    report = audit(evidence)
    given: dict[int, list[str]] = {}
    for row in made.rows:
        for page in row["pages"] if row["event"] == "pages_allocated" else ():
            if row["role"] == "decode":
                given.setdefault(page, []).append(row["request"])
    before, between, after = next(owners[:3] for owners in given.values() if len(owners) > 2)
    parts = []
    for request in (before, after):
        told = explain(evidence, report, request)
        assert told is not None
        parts.append(attempt_of(evidence, [], told, 0, []))
    theirs = [[r for r in part.records if r["request"] != part.request] for part in parts]
    shared = [{(r["request"], *(r[n] for n in TIMES)) for r in near} for near in theirs]
    assert all(part.rederived for part in parts)
    assert all(theirs)
    assert not shared[0] & shared[1]
    real = {row["lease"] for row in made.rows if row.get("request") == between and "lease" in row}
    for part, near in zip(parts, theirs, strict=True):
        own = {(r["node"], *(r[n] for n in TIMES)) for r in part.records if r not in near}
        assert {(r["node"], *(r[n] for n in TIMES)) for r in near} <= own
        assert not real & {r.get("lease") for r in near}


def test_the_key_that_signs_is_made_once_for_its_owner_only(tmp_path: Path) -> None:
    first = Signer.of(tmp_path)
    assert Signer.of(tmp_path).public_key == first.public_key
    assert (tmp_path / KEY_FILE).stat().st_mode & 0o077 == 0
    (tmp_path / KEY_FILE).chmod(0o644)
    with pytest.raises(SigningKeyWrong, match="others can read it"):
        Signer.of(tmp_path)


def test_a_public_key_is_given_as_itself_or_as_a_file(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(SIGNER.public_key + "\n")
    assert public_key_of(str(tmp_path / "key")) == public_key_of(SIGNER.public_key)
    with pytest.raises(SigningKeyWrong):
        public_key_of("no-such-file")
