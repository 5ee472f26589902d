"""The smallest transport that keeps its promises: windows are memory files, and are copied.

Both sides of it, and the `Pair` by which it is put on the rack.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from threading import Event, Thread

import numpy as np

from kvairlock.core.terms import Fence, LandingPolicy, Pages
from kvairlock.runtime.ports import (
    Busy,
    Landed,
    Opened,
    PagesInvalid,
    TransportFull,
    TransportMisuse,
    WindowReused,
    WindowUnknown,
    WriteEnd,
    WriteStatus,
)
from kvairlock.transport.contract_pair import POOL_PAGES, Pair
from kvairlock.transport.memfile import create_memory_file, seal_against_writes
from tests.rack.tiny_pool import ArrayPool

PAGE_BYTES = 4096
TIMEOUT_S = 10.0


class Receiver:
    """Grants windows, and copies what is in them."""

    def __init__(self, pool: ArrayPool, windows_max: int = 100) -> None:
        self.pool, self.windows_max = pool, windows_max
        self.windows: dict[str, tuple[Pages, Opened]] = {}
        self.granted: set[str] = set()
        self.landed: set[str] = set()

    @property
    def windows_open(self) -> int:
        return len(self.windows)

    @property
    def bytes_open(self) -> int:
        return sum(opened.nbytes for _, opened in self.windows.values())

    def open(self, window: str, pages: Pages) -> Opened:
        self.check(pages)
        if window in self.granted:
            raise WindowReused(window)
        if len(self.windows) >= self.windows_max:
            raise TransportFull("no room for another window")
        nbytes = len(pages) * self.pool.page_bytes
        fd = create_memory_file("kvairlock-tiny", nbytes)
        opened = Opened(fd, tuple(range(0, nbytes, self.pool.page_bytes)), nbytes)
        self.granted.add(window)
        self.windows[window] = pages, opened
        return opened

    def check(self, pages: Pages) -> None:
        inside = pages.size and 0 <= pages.min() <= pages.max() < len(self.pool.array)
        if not inside or np.unique(pages).size != pages.size:
            raise PagesInvalid(f"no pages of this pool: {pages}")

    def land(self, window: str, pages: Pages) -> Landed | Busy:
        granted, opened = self.find(window)
        if window in self.landed:
            raise TransportMisuse(f"{window} has landed before")
        if not pages.size or not np.array_equal(granted[: len(pages)], pages):
            raise PagesInvalid(f"{window} was granted for other pages")
        for page, offset in zip(pages, opened.offsets, strict=False):
            os.preadv(opened.fd, [self.pool.array[page].data], offset)
        self.landed.add(window)
        return Landed(window, len(pages), pages.size * self.pool.page_bytes)

    def try_fence(self, window: str) -> Fence | None:
        _, opened = self.find(window)
        return Fence.SEALED if seal_against_writes(opened.fd) else None

    def close(self, window: str) -> None:
        _, opened = self.find(window)
        del self.windows[window]
        os.close(opened.fd)

    def landed_pages(self, window: str) -> int:
        _, opened = self.find(window)
        size = self.pool.page_bytes
        return sum(any(os.pread(opened.fd, size, offset)) for offset in opened.offsets)

    def find(self, window: str) -> tuple[Pages, Opened]:
        try:
            return self.windows[window]
        except KeyError:
            raise WindowUnknown(window) from None


class Sender:
    """Writes one grant after the other in a thread; `before` is called before each piece."""

    def __init__(
        self, pool: ArrayPool, done: Callable[[WriteEnd], None], before: Callable[[int], None]
    ) -> None:
        self.pool, self.done, self.before = pool, done, before
        self.queue: SimpleQueue[tuple[str, Pages, int, Sequence[int]] | None] = SimpleQueue()
        self.closed = False
        self.thread = Thread(target=self.run, daemon=True)
        self.thread.start()

    def submit(self, write: str, pages: Pages, fd: int, offsets: Sequence[int]) -> None:
        if self.closed:
            os.close(fd)
            raise TransportMisuse("closed")
        self.queue.put((write, pages.copy(), fd, offsets))

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.queue.put(None)
        self.thread.join()

    def run(self) -> None:
        while (asked := self.queue.get()) is not None:
            self.done(self.write(*asked))

    def write(self, write: str, pages: Pages, fd: int, offsets: Sequence[int]) -> WriteEnd:
        """Map, store, unmap, and only then say how it ended."""
        try:
            nbytes = os.fstat(fd).st_size
            self.check(pages, offsets, nbytes)
            with mmap.mmap(fd, nbytes) as window:
                self.store(pages, offsets, window)
        except (OSError, ValueError, PagesInvalid) as error:
            return WriteEnd(write, WriteStatus.FAILED, 0, str(error))
        finally:
            os.close(fd)
        return WriteEnd(write, WriteStatus.DONE, len(pages) * self.pool.page_bytes)

    def check(self, pages: Pages, offsets: Sequence[int], nbytes: int) -> None:
        size = self.pool.page_bytes
        inside = all(0 <= at <= nbytes - size and at % size == 0 for at in offsets)
        if not inside or len(set(offsets)) != len(offsets) or len(offsets) != len(pages):
            raise PagesInvalid("a grant that is no place for each page")

    def store(self, pages: Pages, offsets: Sequence[int], window: mmap.mmap) -> None:
        for piece, (page, at) in enumerate(zip(pages, offsets, strict=True)):
            self.before(piece)
            window[at : at + self.pool.page_bytes] = self.pool.array[page].tobytes()


class TinyPair(Pair):
    """Both sides in one process."""

    pool: ArrayPool
    source: ArrayPool
    receiver: Receiver
    sender: Sender

    def __init__(
        self, receiving: type[Receiver] = Receiver, sending: type[Sender] = Sender
    ) -> None:
        self.policy = LandingPolicy.COPY
        self.pool, self.source = (ArrayPool(POOL_PAGES, PAGE_BYTES) for _ in range(2))
        self.ends: SimpleQueue[WriteEnd] = SimpleQueue()
        self.hold_at = -1
        self.held, self.going = Event(), Event()
        self.receiving = receiving
        self.receiver = receiving(self.pool)
        self.sender = sending(self.source, self.ends.put, self.pass_gate)

    def pass_gate(self, piece: int) -> None:
        """Let a piece pass, or hold it."""
        if piece == self.hold_at:
            self.held.set()
            self.going.wait()

    def send(self, write: str, pages: Pages, opened: Opened) -> None:
        self.sender.submit(write, pages, os.dup(opened.fd), opened.offsets)

    def hold_after(self, pieces: int) -> None:
        self.hold_at = pieces

    def wait_held(self) -> None:
        if not self.held.wait(TIMEOUT_S):
            raise TimeoutError

    def resume(self) -> None:
        self.hold_at = -1
        self.going.set()

    def ended(self) -> tuple[WriteEnd, ...]:
        ends = []
        while not self.ends.empty():
            ends.append(self.ends.get())
        return tuple(ends)

    def wait_end(self) -> WriteEnd:
        try:
            return self.ends.get(timeout=TIMEOUT_S)
        except Empty:
            raise TimeoutError from None

    def crowd_out(self) -> None:
        self.receiver = self.receiving(self.pool, windows_max=0)

    def close(self) -> None:
        self.sender.close()
        for window in tuple(self.receiver.windows):
            self.receiver.close(window)
