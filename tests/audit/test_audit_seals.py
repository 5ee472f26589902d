"""Files that are not as they were sealed: whoever was on that life is not excluded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from ibis.backends import BaseBackend

from kvairlock.audit.auditing import audit
from kvairlock.audit.broken import Broken, Seals, seals_of
from kvairlock.audit.histories import history
from kvairlock.audit.inside import Inside
from kvairlock.audit.report import Class, Report
from kvairlock.audit.spans import Gap
from kvairlock.audit.synthetic import Row
from kvairlock.audit.tables import EvidenceUnusable, evidence_of, files_of, open_evidence
from kvairlock.sink.chain import FileState, Sealing
from kvairlock.sink.columns import WIDE
from kvairlock.wire.keys import KEY_BYTES, Keyring
from tests.audit.sealed_made import RING, as_lines, sealed

MADE = history(11)
LIFE = ("decode-0", "0123456789abcdef")
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
        (FileState.UNSEALED, 0, []),
    ],
)
def test_each_state_of_a_file_is_a_gap_or_none(
    state: FileState, segment: int, gaps: list[Gap]
) -> None:
    row = Sealing(FILE, *LIFE, segment, state, reason="seen")
    seals = seals_of([row], {}, keyed=False)
    assert [(file.gap, file.reason) for file in seals.broken] == [(gap, "seen") for gap in gaps]
    assert seals.states == ((str(state), 1),)
    assert not seals.keyed


def test_an_open_file_with_a_close_marker_in_it_was_to_be_sealed() -> None:
    row = Sealing(FILE, *LIFE, 1, FileState.OPEN)
    for closes, gaps in ((False, []), (True, [Gap.FILE_UNSEALED])):
        inside = {FILE: {LIFE: Inside(records=9, schema=2, closes=closes)}}
        assert [file.gap for file in seals_of([row], inside, keyed=True).broken] == gaps


OTHER = ("decode-9", "f" * 16)


@pytest.mark.parametrize(
    ("inside", "lives"),
    [
        ({OTHER: Inside(9, 1, closes=False)}, []),
        ({OTHER: Inside(9, 2, closes=False)}, [OTHER]),
        ({LIFE: Inside(9, 1, closes=False)}, [LIFE]),
        ({LIFE: Inside(9, 2, closes=False), OTHER: Inside(9, 2, closes=True)}, [LIFE, OTHER]),
    ],
    ids=["of 0.1.0", "of a life that seals", "0.1.0's of a life with seals", "of two lives"],
)
def test_a_file_without_a_segment_is_a_gap_of_each_life_in_it_that_seals(
    inside: dict[tuple[str, str], Inside], lives: list[tuple[str, str]]
) -> None:
    rows = [
        Sealing(FILE, *LIFE, 1, FileState.SEALED, records=9, first=1, last=9),
        Sealing("notes.jsonl", "", "", 0, FileState.UNSEALED),
    ]
    broken = seals_of(rows, {"notes.jsonl": inside}, keyed=True).broken
    assert [(file.node, file.incarnation) for file in broken] == lives
    assert {file.gap for file in broken} <= {Gap.FILE_UNSEALED}


def opened(engine: BaseBackend, tmp_path: Path, folder: Path) -> Report:
    working = tmp_path / "working"
    working.mkdir()
    return audit(open_evidence([folder], working, engine, RING))


def told_of(node: str) -> list[Row]:
    return [row for row in MADE.rows if row["node"] == node]


PLANTS = {
    "without a segment": f"decode-0-{life_of('decode-0')}.jsonl",
    "without a node": "notes.jsonl",
    "as an open segment of its own life": f"decode-0-{life_of('decode-0')}.000001.jsonl",
}


@pytest.mark.parametrize("name", PLANTS.values(), ids=PLANTS)
def test_nobody_is_excluded_by_a_file_that_was_put_in_place_of_sealed_ones(
    engine: BaseBackend, tmp_path: Path, name: str
) -> None:
    folder = sealed(MADE.rows, tmp_path / "evidence")
    for path in folder.glob("decode-0*"):
        path.unlink()
    as_lines(told_of("decode-0"), folder / name)
    report = opened(engine, tmp_path, folder)
    assert report.coverage.records == len(MADE.rows)
    assert excluded(report) == MADE.requests - on("decode-0")
    assert set(report.by_reason()) == {"file_unsealed"}


def test_records_in_a_file_of_another_life_are_left_out(
    engine: BaseBackend, tmp_path: Path
) -> None:
    folder = sealed(MADE.rows, tmp_path / "evidence")
    for path in folder.glob("decode-0*"):
        path.unlink()
    own = [row | {"node": "x", "incarnation": "0" * 16} for row in told_of("gateway")]
    as_lines([*own, *told_of("decode-0")], folder / f"x-{'0' * 16}.000001.jsonl")
    report = opened(engine, tmp_path, folder)
    (left_out,) = report.coverage.unreadable
    assert left_out.records == len(told_of("decode-0"))
    assert "another life" in left_out.reason
    assert "decode-0" in {missing.node for missing in report.coverage.missing}
    assert not excluded(report) & on("decode-0")


def test_a_whole_stack_without_seals_excludes_nobody(engine: BaseBackend, tmp_path: Path) -> None:
    folder = tmp_path / "evidence"
    folder.mkdir()
    for node, incarnation in {(row["node"], row["incarnation"]) for row in MADE.rows}:
        as_lines(told_of(node), folder / f"{node}-{incarnation}.jsonl")
    report = opened(engine, tmp_path, folder)
    assert report.coverage.records == len(MADE.rows)
    assert excluded(report) == set()


def test_what_the_chain_says_of_a_seal_is_said_of_its_life(
    engine: BaseBackend, tmp_path: Path
) -> None:
    folder = sealed(MADE.rows, tmp_path / "evidence", Keyring({"old": b"o" * KEY_BYTES}))
    report = opened(engine, tmp_path, folder)
    assert excluded(report) == set()
    details = {span.detail for span in report.coverage.spans}
    assert len(details) == 4
    assert all("its seal is of the key old" in detail for detail in details)


def test_what_does_not_exist_is_no_evidence(tmp_path: Path) -> None:
    with pytest.raises(EvidenceUnusable, match="does not exist"):
        list(files_of([tmp_path / "nowhere"]))
