"""Pools on the rack: kvairlock's own and an array pass; for each promise a broken one fails."""

from __future__ import annotations

import os

import numpy as np
import pytest

from kvairlock.core.terms import Pages
from kvairlock.runtime.ports import PageMemory
from kvairlock.transport.contract_pool import PoolContract
from kvairlock.transport.memory import PoolMemory
from tests.rack.broken import keeps, promises
from tests.rack.tiny_pool import ArrayPool


class TestPrivateMemory(PoolContract):
    def pool(self, pages: int, page_bytes: int) -> PageMemory:
        return PoolMemory(pages, page_bytes)

    def close(self, pool: PageMemory) -> None:
        assert isinstance(pool, PoolMemory)
        pool.close()


class TestSharedMemory(TestPrivateMemory):
    def pool(self, pages: int, page_bytes: int) -> PageMemory:
        return PoolMemory(pages, page_bytes, shared=True)


class TestArray(PoolContract):
    def pool(self, pages: int, page_bytes: int) -> PageMemory:
        return ArrayPool(pages, page_bytes)


# One pool for each promise that it breaks


class NotZeroed(ArrayPool):
    def __init__(self, pages: int, page_bytes: int) -> None:
        super().__init__(pages, page_bytes)
        self.array[-1, -1] = 1


class Overlapping(ArrayPool):
    """The second half of each page is the first of the next."""

    def __init__(self, pages: int, page_bytes: int) -> None:
        super().__init__(pages, page_bytes)
        strides = (page_bytes // 2, 1)
        self.array = np.lib.stride_tricks.as_strided(self.array, (pages, page_bytes), strides)


class ScrubsTheFirstRun(ArrayPool):
    def scrub(self, pages: Pages) -> None:
        super().scrub(pages)
        self.array[pages[-1]] = 1


class ScrubsFromTo(ArrayPool):
    def scrub(self, pages: Pages) -> None:
        super().scrub(pages)
        self.array[pages.min() : pages.max() + 1] = 0


class Moves(ArrayPool):
    def scrub(self, pages: Pages) -> None:
        self.array = self.array.copy()
        super().scrub(pages)


class ScrubsOnce(ArrayPool):
    """Remembers what it has zeroed, and thinks that it still is."""

    def __init__(self, pages: int, page_bytes: int) -> None:
        super().__init__(pages, page_bytes)
        self.zeroed: set[int] = set()

    def scrub(self, pages: Pages) -> None:
        fresh = [page for page in pages.tolist() if page not in self.zeroed]
        self.zeroed |= set(fresh)
        if fresh:
            super().scrub(np.array(fresh, dtype=np.int32))


class TakesAnyPages(ArrayPool):
    def scrub(self, pages: Pages) -> None:
        self.array[pages % len(self.array)] = 0


class KeepsDescriptors(ArrayPool):
    def scrub(self, pages: Pages) -> None:
        super().scrub(pages)
        self.kept = [*getattr(self, "kept", []), os.memfd_create("kept")]

    def __del__(self) -> None:
        for fd in getattr(self, "kept", []):
            os.close(fd)


BROKEN: dict[str, type[ArrayPool]] = {
    "test_new_memory_is_zeroed_and_has_a_row_of_bytes_for_each_page": NotZeroed,
    "test_each_page_has_memory_of_its_own": Overlapping,
    "test_scrubbed_pages_are_zero_and_all_others_as_they_were": ScrubsFromTo,
    "test_any_set_of_pages_can_be_scrubbed": ScrubsTheFirstRun,
    "test_the_bytes_never_move": Moves,
    "test_a_page_is_used_and_scrubbed_again_and_again": ScrubsOnce,
    "test_pages_that_make_no_sense_are_refused_and_nothing_is_zeroed": TakesAnyPages,
    "test_descriptors_and_mappings_do_not_grow": KeepsDescriptors,
}


@pytest.mark.parametrize("promise", BROKEN)
def test_a_broken_pool_fails(promise: str) -> None:
    assert keeps(PoolContract, promise, "pool", ArrayPool)
    assert not keeps(PoolContract, promise, "pool", BROKEN[promise])


def test_there_is_a_broken_pool_for_each_promise() -> None:
    assert set(BROKEN) == promises(PoolContract)
