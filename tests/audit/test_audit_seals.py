"""Files that are not as they were sealed: whoever was on that life is not excluded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from ibis.backends import BaseBackend

from kvairlock.audit import broken
from kvairlock.audit.auditing import audit
from kvairlock.audit.broken import Broken, Seals, seals_of
from kvairlock.audit.histories import history
from kvairlock.audit.report import Class, Report
from kvairlock.audit.spans import Gap
from kvairlock.audit.tables import EvidenceUnusable, evidence_of, files_of
from kvairlock.sink.chain import Chain, FileState, Sealing
from kvairlock.sink.columns import WIDE

MADE = history(11)
FILE = "decode-0-0123456789abcdef.000001.parquet"
OF_FILES = (Gap.FILE_ALTERED, Gap.SEAL_FORGED, Gap.FILE_REMOVED, Gap.FILE_UNSEALED)


def life_of(node: str) -> str:
    return next(str(row["incarnation"]) for row in MADE.rows if row["node"] == node)


def audited(engine: BaseBackend, *files: Broken) -> Report:
    table = pa.Table.from_pylist(list(MADE.rows), schema=WIDE)
    evidence = evidence_of(engine.create_table("sealed", table, overwrite=True))
    return audit(replace(evidence, seals=Seals(keyed=True, states=(), broken=files)))


def on(node: str) -> set[str]:
    return {row["request"] for row in MADE.rows if row["node"] == node and row.get("request")}


def excluded(report: Report) -> set[str]:
    return {verdict.request for verdict in report.verdicts(Class.EXCLUDED)}


def test_without_broken_files_everybody_is_excluded(engine: BaseBackend) -> None:
    assert excluded(audited(engine)) == MADE.requests


@pytest.mark.parametrize("gap", OF_FILES)
def test_nobody_who_was_on_the_life_of_a_broken_file_is_excluded(
    engine: BaseBackend, gap: Gap
) -> None:
    report = audited(engine, Broken("decode-0", life_of("decode-0"), gap, FILE))
    assert excluded(report) == MADE.requests - on("decode-0")
    reasons = {name for v in report.verdicts(Class.INSUFFICIENT) for name in v.reasons}
    assert reasons == {str(gap)}


def test_a_file_of_another_life_concerns_nobody_here(engine: BaseBackend) -> None:
    report = audited(engine, Broken("decode-0", "f" * 16, Gap.FILE_ALTERED, FILE))
    assert excluded(report) == MADE.requests


def test_a_life_of_which_only_the_seal_is_left_is_missing(engine: BaseBackend) -> None:
    report = audited(engine, Broken("decode-7", "f" * 16, Gap.FILE_REMOVED, FILE))
    (gone,) = report.coverage.missing
    assert (gone.node, gone.incarnation) == ("decode-7", "f" * 16)


@pytest.mark.parametrize(
    ("state", "segment", "gaps"),
    [
        (FileState.SEALED, 1, []),
        (FileState.OPEN, 1, []),
        (FileState.PRUNED, 1, []),
        (FileState.ALTERED, 1, [Gap.FILE_ALTERED]),
        (FileState.FORGED, 1, [Gap.SEAL_FORGED]),
        (FileState.MISSING, 1, [Gap.FILE_REMOVED]),
        (FileState.UNSEALED, 1, [Gap.FILE_UNSEALED]),
        (FileState.UNSEALED, 0, []),  # of 0.1.0, which sealed nothing
    ],
)
def test_each_state_of_a_file_is_a_gap_or_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: FileState, segment: int, gaps: list[Gap]
) -> None:
    row = Sealing(FILE, "decode-0", "0123456789abcdef", segment, state)
    monkeypatch.setattr(broken, "verify", lambda *_: Chain((row,), (), proven=False))
    (tmp_path / FILE).touch()
    seals = seals_of([tmp_path], None)
    assert [file.gap for file in seals.broken] == gaps
    assert seals.states == ((str(state), 1),)
    assert not seals.keyed


def test_what_does_not_exist_is_no_evidence(tmp_path: Path) -> None:
    with pytest.raises(EvidenceUnusable, match="does not exist"):
        list(files_of([tmp_path / "nowhere"]))
