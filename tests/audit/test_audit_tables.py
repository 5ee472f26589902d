"""Evidence is opened whatever its files are, and what can't be judged is counted and shows."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from ibis.backends import BaseBackend

from kvairlock.audit.auditing import audit
from kvairlock.audit.histories import history
from kvairlock.audit.numbering import detail_of, is_plain, runs_of
from kvairlock.audit.report import Class, Report
from kvairlock.audit.synthetic import Row
from kvairlock.audit.tables import EvidenceUnusable, open_evidence
from kvairlock.audit.tiling import write_history
from kvairlock.core.evidence import ENVELOPE, EVENTS
from kvairlock.sink.columns import WIDE
from tests.audit.sealed_made import as_lines, sealed

MADE = history(7)


def as_parquet(rows: list[Row], path: Path) -> Path:
    pq.write_table(pa.Table.from_pylist(rows, schema=WIDE), path)
    return path


def by_node(node: str) -> list[Row]:
    return [row for row in MADE.rows if row["node"] == node]


def opened(engine: BaseBackend, tmp_path: Path, *paths: Path) -> Report:
    working = tmp_path / "working"
    working.mkdir(exist_ok=True)
    return audit(open_evidence(paths, working, engine))


def test_the_wide_table_has_every_field_of_the_schema_once() -> None:
    fields = [*ENVELOPE, *(name for row in EVENTS.values() for name in row)]
    assert WIDE.names == list(dict.fromkeys(fields))


def test_files_of_both_kinds_are_one_table(engine: BaseBackend, tmp_path: Path) -> None:
    folder = sealed(MADE.rows, tmp_path / "evidence")
    of_gateway = next(folder.glob("gateway-*.parquet"))
    of_gateway.rename(tmp_path / "gateway.parquet")
    as_lines(by_node("gateway"), of_gateway.with_suffix(".jsonl"))
    report = opened(engine, tmp_path, folder)
    assert report.coverage.records == len(MADE.rows)
    assert report.coverage.files == 4
    assert report.counts()[Class.AFFECTED] == 0
    whole = opened(engine, tmp_path, sealed(MADE.rows, tmp_path / "whole"))
    assert whole.counts()[Class.EXCLUDED] == len(MADE.requests)


def test_what_is_named_twice_or_copied_is_read_once(engine: BaseBackend, tmp_path: Path) -> None:
    folder = sealed(MADE.rows, tmp_path / "evidence")
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    link = tmp_path / "link"
    link.symlink_to(folder)
    report = opened(engine, tmp_path, folder, folder / "..", link, copy, *folder.glob("*.parquet"))
    assert report.coverage.files == 4
    assert report.coverage.records == len(MADE.rows)
    assert report.counts()[Class.EXCLUDED] == len(MADE.requests)


def test_a_torn_line_is_counted_and_what_follows_is_not_covered(
    engine: BaseBackend, tmp_path: Path
) -> None:
    path = as_lines(list(MADE.rows), tmp_path / "all.jsonl")
    lines = path.read_text().splitlines(keepends=True)
    torn = next(i for i, line in enumerate(lines) if '"verdict"' in line)
    path.write_text("".join([*lines[:torn], lines[torn][:40] + "\n", *lines[torn + 1 :]]))
    report = opened(engine, tmp_path, path)
    assert [(u.file, u.records) for u in report.coverage.unreadable] == [("all.jsonl", 1)]
    assert "events_lost" in report.by_reason()
    assert report.counts()[Class.AFFECTED] == 0


@pytest.mark.parametrize(
    "change",
    [
        {"schema": 3},
        {"event": "verdict_of_tomorrow"},
        {"incarnation": None},
        {"request": None},
        {"pages": None},
    ],
)
def test_a_record_that_cannot_be_judged_is_counted_and_left_out(
    engine: BaseBackend, tmp_path: Path, change: Row
) -> None:
    rows = list(MADE.rows)
    at = next(i for i, row in enumerate(rows) if row["event"] == "read_started")
    rows[at] = rows[at] | change
    report = opened(engine, tmp_path, as_parquet(rows, tmp_path / "all.parquet"))
    assert sum(u.records for u in report.coverage.unreadable) == 1
    assert report.coverage.records == len(rows) - 1
    assert "events_lost" in report.by_reason()


def test_records_of_schema_1_are_read_and_what_they_lack_is_missing(
    engine: BaseBackend, tmp_path: Path
) -> None:
    lacking = {
        "node_started": ("relaxed", "pool_pages"),
        "verdict": ("observed", "policy", "verified"),
    }
    rows = [
        {name: value for name, value in row.items() if name not in lacking.get(row["event"], ())}
        | {"schema": 1}
        | ({"pages": row["pool_pages"]} if row["event"] == "node_started" else {})
        for row in MADE.rows
    ]
    report = opened(engine, tmp_path, as_lines(rows, tmp_path / "old.jsonl"))
    assert report.coverage.unreadable == ()
    assert {"start_unknown", "fields_missing"} <= set(report.by_reason())
    assert report.counts()[Class.EXCLUDED] == 0


def test_what_is_no_evidence_is_refused_with_its_name(engine: BaseBackend, tmp_path: Path) -> None:
    with pytest.raises(EvidenceUnusable, match="no evidence in what was named"):
        open_evidence([tmp_path], tmp_path, engine)
    with pytest.raises(EvidenceUnusable, match="absent does not exist"):
        open_evidence([tmp_path / "absent"], tmp_path, engine)
    other = tmp_path / "other.parquet"
    pq.write_table(pa.table({"a": [1]}), other)
    with pytest.raises(EvidenceUnusable, match=r"other\.parquet is no evidence"):
        open_evidence([other], tmp_path, engine)


def test_a_history_that_was_repeated_is_whole_and_excludes_everybody(
    engine: BaseBackend, tmp_path: Path
) -> None:
    folder = tmp_path / "long"
    records = write_history(folder, 50_000, seed=3)
    report = opened(engine, tmp_path, folder)
    assert records >= 50_000
    assert report.coverage.records == records
    assert report.coverage.spans == ()
    assert report.by_reason() == {}
    assert report.counts()[Class.EXCLUDED] > 2_000


def test_a_report_is_plain_values_and_names_what_was_not_seen(
    engine: BaseBackend, tmp_path: Path
) -> None:
    rows = [row for row in MADE.rows if row["node"] != "prefill-1"]
    report = opened(engine, tmp_path, as_parquet(rows, tmp_path / "all.parquet"))
    said = json.loads(json.dumps(report.to_json()))
    assert said["counts"] == {str(name): count for name, count in report.counts().items()}
    assert said["coverage"]["missing"][0]["node"] == "prefill-1"
    assert said["coverage"]["routes"] == ["prefill-0/decode-0"]
    assert {request["verdict"] for request in said["requests"]} == {"insufficient"}


def test_a_slow_life_is_looked_at_without_fetching_what_is_in_order(
    engine: BaseBackend, tmp_path: Path
) -> None:
    folder = tmp_path / "slow"
    write_history(folder, 20_000, seed=4, slower=200)
    records = engine.read_parquet(sorted(folder.glob("*.parquet")))
    runs = [run for of in runs_of(records).values() for run in of]
    assert not all(is_plain(run) for run in runs)
    assert detail_of(records, runs) == {}
    lossy = records.filter((records.node != "decode-0") | ~records.sequence.isin((500, 5000)))
    found = detail_of(lossy, runs)
    assert [(node, run) for node, _, run in found] == [("decode-0", 0), ("decode-0", 1)]
    assert [(d.before.tolist(), d.sequence.tolist()) for d in found.values()] == [
        ([499], [501]),
        ([4999], [5001]),
    ]
