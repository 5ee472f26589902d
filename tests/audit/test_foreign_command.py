"""`kvairlock audit foreign` as a script uses it: exit status, one document, no ids."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvairlock.cli import main

BUILT = Path(__file__).parent / "foreign"
QUIET = "[2026-11-30 10:00:00 TP0] Prefill batch, #new-seq: 1\n"


def run(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(["audit", "foreign", *map(str, arguments)])
    out, err = capsys.readouterr()
    return int(ended.value.code or 0), out, err


def test_candidates_are_exit_status_1_and_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, *sorted(BUILT.glob("*.log")), "--json")
    said = json.loads(out)
    assert status == 1
    assert len(said["candidates"]) == 4
    assert "a1b2" not in out


def test_ids_are_printed_if_they_are_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, *sorted(BUILT.glob("sglang*")), "--show-ids")
    assert "a1b2" in out
    assert "secret" not in out


def test_a_log_without_candidates_is_exit_status_0_and_excludes_nothing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "decode.log").write_text(QUIET)
    status, out, _ = run(capsys, tmp_path / "decode.log")
    assert status == 0
    assert "no candidate in what was understood" in out
    assert "Nothing is excluded" in out


def test_a_file_that_is_no_log_is_exit_status_3(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "notes.txt").write_text("milk\neggs\n")
    status, out, _ = run(capsys, tmp_path / "notes.txt")
    assert status == 3
    assert "no line was understood" in out


def test_a_file_that_is_not_there_is_exit_status_2(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    status, _, err = run(capsys, tmp_path / "none.log")
    assert status == 2
    assert "there is no such file" in err
