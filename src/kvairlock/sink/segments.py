"""The files of one life of a process: one open segment that takes lines, sealed ones behind it.

    begin    what earlier lives left open is sealed, what is over is deleted
    write    lines go to the open segment, at once
    turn     a segment that is full or old is sealed, and the next one takes the lines
    close    the last one is sealed, and the life has ended

All of it runs in the thread that writes evidence. What can't be sealed now, for want of room, stays
as it is, is tried again with the next segment, and by the next life. The lock of a segment is held
until it is sealed: that keeps other lives away from it, also if this process is stopped.
"""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import suppress
from pathlib import Path

import structlog

from kvairlock.core.terms import Peer
from kvairlock.runtime.evidence_settings import EvidenceSettings, Format
from kvairlock.runtime.secrets import keep_names_of
from kvairlock.sink.naming import Segment
from kvairlock.sink.recovery import recover
from kvairlock.sink.retention import MIB, NS_PER_DAY, expired, prune
from kvairlock.sink.seal_lines import Act, Content
from kvairlock.sink.sealing import seal
from kvairlock.sink.seals import Seals

PRUNE_S = 3600
"""How often a process looks for files that are over."""
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOFOLLOW

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
        self._full: dict[Path, int] = {}
        self._pruned_s = 0.0
        self._torn = self._begun = False
        self._open(1)
        if not self._begin_life():
            log.warning("no room for a seal: what this life leaves can't be sealed by a later one")

    @property
    def path(self) -> Path:
        """The newest file: the open segment, or what it became."""
        return self._path

    def begin(self) -> None:
        """Put away what earlier lives left."""
        try:
            recover(self._seals, self._settings.format, self._peer.incarnation)
            if doubted := self._seals.doubted():
                log.warning("nothing is done by seals that can't be believed", seals=doubted)
        except Exception as error:
            log.warning("evidence of an earlier life stays open", reason=type(error).__name__)
        self._prune()

    def write(self, lines: bytes) -> int:
        """Write whole lines, in their order; after a tear the next ones begin on a new line.

        Returns:
            How many of them, the last ones, the device did not take.
        """
        head = b"\n" if self._torn else b""
        data = head + lines
        taken = self._put(data)
        self._bytes += taken
        if taken:
            self._torn = not data[:taken].endswith(b"\n")
        # A line that lacks its end only is whole: the next write gives it one.
        return lines.count(b"\n") - lines.count(b"\n", 0, max(taken + 1 - len(head), 0))

    def _put(self, data: bytes) -> int:
        """Return how many bytes the device took."""
        taken = 0
        with suppress(OSError):
            while taken < len(data):
                taken += os.write(self._file, memoryview(data)[taken:])
        return taken

    def turn(self) -> None:
        """Go on in a new segment if this one is full or old; delete what is over, hourly."""
        is_full = self._bytes >= self._settings.segment_mib * MIB
        is_old = time.monotonic() - self._since_s >= self._settings.segment_s
        if self._bytes and (is_full or is_old):
            self._go_on()
            self._seal_full()
        self._begin_life()
        if time.monotonic() - self._pruned_s >= PRUNE_S:
            self._prune()

    def close(self) -> None:
        """Seal what is open; nothing can be written after it."""
        self._full[self._path] = self._file
        self._seal_full()
        if not self._full:
            self._say(Act.ENDED)
        for file in self._full.values():
            os.close(file)

    def _open(self, number: int) -> None:
        segment = Segment(self._peer.node, self._peer.incarnation, number)
        path = self._folder / segment.name(Format.JSONL)
        file = os.open(path, _NEW, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            keep_names_of(self._folder)
        except OSError:
            os.close(file)
            path.unlink()
            raise
        self._number, self._path, self._file = number, path, file
        self._bytes, self._since_s = 0, time.monotonic()

    def _begin_life(self) -> bool:
        """Entitle later lives to seal what this one leaves; tried again where there is no room."""
        self._begun = self._begun or self._say(Act.BEGUN)
        return self._begun

    def _say(self, act: Act) -> bool:
        """Write down what becomes of this life; a later one says for it that it has ended."""
        try:
            self._seals.add(act, Content(incarnation=self._peer.incarnation))
        except OSError:
            return False
        return True

    def _go_on(self) -> None:
        path, file = self._path, self._file
        try:
            self._open(self._number + 1)
        except OSError as error:
            log.warning("no new evidence file; the old one grows", reason=type(error).__name__)
            return
        self._torn = False
        self._full[path] = file

    def _seal_full(self) -> None:
        for path in tuple(self._full):
            try:
                made = seal(path, self._seals, self._settings.format)
            except Exception as error:
                log.warning("an evidence file stays open", reason=type(error).__name__)
                continue
            os.close(self._full.pop(path))
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
