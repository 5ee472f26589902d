"""What the memory behind a pool must promise, as tests that any memory can be put on.

A node frees a page by one call: `scrub`. When it has returned, the next owner gets the page, and
nothing of the former one may be found by it, through whatever view. A memory's test module
subclasses `PoolContract`, gives a `pool`, and pytest collects the rest (docs/rack.md).
"""

# ruff: noqa: D102, S101 - these methods are tests: their names say what is promised

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import numpy as np

from kvairlock.core.terms import Pages
from kvairlock.runtime.ports import PageMemory, PagesInvalid
from kvairlock.transport.contract_checks import held, refused

POOL_PAGES = 12
PAGE_BYTES = 8192
RUNS = np.array([5, 6, 7, 2, 3, 9], dtype=np.int32)
"""Three runs of pages, out of order."""
FULL = 0xA0
CYCLES = 50


class PoolContract(ABC):
    """Subclass it as `Test...` and give `pool`."""

    @abstractmethod
    def pool(self, pages: int, page_bytes: int) -> PageMemory:
        """Return new memory of `pages` pages of `page_bytes` bytes."""

    def close(self, pool: PageMemory) -> None:  # noqa: B027 - most have nothing to do
        """Give a pool up, if there is something to do for it."""

    @contextmanager
    def filled(self) -> Iterator[PageMemory]:
        """A pool in which page n holds FULL + n, byte for byte."""
        pool = self.pool(POOL_PAGES, PAGE_BYTES)
        try:
            for page in range(POOL_PAGES):
                pool.array[page] = FULL + page
            yield pool
        finally:
            self.close(pool)

    def test_new_memory_is_zeroed_and_has_a_row_of_bytes_for_each_page(self) -> None:
        pool = self.pool(POOL_PAGES, PAGE_BYTES)
        try:
            assert pool.page_bytes == PAGE_BYTES
            assert pool.array.shape == (POOL_PAGES, PAGE_BYTES)
            assert pool.array.dtype == np.uint8
            assert pool.array.flags.c_contiguous
            assert not pool.array.any()
        finally:
            self.close(pool)

    def test_each_page_has_memory_of_its_own(self) -> None:
        with self.filled() as pool:
            assert all(_holds(pool, page) for page in range(POOL_PAGES))

    def test_scrubbed_pages_are_zero_and_all_others_as_they_were(self) -> None:
        with self.filled() as pool:
            pool.scrub(RUNS)
            assert not pool.array[RUNS].any()
            assert all(_holds(pool, page) for page in _others(RUNS))

    def test_any_set_of_pages_can_be_scrubbed(self) -> None:
        for pages in ([0], [POOL_PAGES - 1], [3, 1], [*range(POOL_PAGES)]):
            with self.filled() as pool:
                named = np.array(pages, dtype=np.int32)
                pool.scrub(named)
                assert not pool.array[named].any()
                assert all(_holds(pool, page) for page in _others(named))

    def test_the_bytes_never_move(self) -> None:
        """An engine takes the array once; what holds a view of a page holds the page."""
        with self.filled() as pool:
            address, view = pool.array.ctypes.data, pool.array[RUNS[0]]
            pool.scrub(RUNS)
            assert pool.array.ctypes.data == address
            assert not view.any()
            view[:] = 1
            assert (pool.array[RUNS[0]] == 1).all()

    def test_a_page_is_used_and_scrubbed_again_and_again(self) -> None:
        with self.filled() as pool:
            for owner in range(1, CYCLES):
                pool.scrub(RUNS)
                assert not pool.array[RUNS].any()
                pool.array[RUNS] = owner
            assert (pool.array[RUNS] == CYCLES - 1).all()

    def test_pages_that_make_no_sense_are_refused_and_nothing_is_zeroed(self) -> None:
        with self.filled() as pool:
            for pages in ([], [1, 1], [-1], [POOL_PAGES], [2, POOL_PAGES], [[1]]):
                refused(PagesInvalid, partial(pool.scrub, np.array(pages, dtype=np.int32)))
            assert all(_holds(pool, page) for page in range(POOL_PAGES))

    def test_descriptors_and_mappings_do_not_grow(self) -> None:
        with self.filled() as pool:
            pool.scrub(RUNS)
            before = held()
            for _ in range(CYCLES):
                pool.array[RUNS] = 1
                pool.scrub(RUNS)
            assert held() == before


def _holds(pool: PageMemory, page: int) -> bool:
    """Whether a page holds what it was filled with."""
    return bool((pool.array[page] == FULL + page).all())


def _others(pages: Pages) -> list[int]:
    return [page for page in range(POOL_PAGES) if page not in set(pages.tolist())]
