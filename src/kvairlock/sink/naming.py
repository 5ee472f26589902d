"""How files of evidence are called, so that a name says whose it is and where it belongs.

    decode-0-9f31c2d4a5b60718.000002.jsonl      open: lines are added to it
    decode-0-9f31c2d4a5b60718.000001.parquet    sealed: it changes no more
    decode-0.seals                              what the node has sealed, in order
    decode-0-9f31c2d4a5b60718.jsonl             0.1.0: one file for a life, never sealed

A segment that was sealed as lines keeps its name; then only the node's seals say that it is sealed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from kvairlock.runtime.evidence_settings import Format

SEALS = ".seals"
_SEGMENT = re.compile(r"(?P<node>.+)-(?P<life>[^-.]+)(?:\.(?P<number>\d{6,9}))?\.(?:jsonl|parquet)")


@dataclass(frozen=True, slots=True, order=True)
class Segment:
    """A part of what one life of a node recorded.

    Args:
        node: Who recorded.
        incarnation: In which life.
        number: Which part of that life, from 1; 0 for a file of 0.1.0, which has no parts.
    """

    node: str
    incarnation: str
    number: int

    @classmethod
    def of(cls, file: str) -> Segment | None:
        """Return which segment a file name stands for, or None if it is no evidence."""
        found = _SEGMENT.fullmatch(file)
        if found is None:
            return None
        return cls(found["node"], found["life"], int(found["number"] or 0))

    def name(self, form: Format) -> str:
        """Return its file name."""
        part = f".{self.number:06}" if self.number else ""
        return f"{self.node}-{self.incarnation}{part}.{form}"


def by_segment(paths: Iterable[Path]) -> dict[Segment, list[Path]]:
    """Group files of evidence by segment, in order; other files are passed over."""
    found: dict[Segment, list[Path]] = {}
    for path in sorted(paths):
        if (segment := Segment.of(path.name)) is not None:
            found.setdefault(segment, []).append(path)
    return dict(sorted(found.items()))
