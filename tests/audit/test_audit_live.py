"""Evidence of stacks that really ran: the demo's incident, a guarded soak, and the generator."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from ibis.backends import BaseBackend

from kvairlock.audit.auditing import audit
from kvairlock.audit.conversations import Conversation
from kvairlock.audit.report import Class, Report
from kvairlock.audit.stories import answered
from kvairlock.audit.synthetic import Row, Stack
from kvairlock.audit.tables import open_evidence
from kvairlock.runtime.secrets import pseudonyms_in
from kvairlock.sink.reading import files, read, read_folder

pytestmark = pytest.mark.slow

STACKS = 8
ORDERED_BY = "at_unix_ns"


def ran(folder: Path, *words: str) -> Path:
    """Run a command of kvairlock that leaves its evidence in a folder."""
    command = [sys.executable, "-m", "kvairlock", *words, "--keep", str(folder), "--json"]
    subprocess.run(command, check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ran(tmp_path_factory.mktemp("demo"), "demo", "--scenario", "incident")


@pytest.fixture(scope="module")
def soak(tmp_path_factory: pytest.TempPathFactory) -> Path:
    words = ("soak", "--requests", "40", "--concurrency", "8", "--tenants", "4")
    return ran(tmp_path_factory.mktemp("kept") / "soak", *words)


def audited(engine: BaseBackend, working: Path, *paths: Path) -> Report:
    return audit(open_evidence(paths, working, engine))


def commanded(*words: str | Path) -> tuple[int, dict[str, Any]]:
    """Run a command that reports as JSON; return its exit status and the document."""
    command = [sys.executable, "-m", "kvairlock", *map(str, words), "--json"]
    run = subprocess.run(command, check=False, capture_output=True, text=True)
    return run.returncode, json.loads(run.stdout)


def records_of(folder: Path) -> list[Row]:
    return read_folder(folder)


def copied(evidence: Path, to: Path, without: str = "") -> Path:
    """Copy evidence, but nothing of one node."""
    to.mkdir()
    for path in evidence.iterdir():
        if not without or not path.name.startswith(without):
            shutil.copy(path, to / path.name)
    return to


def opened_again(evidence: Path, to: Path, node: str, share: float) -> Path:
    """Copy evidence of which a node lost the tail: it has lines only, and no seals."""
    copied(evidence, to, without=node)
    for path in files(evidence):
        if path.name.startswith(node):
            lines = [json.dumps(record) + "\n" for record in read(path)]
            kept = "".join(lines[: int(len(lines) * share)])
            (to / path.name).with_suffix(".jsonl").write_text(kept)
    return to


def of_class(report: Report, wanted: Class) -> set[str]:
    return {verdict.request for verdict in report.verdicts(wanted)}


def rejected(rows: Iterable[Row]) -> set[str]:
    """Requests whose prefill states that it rejected them."""
    return {
        r["request"] for r in rows if r["event"] == "receipt_sent" and r["outcome"] != "completed"
    }


def test_of_the_unguarded_demo_exactly_the_rejected_request_is_affected(
    engine: BaseBackend, demo: Path, tmp_path: Path
) -> None:
    evidence = demo / "stack-1" / "evidence"
    report = audited(engine, tmp_path, evidence)
    planted = rejected(records_of(evidence))
    assert len(planted) == 1
    assert of_class(report, Class.AFFECTED) == planted
    (verdict,) = report.verdicts(Class.AFFECTED)
    assert {"prefill_refused", "beyond_confirmed"} <= set(verdict.reasons)


def test_whose_pages_the_incident_read_is_the_request_before_it(
    engine: BaseBackend, demo: Path, tmp_path: Path
) -> None:
    evidence = demo / "stack-1" / "evidence"
    report = audited(engine, tmp_path, evidence)
    (planted,) = rejected(records_of(evidence))
    given = [
        r for r in records_of(evidence) if r["event"] == "pages_allocated" and r["role"] == "decode"
    ]
    before = max(
        (r for r in given if r["request"] != planted), key=lambda record: record["sequence"]
    )
    assert {e.other for e in report.exposures if e.request == planted} == {before["request"]}


def test_nobody_is_excluded_while_guards_are_off(
    engine: BaseBackend, demo: Path, tmp_path: Path
) -> None:
    report = audited(engine, tmp_path, demo / "stack-1" / "evidence")
    assert not of_class(report, Class.EXCLUDED)


@pytest.mark.parametrize("number", [n for n in range(2, STACKS + 1) if n != 3])
def test_where_one_guard_is_on_nobody_is_affected(
    engine: BaseBackend, demo: Path, tmp_path: Path, number: int
) -> None:
    report = audited(engine, tmp_path, demo / f"stack-{number}" / "evidence")
    assert not of_class(report, Class.AFFECTED)


@pytest.mark.parametrize("node", ["decode-0", "prefill-0", "gateway"])
def test_without_one_nodes_evidence_the_incident_is_not_excluded(
    engine: BaseBackend, demo: Path, tmp_path: Path, node: str
) -> None:
    kept = copied(demo / "stack-1" / "evidence", tmp_path / "kept", without=node)
    report = audited(engine, tmp_path, kept)
    assert not of_class(report, Class.EXCLUDED)
    assert node in {missing.node for missing in report.coverage.missing}


def test_the_command_finds_the_planted_request_among_all_stacks_of_the_demo(demo: Path) -> None:
    pseudonyms = pseudonyms_in(demo / "stack-1" / "evidence.key")
    status, told = commanded("audit", demo)
    affected = [each for each in told["requests"] if each["verdict"] == "affected"]
    assert status == 1
    assert {each["request"] for each in affected} == rejected(
        records_of(demo / "stack-1" / "evidence")
    )
    assert [each["tenant"] for each in affected] == [pseudonyms.of("tenant", "bravo")]
    exposed = {each["other"] for each in told["exposures"]}
    acme = pseudonyms.of("tenant", "acme")
    owners = {r["tenant"] for r in told["requests"] if r["request"] in exposed}
    assert owners == {acme}
    assert told["coverage"]["seals"]["broken"] == []
    assert told["coverage"]["seals"]["keyed"] is True


@pytest.mark.parametrize("node", ["decode-0", "prefill-1", "gateway"])
def test_a_guarded_soak_without_one_nodes_evidence_has_status_3(
    soak: Path, tmp_path: Path, node: str
) -> None:
    kept = copied(soak / "evidence", tmp_path / "kept", without=node)
    status, told = commanded("audit", kept)
    assert status == 3
    assert told["counts"]["affected"] == 0
    assert told["counts"]["insufficient"] > 0


@pytest.mark.parametrize(
    ("harm", "reason"),
    [("altered", "file_altered"), ("removed", "file_removed"), ("unsealed", "file_unsealed")],
)
def test_files_that_are_not_as_they_were_sealed_exclude_nobody_who_was_there(
    soak: Path, tmp_path: Path, harm: str, reason: str
) -> None:
    kept = copied(soak / "evidence", tmp_path / "kept")
    (file,) = kept.glob("decode-0-*.parquet")
    if harm == "altered":
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 1
        file.write_bytes(data)
    elif harm == "removed":
        file.unlink()
    else:
        (kept / "decode-0.seals").unlink()
    status, told = commanded("audit", kept, "--state", soak)
    there = {r.get("request") for r in records_of(soak / "evidence") if r["role"] == "decode"}
    assert status == 3
    assert not there & {each["request"] for each in told["excluded"]}
    assert reason in told["reasons"] or "decode-0" in {
        gone["node"] for gone in told["coverage"]["missing"]
    }
    assert [each["gap"] for each in told["coverage"]["seals"]["broken"]] == [reason]


def test_a_bundle_of_a_real_request_verifies_and_names_nobody_else(
    soak: Path, tmp_path: Path
) -> None:
    rows = records_of(soak / "evidence")
    answered_ = [r["request"] for r in rows if r["event"] == "read_ended"]
    own, bundle = answered_[len(answered_) // 2], tmp_path / "bundle.json"
    status, _ = commanded("explain", own, soak, "--bundle", bundle)
    assert status == 0
    status, told = commanded("explain", "--verify", bundle)
    assert (status, told["key_was_named"]) == (3, False)
    (attempt,) = told["bundle"]["attempts"]
    assert (attempt["verdict"], attempt["rederived"]) == ("excluded", True)
    tenant = attempt["tenant"]
    others = {r[n] for r in rows for n in ("request", "tenant") if r.get(n)} - {own, tenant}
    assert not [name for name in others if name in bundle.read_text()]


def test_of_a_guarded_soak_everybody_is_excluded(
    engine: BaseBackend, soak: Path, tmp_path: Path
) -> None:
    report = audited(engine, tmp_path, soak / "evidence")
    assert report.counts() == {Class.AFFECTED: 0, Class.INSUFFICIENT: 0, Class.EXCLUDED: 40}
    assert report.coverage.spans == ()
    assert report.coverage.missing == ()


def test_of_a_guarded_soak_whose_decode_lost_its_tail_some_are_insufficient(
    engine: BaseBackend, soak: Path, tmp_path: Path
) -> None:
    cut = opened_again(soak / "evidence", tmp_path / "cut", "decode-0", 0.5)
    report = audited(engine, tmp_path, cut)
    counts = report.counts()
    assert counts[Class.AFFECTED] == 0
    assert counts[Class.INSUFFICIENT] > 0
    assert "close_missing" in report.by_reason()


def told(rows: Iterable[Row]) -> dict[str, list[tuple[str, tuple[str, ...]]]]:
    """What each role tells of one request: events in order, with the names of their fields."""
    parts: dict[str, list[tuple[str, tuple[str, ...]]]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: (row["role"], row["sequence"])):
        parts[row["role"]].append((row["event"], tuple(sorted(row))))
    return dict(parts)


def test_the_generator_tells_an_answered_request_as_a_real_stack_does(soak: Path) -> None:
    stack = Stack()
    stack.start()
    stack.play([answered(Conversation(stack))])
    made = told(row for row in stack.rows() if "request" in row)
    real: dict[str, list[Row]] = defaultdict(list)
    for row in records_of(soak / "evidence"):
        if "request" in row:
            real[row["request"]].append(row)
    assert made in [told(rows) for rows in real.values()]
