"""The sending side over memory files: one thread, one write after the other, no cancel.

A write that was submitted runs to its own terminal status, as with every one-sided transport that
was measured. That status comes after the mapping is gone, so it is a fence (Fence.ACKNOWLEDGED)
unless a second copy of the write exists somewhere. Transports do retry; the failpoint
`write.repeat` makes such a copy on demand: it keeps a mapping of a finished write and stores again,
whatever the source pages hold by then, when a drill releases it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from queue import SimpleQueue

import numpy as np
from numpy.typing import NDArray

from kvairlock.core.terms import Pages
from kvairlock.runtime.failpoints import Failpoint, Failpoints, Passage
from kvairlock.runtime.ports import PagesInvalid, TransportMisuse, WriteEnd, WriteStatus
from kvairlock.transport import mapping
from kvairlock.transport.memfile import safe_size
from kvairlock.transport.memory import PoolMemory

Report = Callable[[WriteEnd], None]


@dataclass(frozen=True, slots=True)
class _Write:
    name: str
    pages: Pages
    fd: int
    offsets: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Mapped:
    """A window in this process; nobody but its holder unmaps it."""

    address: int
    nbytes: int

    def view(self) -> NDArray[np.uint8]:
        return mapping.view(self.address, self.nbytes)

    def unmap(self) -> None:
        mapping.unmap(self.address, self.nbytes)


class Writer:
    """Writes pages of `memory` into granted windows; see SendingSide.

    Args:
        memory: The pool to write from.
        done: Told about the end of each write, in the writer's thread; it must not block.
        points: Where drills hold a write before a piece (detail `NAME PIECE/PIECES`) or repeat it.
        repeated: Told about the end of each repeated write, in that write's own thread.
    """

    def __init__(
        self,
        memory: PoolMemory,
        done: Report,
        points: Failpoints,
        *,
        repeated: Report | None = None,
    ) -> None:
        self._memory = memory
        self._done = done
        self._points = points
        self._repeated = repeated
        self._queue: SimpleQueue[_Write | None] = SimpleQueue()
        self._accepting = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="kv-writer", daemon=True)
        self._thread.start()

    def submit(self, write: str, pages: Pages, fd: int, offsets: Sequence[int]) -> None:
        """Write `pages`, shape (n,), to `offsets` (bytes) of the window `fd`; see SendingSide."""
        with self._accepting:
            if not self._closed:
                self._queue.put(_Write(write, pages.copy(), fd, tuple(offsets)))
                return
        os.close(fd)
        raise TransportMisuse("this writer is closed")

    def close(self) -> None:
        """Take no more writes and wait until every submitted one has ended; idempotent.

        A write that a failpoint holds is waited for; a repeat that nobody released is not.
        """
        with self._accepting:
            if not self._closed:
                self._closed = True
                self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (write := self._queue.get()) is not None:
            _report(self._done, self._perform(write))

    def _perform(self, write: _Write) -> WriteEnd:
        """Map, copy, unmap, close; every way out of here is a terminal status."""
        try:
            nbytes = self._check(write)
            window = _Mapped(mapping.map_shared(write.fd, nbytes), nbytes)
        except Exception as error:  # whatever the grant was: the receiver needs a terminal status
            _close(write.fd)
            return WriteEnd(write.name, WriteStatus.FAILED, 0, str(error))
        end = self._copy(write, window)
        if end.status is WriteStatus.DONE and self._points.armed(Failpoint.WRITE_REPEAT):
            self._hand_on(write, window)
        else:
            window.unmap()
        _close(write.fd)
        return end

    def _check(self, write: _Write) -> int:
        """Refuse a grant that is not one place in the file per page; return the file's size."""
        page_bytes = self._memory.page_bytes
        nbytes = safe_size(write.fd)
        self._memory.check(write.pages)
        if len(write.offsets) != len(write.pages):
            raise PagesInvalid(f"{len(write.offsets)} offsets for {len(write.pages)} pages")
        if any(not 0 <= at <= nbytes - page_bytes or at % page_bytes for at in write.offsets):
            raise PagesInvalid("an offset is outside of the window or not on a page")
        if len(set(write.offsets)) != len(write.offsets):
            raise PagesInvalid("an offset is granted twice")
        return nbytes

    def _copy(self, write: _Write, window: _Mapped) -> WriteEnd:
        page_bytes = self._memory.page_bytes
        target = window.view()
        written = 0
        try:
            source = self._memory.array
            for piece, (page, at) in enumerate(zip(write.pages, write.offsets, strict=True)):
                detail = f"{write.name} {piece}/{len(write.pages)}"
                self._points.reach(Failpoint.WRITE_PIECE, detail)
                target[at : at + page_bytes] = source[page]
                written += page_bytes
        except Exception as error:  # whatever it was: the receiver needs a terminal status
            return WriteEnd(write.name, WriteStatus.FAILED, written, str(error))
        return WriteEnd(write.name, WriteStatus.DONE, written)

    def _hand_on(self, write: _Write, window: _Mapped) -> None:
        """Leave the window mapped with a thread that will repeat the write."""
        threading.Thread(
            target=self._repeat, args=(write, window), name="kv-repeat", daemon=True
        ).start()

    def _repeat(self, write: _Write, window: _Mapped) -> None:
        """Store a finished write again when released; an arrival that passes stores nothing."""
        passage = self._points.reach(Failpoint.WRITE_REPEAT, write.name)
        end = self._copy(write, window) if passage is Passage.HELD else None
        window.unmap()
        if end is not None and self._repeated is not None:
            _report(self._repeated, end)


def _report(report: Report, end: WriteEnd) -> None:
    """A listener that fails must not cost the later writes their terminal status."""
    try:
        report(end)
    except Exception as error:
        facts = (type(error), error, error.__traceback__, threading.current_thread())
        threading.excepthook(threading.ExceptHookArgs(facts))


def _close(fd: int) -> None:
    with suppress(OSError):
        os.close(fd)
