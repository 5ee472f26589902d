"""A case goes on while its evidence grows and is sealed, and expires when it becomes another."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor, wait
from io import BytesIO
from pathlib import Path

import pytest
from ibis.backends import BaseBackend

from kvairlock.audit import lines, tables
from kvairlock.audit.case_log import Act, CaseLog, open_log
from kvairlock.audit.cases import FORMAT, Case, CaseExpired
from kvairlock.audit.held_still import held, unchanged
from kvairlock.audit.histories import history
from kvairlock.audit.lines import records_of
from kvairlock.audit.tables import open_evidence
from kvairlock.core.evidence import ENVELOPE
from kvairlock.runtime.evidence_settings import Format
from kvairlock.sink.sealing import seal
from kvairlock.sink.seals import Seals
from tests.audit.sealed_made import RING, as_lines

CASE_SHA256 = "0" * 64
ROWS = [row for row in history(3, quiet=2).rows if row["node"] == "decode-0"]
NAME = f"decode-0-{ROWS[0]['incarnation']}.000001.jsonl"


def written(folder: Path, count: int) -> Path:
    """Write the first records of a life as the open segment that its process writes."""
    return as_lines(ROWS[:count], folder / NAME)


def case_of(path: Path) -> Case:
    return Case(FORMAT, 1, "", (held(path),), 0, (), ())


def sealed(path: Path) -> Path:
    made = seal(path, Seals(path.parent, "decode-0", RING), Format.PARQUET)
    assert made is not None
    assert made.suffix == ".parquet"
    assert not path.exists()
    return made


@pytest.mark.parametrize("torn", [b"", b'{"schema": 2, "eve'])
def test_a_case_outlives_that_its_evidence_grows_and_is_sealed(tmp_path: Path, torn: bytes) -> None:
    path = written(tmp_path, 10)
    with path.open("ab") as file:
        file.write(torn)
    case = case_of(path)
    unchanged(case)
    written(tmp_path, len(ROWS))
    if not torn:
        unchanged(case)
    sealed(path)
    unchanged(case)


def test_what_was_sealed_is_what_was_there_or_the_case_has_expired(tmp_path: Path) -> None:
    path = written(tmp_path, 10)
    case = case_of(path)
    path.write_text(path.read_text().replace(str(ROWS[4]["at_unix_ns"]), "1"))
    made = sealed(path)
    with pytest.raises(CaseExpired, match="is not what it was"):
        unchanged(case)
    made.write_bytes(b"PAR1")
    with pytest.raises(CaseExpired, match="is not what it was"):
        unchanged(case)
    made.unlink()
    with pytest.raises(CaseExpired, match="is not there any more"):
        unchanged(case)


def test_fewer_records_than_there_were_are_not_the_same(tmp_path: Path) -> None:
    path = written(tmp_path, 10)
    case = case_of(path)
    sealed(written(tmp_path, 9))
    with pytest.raises(CaseExpired):
        unchanged(case)


def next_result(folder: Path) -> str:
    with CaseLog(folder, CASE_SHA256, RING) as log:
        return log.next_result


def test_who_has_the_log_of_a_case_has_it_alone(tmp_path: Path) -> None:
    open_log(tmp_path, CASE_SHA256, RING)
    with ThreadPoolExecutor(1) as pool:
        with CaseLog(tmp_path, CASE_SHA256, RING) as log:
            other = pool.submit(next_result, tmp_path)
            assert not wait([other], timeout=0.3).done
            log.add(Act.AUTHORISED, "on call", "incident 12", ("affected",), log.next_result)
        assert other.result() == "result-2.json"


def test_a_segment_that_is_sealed_while_it_is_looked_at_is_read_where_it_is_now(
    tmp_path: Path, engine: BaseBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, working = written(tmp_path, 10), tmp_path / "working"
    working.mkdir()
    listed = tables.files_of([tmp_path])
    sealed(path)
    monkeypatch.setattr(tables, "files_of", lambda _: listed)
    evidence = open_evidence([tmp_path], working, engine)
    assert evidence.records.count().to_pyarrow().as_py() == 10
    assert held(path).path.endswith(".parquet")


def test_a_line_that_is_longer_than_any_record_is_one_that_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lines, "LINE_BYTES_MAX", 1000)
    good = json.dumps({name: ROWS[0][name] for name in ENVELOPE}).encode() + b"\n"
    for data in (good + b"x" * 2500 + b"\n" + good, good + b"[" * 1000 + b"\n" + good):
        found = list(records_of(BytesIO(data)))
        assert [record is None for record in found] == [False, True, False]
