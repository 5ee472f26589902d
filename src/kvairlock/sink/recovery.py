"""Puts away what earlier lives of a node left open: their segments are sealed, their lives ended.

A life's first line in the seals, written with the cluster's key, is what entitles its segments to
that. Segments of a life that never began, or that has ended, were put there by somebody else, and
stay what they are: sealed by nobody. A live process, also one that is stopped, holds the lock of
each segment that it has not sealed; these, and that life, are left alone.
"""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import structlog

from kvairlock.runtime.evidence_settings import Format
from kvairlock.sink.naming import Segment, by_segment
from kvairlock.sink.seal_lines import Act, Content
from kvairlock.sink.sealing import seal
from kvairlock.sink.seals import Seals

log = structlog.get_logger()


def recover(seals: Seals, form: Format, own: str) -> None:
    """Seal what earlier lives of a node left open, and finish what they began.

    What can't be sealed now is tried again by the next life.

    Args:
        seals: Those of the node.
        form: What open segments become.
        own: The life that does so; its own segments are left alone.

    Raises:
        OSError: That a life has ended can't be written down.
    """
    lives = seals.alive() - {own}
    left = {
        segment.incarnation
        for segment, lines in _open_lines(seals, lives)
        if not _put_away(segment, lines, seals, form)
    }
    for life in sorted(lives - left):
        seals.add(Act.ENDED, Content(incarnation=life))


def _open_lines(seals: Seals, lives: frozenset[str]) -> Iterator[tuple[Segment, Path]]:
    """Yield what is there as lines, and was not sealed as lines."""
    sealed = _sealed(seals)
    for segment, paths in by_segment(seals.folder.glob(f"{seals.node}-*.jsonl")).items():
        is_ours = segment.node == seals.node and segment.incarnation in lives
        is_open = segment.number > 0 and sealed.get(segment) != paths[0].name
        if is_ours and is_open and stat.S_ISREG(paths[0].lstat().st_mode):
            yield segment, paths[0]


def _sealed(seals: Seals) -> dict[Segment, str]:
    """Return the file that each sealed segment has become."""
    contents = [line.content for line in seals.entries() if line.content.file]
    return {Segment(seals.node, c.incarnation, c.segment): c.file for c in contents}


def _put_away(segment: Segment, lines: Path, seals: Seals, form: Format) -> bool:
    """Seal a segment, or finish that; whether nothing of it is open any more."""
    try:
        with _locked(lines) as locked:
            if locked and segment not in _sealed(seals):
                seal(lines, seals, form, Act.RECOVERED)
            elif locked and _sealed(seals)[segment] != lines.name:
                lines.unlink()
            return locked
    except Exception as error:
        log.warning("evidence of an earlier life stays open", reason=type(error).__name__)
        return False


@contextmanager
def _locked(lines: Path) -> Iterator[bool]:
    """Hold the lock of a segment; False if a live process has it, or has just put it away."""
    file = os.open(lines, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    try:
        yield _lock(file) and os.fstat(file).st_nlink > 0
    finally:
        os.close(file)


def _lock(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
