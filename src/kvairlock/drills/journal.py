"""The evidence of a running stack, followed as it grows.

`Records` reads all files anew at each question. A drill of many parts on one stack asks too often
for that: it follows the open segments instead, and keeps what was recorded since its present part
began. A segment that was sealed meanwhile is read once more, for what was added before it was.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from kvairlock.drills.records import Entry
from kvairlock.drills.stack import wait_for
from kvairlock.sink.reading import LINES, PARQUET, files, read


class Journal:
    """What the processes of one stack have recorded since the last mark.

    Args:
        folder: Where they write it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read_bytes: Counter[Path] = Counter()
        self._read_whole: set[Path] = set()
        self._heard: dict[tuple[str, str], int] = {}
        """The last number of each life that was read."""
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
        # In the order of their names: a life's segments in the order of its numbers.
        for path in files(self._folder):
            for entry in self._added(path):
                life = (entry["node"], entry["incarnation"])
                if entry["sequence"] > self._heard.get(life, 0):
                    self._heard[life] = entry["sequence"]
                    self._entries.append(entry)

    def _added(self, path: Path) -> list[Entry]:
        """Return what was not read of a file, and of a sealed one all that it holds, once."""
        if path.suffix == LINES:
            try:
                return self._lines(path)
            except FileNotFoundError:  # sealed since the folder was listed
                path = path.with_suffix(PARQUET)
        if path in self._read_whole:
            return []
        self._read_whole.add(path)
        return read(path)

    def _lines(self, path: Path) -> list[Entry]:
        with path.open("rb") as file:
            file.seek(self._read_bytes[path])
            whole, end, _ = file.read().rpartition(b"\n")
        self._read_bytes[path] += len(whole) + len(end)
        return [json.loads(line) for line in whole.splitlines()]
