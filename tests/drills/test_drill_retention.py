"""How long data of drills is kept, and that nothing else is ever deleted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvairlock.drills.runs.retention import NOTE, PLACE, Retention, RetentionWrong

NOW = 1_000_000.5
HOUR = 3600


@pytest.fixture
def retention(tmp_path: Path) -> Retention:
    return Retention(tmp_path / "state")


def kept(retention: Retention, folder: Path, hours: int = 24) -> Path:
    """Keep a folder with some data in it."""
    retention.keep(folder, hours, NOW)
    (folder / "stack-01").mkdir()
    (folder / "stack-01" / "evidence.jsonl").write_text("{}\n")
    return folder


def test_data_is_kept_as_long_as_was_agreed_on_and_then_deleted(
    retention: Retention, tmp_path: Path
) -> None:
    folder = kept(retention, tmp_path / "kept", hours=24)
    assert retention.prune(NOW + 24 * HOUR - 1) == ()
    assert folder.is_dir()
    (gone,) = retention.prune(NOW + 24 * HOUR)
    assert (gone.folder, gone.expires_unix_s) == (str(folder), int(NOW) + 24 * HOUR)
    assert not folder.exists()
    assert retention.kept() == ()
    assert list((tmp_path / "state" / PLACE).iterdir()) == []


def test_the_note_is_there_before_the_data_and_says_until_when(
    retention: Retention, tmp_path: Path
) -> None:
    note = retention.keep(tmp_path / "kept", 1, NOW)
    said = json.loads((tmp_path / "kept" / NOTE).read_text())
    assert said == {"id": note.id, "folder": str(tmp_path / "kept"), "expires_unix_s": 1_003_600}
    assert retention.kept() == (note,)
    assert (tmp_path / "kept").stat().st_mode & 0o777 == 0o700


def test_what_was_deleted_at_once_is_not_noted_any_more(
    retention: Retention, tmp_path: Path
) -> None:
    note = retention.keep(tmp_path / "kept", 1, NOW)
    retention.forget(note)
    assert retention.kept() == ()
    retention.forget(note)


def test_only_what_is_due_is_deleted(retention: Retention, tmp_path: Path) -> None:
    short, long = kept(retention, tmp_path / "short", 1), kept(retention, tmp_path / "long", 48)
    assert [note.folder for note in retention.kept()] == [str(short), str(long)]
    assert [note.folder for note in retention.prune(NOW + 2 * HOUR)] == [str(short)]
    assert not short.exists()
    assert long.is_dir()


def test_a_folder_with_something_in_it_is_not_taken(retention: Retention, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter").write_text("dear")
    with pytest.raises(RetentionWrong, match="is not an empty folder"):
        retention.keep(tmp_path / "mine", 1, NOW)
    with pytest.raises(RetentionWrong, match="is not an empty folder"):
        retention.keep(tmp_path / "mine" / "letter", 1, NOW)
    assert retention.kept() == ()


def test_what_was_put_in_its_place_stays(retention: Retention, tmp_path: Path) -> None:
    folder = kept(retention, tmp_path / "kept", 1)
    folder.rename(tmp_path / "moved")
    folder.mkdir()
    (folder / "letter").write_text("dear")
    retention.prune(NOW + HOUR)
    assert (folder / "letter").read_text() == "dear"
    assert (tmp_path / "moved").is_dir()


def test_no_link_is_followed(retention: Retention, tmp_path: Path) -> None:
    folder = kept(retention, tmp_path / "kept", 1)
    folder.rename(tmp_path / "moved")
    folder.symlink_to(tmp_path / "moved")
    retention.prune(NOW + HOUR)
    assert (tmp_path / "moved" / "stack-01").is_dir()


@pytest.mark.parametrize(
    "text", ["", "{}", '{"id": "x"}', '{"id": "x", "folder": "/", "expires_unix_s": 0, "more": 1}']
)
def test_a_note_that_is_not_understood_deletes_nothing(
    text: str, retention: Retention, tmp_path: Path
) -> None:
    folder = kept(retention, tmp_path / "kept", 1)
    (folder / NOTE).write_text(text)
    retention.prune(NOW + HOUR)
    assert (folder / "stack-01").is_dir()


def test_a_note_under_another_name_deletes_nothing(retention: Retention, tmp_path: Path) -> None:
    folder = kept(retention, tmp_path / "kept", 1)
    (note,) = (tmp_path / "state" / PLACE).iterdir()
    note.rename(note.with_name("other.json"))
    assert retention.prune(NOW + HOUR) == ()
    assert folder.is_dir()


def test_nothing_is_kept_where_there_was_no_run(retention: Retention) -> None:
    assert retention.kept() == ()
    assert retention.prune(NOW) == ()
