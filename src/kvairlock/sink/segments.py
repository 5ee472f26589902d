"""The files of one life of a process: one open segment that takes lines, sealed ones behind it.

    begin    what earlier lives left open is sealed, what is over is deleted
    write    lines go to the open segment, at once
    turn     a segment that is full or old is sealed, and the next one takes the lines
    close    the last one is sealed

All of it runs in the thread that writes evidence. What can't be sealed now, for want of room, stays
as it is, is tried again with the next segment, and by the next life.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

import structlog

from kvairlock.core.terms import Peer
from kvairlock.runtime.evidence_settings import EvidenceSettings, Format
from kvairlock.runtime.secrets import keep_names_of
from kvairlock.sink.naming import Segment
from kvairlock.sink.retention import MIB, NS_PER_DAY, expired, prune
from kvairlock.sink.sealing import recover, seal
from kvairlock.sink.seals import Seals

PRUNE_S = 3600
"""How often a process looks for files that are over."""

log = structlog.get_logger()


class Segments:
    """What one process has written in this life.

    Args:
        folder: Where the files go; made if absent, for its owner only.
        peer: Who records, in which life.
        seals: Those of the node.
        settings: How evidence is kept.

    Raises:
        OSError: The folder or the first segment can't be made.
    """

    def __init__(self, folder: Path, peer: Peer, seals: Seals, settings: EvidenceSettings) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._folder, self._peer = folder, peer
        self._seals, self._settings = seals, settings
        self._full: list[Path] = []
        self._pruned_s = 0.0
        self._torn = False
        self._open(1)

    @property
    def path(self) -> Path:
        """The newest file: the open segment, or what it became."""
        return self._path

    def begin(self) -> None:
        """Put away what earlier lives left."""
        try:
            recover(self._seals, self._settings.format, self._peer.incarnation)
        except Exception as error:
            log.warning("evidence of an earlier life stays open", reason=type(error).__name__)
        self._prune()

    def write(self, lines: bytes) -> None:
        """Write whole lines; after a failure the next ones begin on a line of their own.

        Raises:
            OSError: They could not be written, or not all of them.
        """
        rest = memoryview((b"\n" if self._torn else b"") + lines)
        self._bytes += len(rest)
        self._torn = True
        while rest:
            rest = rest[os.write(self._file, rest) :]
        self._torn = False

    def turn(self) -> None:
        """Go on in a new segment if this one is full or old; delete what is over, hourly."""
        is_old = time.monotonic() - self._since_s >= self._settings.segment_s
        if self._bytes >= self._settings.segment_mib * MIB or (is_old and self._bytes):
            self._go_on()
            self._seal_full()
        if time.monotonic() - self._pruned_s >= PRUNE_S:
            self._prune()

    def close(self) -> None:
        """Seal what is open; nothing can be written after it."""
        self._full.append(self._path)
        self._seal_full()
        os.close(self._file)

    def _open(self, number: int) -> None:
        segment = Segment(self._peer.node, self._peer.incarnation, number)
        path = self._folder / segment.name(Format.JSONL)
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        # As long as it is held, a later life leaves it alone, also if this process is stopped.
        fcntl.flock(file, fcntl.LOCK_EX)
        keep_names_of(self._folder)
        self._number, self._path, self._file = number, path, file
        self._bytes, self._since_s = 0, time.monotonic()

    def _go_on(self) -> None:
        path, file = self._path, self._file
        try:
            self._open(self._number + 1)
        except OSError as error:
            log.warning("no new evidence file; the old one grows", reason=type(error).__name__)
            return
        os.close(file)
        self._torn = False
        self._full.append(path)

    def _seal_full(self) -> None:
        for path in tuple(self._full):
            try:
                made = seal(path, self._seals, self._settings.format)
            except Exception as error:
                log.warning("an evidence file stays open", reason=type(error).__name__)
                continue
            self._full.remove(path)
            if path == self._path and made is not None:
                self._path = made

    def _prune(self) -> None:
        self._pruned_s = time.monotonic()
        kept_ns = self._settings.retention_days * NS_PER_DAY
        try:
            over = expired(self._seals, time.time_ns() - kept_ns, self._settings.mib_max * MIB)
            prune(self._seals, over)
        except OSError as error:
            log.warning("old evidence stays", reason=type(error).__name__)
