"""The evidence of a running stack, followed as it grows.

`Records` reads all files anew at each question. A drill of many parts on one stack asks too often
for that: it follows the files instead, and keeps what was recorded since its present part began.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from kvairlock.drills.records import Entry
from kvairlock.drills.stack import wait_for


class Journal:
    """What the processes of one stack have recorded since the last mark.

    Args:
        folder: Where they write it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read_bytes: Counter[Path] = Counter()
        self._entries: list[Entry] = []

    def mark(self) -> None:
        """Begin afresh: forget what was recorded so far."""
        self._follow()
        self._entries.clear()

    def all(self, event: str, **wanted: str) -> list[Entry]:
        """Return the records of one kind whose fields have the wanted values, oldest first."""
        self._follow()
        found = [e for e in self._entries if e["event"] == event and wanted.items() <= e.items()]
        return sorted(found, key=lambda entry: entry["at_boot_ns"])

    def last(self, event: str, **wanted: str) -> Entry:
        """Wait for a record of one kind, and return the newest.

        Raises:
            DrillFailed: None appears.
        """
        said = " ".join([event, *(f"{name}={value}" for name, value in wanted.items())])
        return wait_for(f"evidence of {said}", lambda: self.all(event, **wanted) or None)[-1]

    def _follow(self) -> None:
        for path in self._folder.glob("*.jsonl"):
            with path.open("rb") as file:
                file.seek(self._read_bytes[path])
                whole, end, _ = file.read().rpartition(b"\n")
            self._read_bytes[path] += len(whole) + len(end)
            self._entries += [json.loads(line) for line in whole.splitlines()]
