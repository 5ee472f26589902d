"""Evidence of stacks that really ran: the demo's incident, a guarded soak, and the generator."""

from __future__ import annotations

import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import pytest
from ibis.backends import BaseBackend

from kvairlock.audit.auditing import audit
from kvairlock.audit.report import Class, Report
from kvairlock.audit.stories import answered
from kvairlock.audit.synthetic import Conversation, Row, Stack
from kvairlock.audit.tables import open_evidence
from kvairlock.sink.jsonl import read

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


def records_of(folder: Path) -> list[Row]:
    return [record for path in sorted(folder.glob("*.jsonl")) for record in read(path)]


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
    evidence = demo / "stack-1" / "evidence"
    paths = [path for path in evidence.glob("*.jsonl") if not path.name.startswith(node)]
    report = audited(engine, tmp_path, *paths)
    assert not of_class(report, Class.EXCLUDED)
    assert node in {missing.node for missing in report.coverage.missing}


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
    cut = tmp_path / "cut"
    cut.mkdir()
    for path in (soak / "evidence").glob("*.jsonl"):
        lines = path.read_bytes().splitlines(keepends=True)
        kept = lines[: len(lines) // 2] if path.name.startswith("decode-0") else lines
        (cut / path.name).write_bytes(b"".join(kept))
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
