"""The receiving side over memory files: grant, land, fence, close.

    copy    window file -> copied into private pages; late stores hit a file that nobody reads
    seal    window file -> sealed by the kernel against every writer, then mapped over the pages
    direct  the window IS the pool: late stores land in whatever the pages are by then (drills)

A window name is used once, so that a late message can never mean a newer grant: callers draw names
at random (64 bits), and a name that is open, or among the last granted, is refused. Older ones are
forgotten, since a process would else grow with every request.
"""

from __future__ import annotations

import os
from collections import deque
from dataclasses import dataclass
from enum import StrEnum

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
    WindowTampered,
    WindowUnknown,
)
from kvairlock.transport.memfile import create_memory_file, seal_against_writes
from kvairlock.transport.memory import PoolMemory, runs

NAMES_REMEMBERED = 1024
"""More than the grants that can be under way at one time; some 100 KiB."""


class _Stage(StrEnum):
    GRANTED = "granted"
    LANDED = "landed"


@dataclass(slots=True)
class _Window:
    pages: Pages
    opened: Opened
    granted_bytes: int
    stage: _Stage = _Stage.GRANTED


class Landing:
    """The windows of one pool.

    Args:
        memory: The pool; shared if and only if the policy is direct.
        policy: How windows become pages.
        bytes_max: Bytes that may be granted at one time, twice the pool unless told. Memory files
            have no limit of their own: without this one, too many windows end in the OOM killer.

    Raises:
        TransportMisuse: Policy direct without a shared pool.
    """

    def __init__(
        self, memory: PoolMemory, policy: LandingPolicy, *, bytes_max: int | None = None
    ) -> None:
        self._memory = memory
        self._policy = policy
        self._bytes_max = 2 * memory.nbytes if bytes_max is None else bytes_max
        self._windows: dict[str, _Window] = {}
        self._recent: deque[str] = deque(maxlen=NAMES_REMEMBERED)
        if policy is LandingPolicy.DIRECT:
            _ = memory.fd  # raises here rather than at the first grant

    @property
    def windows_open(self) -> int:
        """Windows that were granted and not closed."""
        return len(self._windows)

    @property
    def bytes_open(self) -> int:
        """Bytes granted in those windows."""
        return sum(window.granted_bytes for window in tuple(self._windows.values()))

    def open(self, window: str, pages: Pages) -> Opened:
        """Grant room for `pages` under a new name; see ReceivingSide."""
        self._memory.check(pages)
        if window in self._windows or window in self._recent:
            raise WindowReused(f"window {window} was granted before")
        granted_bytes = len(pages) * self._memory.page_bytes
        if self.bytes_open + granted_bytes > self._bytes_max:
            raise TransportFull(f"windows would hold more than {self._bytes_max} bytes")
        opened = self._grant(pages)
        self._recent.append(window)
        self._windows[window] = _Window(pages.copy(), opened, granted_bytes)
        return opened

    def land(self, window: str, pages: Pages) -> Landed | Busy:
        """Make the window's first bytes those of `pages`; see ReceivingSide."""
        opened = self._landable(window, pages)
        bytes_moved = 0
        match self._policy:
            case LandingPolicy.COPY:
                bytes_moved = self._copy(pages, opened.fd)
            case LandingPolicy.SEAL:
                if not self._sealed(window):
                    return Busy(window)
                self._memory.overlay(pages, opened.fd, opened.offsets[: len(pages)])
            case LandingPolicy.DIRECT:
                pass
        self._windows[window].stage = _Stage.LANDED
        return Landed(window, len(pages), bytes_moved)

    def try_fence(self, window: str) -> Fence | None:
        """Return evidence that nobody can store into the window any more; see ReceivingSide.

        Always None under policy direct: the file is the pool and can't be sealed.
        """
        self._find(window)
        if self._policy is LandingPolicy.DIRECT or not self._sealed(window):
            return None
        return Fence.SEALED

    def close(self, window: str) -> None:
        """Give up this side's descriptor; see ReceivingSide."""
        self._find(window)
        os.close(self._windows.pop(window).opened.fd)

    def close_all(self) -> None:
        """Close every window that is open, at the end of the node's life."""
        for window in tuple(self._windows):
            self.close(window)

    def landed_pages(self, window: str) -> int:
        """Count the pages of the window that hold a non-zero byte now; see ReceivingSide."""
        opened = self._find(window).opened
        page = np.empty(self._memory.page_bytes, dtype=np.uint8)
        touched = 0
        for offset in opened.offsets:
            _read_fully(opened.fd, page.data, offset)
            touched += int(page.any())
        return touched

    def _grant(self, pages: Pages) -> Opened:
        page_bytes = self._memory.page_bytes
        if self._policy is LandingPolicy.DIRECT:
            offsets = tuple(int(page) * page_bytes for page in pages)
            return Opened(_duplicate(self._memory.fd), offsets, self._memory.nbytes)
        nbytes = len(pages) * page_bytes
        fd = create_memory_file("kvairlock-window", nbytes)
        return Opened(fd, tuple(range(0, nbytes, page_bytes)), nbytes)

    def _find(self, window: str) -> _Window:
        try:
            return self._windows[window]
        except KeyError:
            raise WindowUnknown(f"no open window is called {window}") from None

    def _landable(self, window: str, pages: Pages) -> Opened:
        found = self._find(window)
        if found.stage is _Stage.LANDED:
            raise TransportMisuse(f"window {window} has landed before")
        if pages.size == 0 or not np.array_equal(found.pages[: len(pages)], pages):
            raise PagesInvalid(f"window {window} was granted for other pages")
        return found.opened

    def _copy(self, pages: Pages, fd: int) -> int:
        """Read the file straight into the pool's bytes, one read per run of consecutive pages."""
        page_bytes = self._memory.page_bytes
        for run in runs(pages):
            target = self._memory.array[run.page : run.page + run.pages].reshape(-1)
            _read_fully(fd, target.data, run.first * page_bytes)
        return len(pages) * page_bytes

    def _sealed(self, window: str) -> bool:
        try:
            return seal_against_writes(self._windows[window].opened.fd)
        except PermissionError:
            raise WindowTampered(window) from None


def _duplicate(fd: int) -> int:
    try:
        return os.dup(fd)
    except OSError as error:
        raise TransportFull(f"no descriptor for a window: {error}") from error


def _read_fully(fd: int, target: memoryview, offset: int) -> None:
    """Fill `target` from `offset` on; one read moves at most 2 GiB."""
    filled = 0
    while filled < len(target):
        got = os.preadv(fd, [target[filled:]], offset + filled)
        if got == 0:
            raise TransportMisuse("a window file ended early although its size is sealed")
        filled += got
