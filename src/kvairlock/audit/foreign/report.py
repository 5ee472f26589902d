"""What reading foreign evidence comes to: candidates and windows, and how much was understood."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kvairlock.audit.foreign.candidates import FOREIGN_RULES, GRADE, Candidate, candidates
from kvairlock.audit.foreign.counters import Growth, growths
from kvairlock.audit.foreign.joining import pseudonym
from kvairlock.audit.foreign.sightings import FileRead, read_file
from kvairlock.audit.foreign.signs import Engine

LIMITS = (
    "Nothing is excluded: of a request that is not listed, nothing is known.",
    "No line states what was read, so a candidate is no finding.",
    "Who can write into a log can make a candidate, or hide one.",
)
"""What holds for every report."""


@dataclass(frozen=True, slots=True)
class ForeignReport:
    """What the files say.

    Args:
        files: What was read, and how much of it was understood.
        candidates: Requests that could have met another's cache.
        windows: When counters grew that tell of such requests, without naming them.
    """

    files: tuple[FileRead, ...]
    candidates: tuple[Candidate, ...]
    windows: tuple[Growth, ...]

    @property
    def understood(self) -> bool:
        """Whether any line is of an engine that is known, or of one of its counters."""
        return any(file.engines for file in self.files)

    def signs(self) -> dict[str, int]:
        """How often each sign was seen."""
        return dict(Counter(str(one.sign) for file in self.files for one in file.sightings))

    def to_json(self, *, show_ids: bool) -> dict[str, Any]:
        """Return the report as plain values.

        Args:
            show_ids: Whether ids of requests stand in it as they were logged.
        """
        return {
            "grade": GRADE,
            "understood": self.understood,
            "limits": list(LIMITS),
            "candidates": [self._candidate(one, show_ids) for one in self.candidates],
            "windows": [_window(one) for one in self.windows],
            "signs": self.signs(),
            "files": [_file(file) for file in self.files],
            "rules": {
                rule.name: {"finds": rule.finds, "unproven": rule.unproven}
                for rule in FOREIGN_RULES
                if any(rule.name in one.rules for one in self.candidates)
            },
        }

    def _candidate(self, one: Candidate, show_ids: bool) -> dict[str, Any]:
        return {
            "request": one.request if show_ids else pseudonym(one.request),
            "grade": GRADE,
            "rules": list(one.rules),
            "engine": one.engine,
            "from": stated(one.from_s),
            "to": stated(one.to_s),
            "order": one.order,
            "lines": [
                {"file": self.files[file].name, "line": line, "sign": sign}
                for file, line, sign in one.sightings
            ],
        }


def read_foreign(paths: Sequence[Path], engines: Iterable[Engine] = tuple(Engine)) -> ForeignReport:
    """Read logs and metrics of engines.

    Args:
        paths: Files; a pair of prefill and decode is joined if both are there.
        engines: Whose lines are looked for.
    """
    wanted = frozenset(engines)
    files = tuple(read_file(path, number, wanted) for number, path in enumerate(paths))
    seen = (one for file in files for one in file.sightings)
    found = tuple(candidates(seen, [file.side for file in files]))
    windows = tuple(one for file in files for one in growths(file.name, file.readings))
    return ForeignReport(files, found, windows)


def stated(at_s: float | None) -> str | None:
    """Return a time as the writer's clock had it, without a zone, since none is stated."""
    if at_s is None:
        return None
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _window(one: Growth) -> dict[str, Any]:
    return {
        "counter": one.counter.name,
        "means": one.counter.means,
        "unproven": one.counter.unproven,
        "events": one.events,
        "file": one.file,
        "from": stated(one.from_s),
        "to": stated(one.to_s),
        "since_start": one.since_start,
        "grade": GRADE,
    }


def _file(file: FileRead) -> dict[str, Any]:
    return {
        "file": file.name,
        "side": file.side,
        "engines": sorted(file.engines),
        "lines": file.tally.lines,
        "recognised": file.recognised,
        "other_log_lines": max(0, file.headed - file.recognised),
        "not_understood": file.tally.lines - file.headed,
        "cut": file.tally.cut,
        "undecodable": file.tally.undecodable,
        "torn": file.tally.torn,
        "signs_not_looked_into": file.overflow,
        "from": stated(file.from_s),
        "to": stated(file.to_s),
    }
