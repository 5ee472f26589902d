"""How long the data of drills is kept: as long as was agreed on, then it is deleted.

    FOLDER/retention.json       beside settings, logs, evidence and report: until when they are kept
    STATE/drills/ID.json        the same, so that later runs find what is due, wherever it lies

Each run deletes what is due before it begins. Only a folder that still holds the very note that was
written for it is deleted, so one that was put in its place meanwhile stays.
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec

from kvairlock.core.errors import KvairlockError
from kvairlock.runtime.secrets import write_private

NOTE = "retention.json"
PLACE = "drills"
SECONDS_PER_H = 3600


class RetentionWrong(KvairlockError):
    """A folder in which data of drills cannot be kept."""

    code = "retention_wrong"


class Note(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is kept, and until when.

    Args:
        id: Different for each.
        folder: The absolute path of the data.
        expires_unix_s: When it is due.
    """

    id: str
    folder: str
    expires_unix_s: int


class Retention:
    """The data of drills that one user keeps.

    Args:
        state: The user's state directory.
    """

    def __init__(self, state: Path) -> None:
        self._place = state / PLACE

    def keep(self, folder: Path, hours: int, now_unix_s: float) -> Note:
        """Note that a folder's data is kept; done before there is any, so that none is forgotten.

        Args:
            folder: An empty folder, or one that is not there yet.
            hours: For how long.
            now_unix_s: The wall clock.

        Raises:
            RetentionWrong: There is something in it already.
        """
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise RetentionWrong(f"{folder}: is not an empty folder")
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)
        due = int(now_unix_s) + hours * SECONDS_PER_H
        note = Note(secrets.token_hex(8), str(folder.resolve()), due)
        text = msgspec.json.encode(note).decode() + "\n"
        write_private(self._place / f"{note.id}.json", text)
        write_private(folder / NOTE, text)
        return note

    def forget(self, note: Note) -> None:
        """Take note that the data was deleted."""
        (self._place / f"{note.id}.json").unlink(missing_ok=True)

    def kept(self) -> tuple[Note, ...]:
        """Return what is noted, by when it is due."""
        return tuple(sorted(self._notes(), key=lambda note: note.expires_unix_s))

    def prune(self, now_unix_s: float) -> tuple[Note, ...]:
        """Delete what is due, and return what was.

        Args:
            now_unix_s: The wall clock.
        """
        due = [note for note in self.kept() if note.expires_unix_s <= now_unix_s]
        for note in due:
            folder = Path(note.folder)
            if not folder.is_symlink() and _read(folder / NOTE) == note:
                shutil.rmtree(folder)
            self.forget(note)
        return tuple(due)

    def _notes(self) -> Iterator[Note]:
        if self._place.is_dir():
            for path in self._place.glob("*.json"):
                note = _read(path)
                # A note under another's name could have something else deleted in its place.
                if note is not None and path.stem == note.id:
                    yield note


def _read(path: Path) -> Note | None:
    """Return a note, or None if there is none that can be understood: then nothing is deleted."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Note)
    except (OSError, msgspec.MsgspecError):
        return None
