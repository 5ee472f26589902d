"""A node's KV pages, and what may be mapped over them.

The pool is one mapping of `pages * page_bytes` bytes whose address never moves, so that the engine
keeps one array for life. What lies behind a page can change: under policy seal a page shows,
privately, a piece of a sealed memory file until it is scrubbed. Mappings are counted, because the
kernel has a limit for them and a pool that runs into it would lose pages.

    anonymous  --overlay(fd, offset)-->  private view of a file  --scrub-->  anonymous, zeroed
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np
from numpy.typing import NDArray

from kvairlock.core.terms import Pages
from kvairlock.runtime.ports import PagesInvalid, TransportFull, TransportMisuse
from kvairlock.transport import mapping
from kvairlock.transport.memfile import create_memory_file

HOST_PAGE_BYTES = 4096
MAPPINGS_MAX = 16_384
"""Each overlay can split one mapping into three; 16,384 use half of vm.max_map_count = 65,530."""

_ANONYMOUS = 0


@dataclass(frozen=True, slots=True)
class Run:
    """Consecutive pool pages that belong to consecutive places of a list.

    Args:
        first: Place of the first page in the list.
        page: The first pool page.
        pages: How many there are.
    """

    first: int
    page: int
    pages: int


class PoolMemory:
    """The bytes of one pool.

    Args:
        pages: Pages of the pool.
        page_bytes: Bytes of one page, a multiple of 4096.
        shared: Back the pool by a memory file that others can map (policy direct).
        mappings_max: Overlays that may exist at one time.

    Raises:
        TransportMisuse: The sizes make no sense.
        TransportFull: The machine has no such memory.
    """

    def __init__(
        self,
        pages: int,
        page_bytes: int,
        *,
        shared: bool = False,
        mappings_max: int = MAPPINGS_MAX,
    ) -> None:
        if pages <= 0 or page_bytes <= 0 or page_bytes % HOST_PAGE_BYTES:
            raise TransportMisuse(f"no pool has {pages} pages of {page_bytes} bytes")
        self.pages = pages
        self.page_bytes = page_bytes
        self._mappings_max = mappings_max
        self._behind = np.full(pages, _ANONYMOUS, dtype=np.int64)
        self._overlays = count(_ANONYMOUS + 1)
        self._fd = create_memory_file("kvairlock-pool", self.nbytes) if shared else None
        self._array: NDArray[np.uint8] | None = None
        self._array = self._own_view(self._map())

    @property
    def nbytes(self) -> int:
        """Bytes of the whole pool."""
        return self.pages * self.page_bytes

    @property
    def array(self) -> NDArray[np.uint8]:
        """The bytes, shape (pages, page_bytes), writable. Raises TransportMisuse after close."""
        if self._array is None:
            raise TransportMisuse("this pool memory is closed")
        return self._array

    @property
    def fd(self) -> int:
        """The memory file behind a shared pool. Raises TransportMisuse if there is none."""
        if self._fd is None:
            raise TransportMisuse("this pool has no memory file")
        return self._fd

    @property
    def mappings(self) -> int:
        """File mappings that lie over pool pages now."""
        starts = np.diff(self._behind, prepend=_ANONYMOUS) != 0
        return int(np.count_nonzero(starts & (self._behind != _ANONYMOUS)))

    def check(self, pages: Pages) -> None:
        """Refuse `pages`, shape (n,), that are none, not of this pool, or named twice.

        Raises:
            PagesInvalid: They are.
        """
        if pages.ndim != 1 or pages.size == 0 or not np.issubdtype(pages.dtype, np.integer):
            raise PagesInvalid(f"not a list of pages: shape {pages.shape}, {pages.dtype}")
        if int(pages.min()) < 0 or int(pages.max()) >= self.pages:
            raise PagesInvalid(f"pages {pages.min()}..{pages.max()} of a pool of {self.pages}")
        if np.unique(pages).size != pages.size:
            raise PagesInvalid("a page is named twice")

    def lock(self) -> str:
        """Keep the pool out of swap; return why the kernel refused, empty if it did not."""
        try:
            mapping.lock(self.array.ctypes.data, self.nbytes)
        except OSError as error:
            return str(error)
        return ""

    def populate(self) -> None:
        """Touch every page, so that memory that is not there is missed now and not under load."""
        self.array.fill(0)

    def scrub(self, pages: Pages) -> None:
        """Zero `pages`, shape (n,), and take files away from over them. Raises PagesInvalid."""
        self.check(pages)
        ordered = np.sort(pages)
        covered = self._behind[ordered] != _ANONYMOUS
        for run in runs(ordered[~covered]):
            self.array[run.page : run.page + run.pages] = 0
        for run in runs(ordered[covered]):
            self._uncover(run)

    def overlay(self, pages: Pages, fd: int, offsets: Sequence[int]) -> None:
        """Show pieces of a memory file as pool pages: private, writable, without a copy.

        Args:
            pages: Pool pages, shape (n,). What they held is gone.
            fd: The memory file; it may be closed afterwards.
            offsets: Where each page's piece begins in it, in bytes, multiples of 4096.

        Raises:
            PagesInvalid: The pages or offsets make no sense.
            TransportFull: It would take more mappings than allowed; no page was changed. Also if
                the kernel refuses a mapping; then all of `pages` were scrubbed.
            TransportMisuse: The pool is shared, so its pages must stay the file's.
        """
        self.check(pages)
        if self._fd is not None:
            raise TransportMisuse("a shared pool takes no overlays")
        self._check_pieces(pages, fd, offsets)
        pieces = runs(pages, np.asarray(offsets, dtype=np.int64), self.page_bytes)
        if self.mappings + len(pieces) > self._mappings_max:
            raise TransportFull(f"{len(pieces)} mappings more than {self._mappings_max}")
        try:
            for run in pieces:
                self._cover(run, fd, offsets[run.first])
        except OSError as error:
            self._restore(pages)
            raise TransportFull(f"pool pages could not be mapped: {error}") from error

    def close(self) -> None:
        """Give the memory up; idempotent. It is unmapped when the last view of it is gone."""
        self._array = None
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _map(self) -> int:
        try:
            if self._fd is None:
                return mapping.map_anonymous(self.nbytes)
            return mapping.map_shared(self._fd, self.nbytes)
        except OSError as error:
            self.close()
            raise TransportFull(f"no pool of {self.nbytes} bytes: {error}") from error

    def _own_view(self, address: int) -> NDArray[np.uint8]:
        """Tie the mapping's life to its views, so that no late reader touches unmapped memory."""
        flat = mapping.view(address, self.nbytes)
        unmapping = weakref.finalize(flat, mapping.unmap, address, self.nbytes)
        unmapping.atexit = False
        return flat.reshape(self.pages, self.page_bytes)

    def _check_pieces(self, pages: Pages, fd: int, offsets: Sequence[int]) -> None:
        """Past a file's end there is no page to show: reading there would kill the process."""
        end = os.fstat(fd).st_size - self.page_bytes
        if len(offsets) != len(pages):
            raise PagesInvalid(f"{len(offsets)} offsets for {len(pages)} pages")
        if any(not 0 <= at <= end or at % HOST_PAGE_BYTES for at in offsets):
            raise PagesInvalid("an offset is outside of the file or not on a page of the host")

    def _cover(self, run: Run, fd: int, offset: int) -> None:
        mapping.map_private_over(*self._extent(run), fd, offset)
        self._behind[run.page : run.page + run.pages] = next(self._overlays)

    def _uncover(self, run: Run) -> None:
        mapping.map_anonymous_over(*self._extent(run))
        self._behind[run.page : run.page + run.pages] = _ANONYMOUS

    def _restore(self, pages: Pages) -> None:
        """After a refused MAP_FIXED the range may be unmapped: put memory back under every page."""
        for run in runs(np.sort(pages)):
            self._uncover(run)

    def _extent(self, run: Run) -> tuple[int, int]:
        """Address and length in bytes; raises after close, when the address may be another's."""
        return self.array[run.page].ctypes.data, run.pages * self.page_bytes


def runs(pages: Pages, offsets: NDArray[np.int64] | None = None, page_bytes: int = 0) -> list[Run]:
    """Split `pages`, shape (n,), where they or their `offsets` (bytes) stop being consecutive."""
    if pages.size == 0:
        return []
    breaks = np.diff(pages) != 1
    if offsets is not None:
        breaks |= np.diff(offsets) != page_bytes
    starts = [0, *(int(at) + 1 for at in np.flatnonzero(breaks))]
    ends = [*starts[1:], len(pages)]
    return [Run(at, int(pages[at]), end - at) for at, end in zip(starts, ends, strict=True)]
