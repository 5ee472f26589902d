"""Transports on the rack: a tiny one passes; for each promise a broken one fails.

kvairlock's own transport is on it in tests/transport/test_transport_contract.py.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from kvairlock.core.terms import Fence, Pages
from kvairlock.runtime.ports import Busy, Landed, Opened, WindowUnknown, WriteEnd, WriteStatus
from kvairlock.transport.contract import TransportContract
from kvairlock.transport.contract_pair import Pair
from tests.rack.broken import keeps, promises
from tests.rack.tiny_pool import ArrayPool
from tests.rack.tiny_transport import Receiver, Sender, TinyPair


class TestTiny(TransportContract):
    def pair(self) -> Pair:
        return TinyPair()


# One transport for each promise that it breaks


class LandsInOrder(Receiver):
    """Lands in the order of the pool, whatever was granted."""

    def land(self, window: str, pages: Pages) -> Landed | Busy:
        granted, opened = self.find(window)
        self.windows[window] = np.sort(granted), opened
        return super().land(window, np.sort(pages))


class LandsAll(Receiver):
    def land(self, window: str, pages: Pages) -> Landed | Busy:
        granted, _ = self.find(window)
        return super().land(window, granted)


class LandsForReadersOnly(Receiver):
    def land(self, window: str, pages: Pages) -> Landed | Busy:
        landed = super().land(window, pages)
        self.pool.array.flags.writeable = False
        return landed


class ReportsEarly(Sender):
    def write(self, write: str, pages: Pages, fd: int, offsets: Sequence[int]) -> WriteEnd:
        self.done(WriteEnd(write, WriteStatus.DONE, len(pages) * self.pool.page_bytes))
        return super().write(write, pages, fd, offsets)


class Stale(Receiver):
    """Keeps its windows mapped into the pool: what is stored later shows in whoever has it."""

    def land(self, window: str, pages: Pages) -> Landed | Busy:
        landed = super().land(window, pages)
        self.again = window, pages
        return landed

    def landed_pages(self, window: str) -> int:
        self.refresh()
        return super().landed_pages(window)

    def refresh(self) -> None:
        window, pages = self.again
        _, opened = self.find(window)
        for page, offset in zip(pages, opened.offsets, strict=True):
            os.preadv(opened.fd, [self.pool.array[page].data], offset)


class StalePair(TinyPair):
    """The receiver copies once more when the write has ended."""

    def wait_end(self) -> WriteEnd:
        end = super().wait_end()
        if isinstance(self.receiver, Stale):
            self.receiver.refresh()
        return end


class WritesIntoThePool(TinyPair):
    """Says that it copies; what is written goes to the granted pages as soon as it comes."""

    def pass_gate(self, piece: int) -> None:
        super().pass_gate(piece)
        pages = next(iter(self.granted))
        self.pool.array[pages[piece]] = self.source.array[piece]

    def send(self, write: str, pages: Pages, opened: Opened) -> None:
        self.granted = [granted for granted, _ in self.receiver.windows.values()]
        super().send(write, pages, opened)


class FencesAtOnce(Receiver):
    def try_fence(self, window: str) -> Fence | None:
        self.find(window)
        return Fence.SEALED


class CountsWriters(Receiver):
    """Looks whether the file is mapped, and forbids nothing."""

    def try_fence(self, window: str) -> Fence | None:
        self.find(window)
        maps = Path("/proc/self/maps").read_text()
        return None if "kvairlock-tiny" in maps else Fence.SEALED


class ForgetsNames(Receiver):
    def close(self, window: str) -> None:
        super().close(window)
        self.granted.discard(window)
        self.landed.discard(window)


class AnswersForever(Receiver):
    def close(self, window: str) -> None:
        if window in self.windows:
            super().close(window)

    def landed_pages(self, window: str) -> int:
        try:
            return super().landed_pages(window)
        except WindowUnknown:
            return 0


class TakesAnyPages(Receiver):
    def check(self, pages: Pages) -> None:
        if not pages.size:
            super().check(pages)


class WritesAnywhere(Sender):
    def check(self, pages: Pages, offsets: Sequence[int], nbytes: int) -> None:
        pass

    def store(self, pages: Pages, offsets: Sequence[int], window: mmap.mmap) -> None:
        last = len(window) - self.pool.page_bytes
        clipped = [min(max(at, 0), last) for at in offsets]
        super().store(pages[: len(clipped)], clipped, window)


class LeavesAtClose(Sender):
    """Closes without waiting for what was submitted."""

    def close(self) -> None:
        self.closed = True
        self.queue.put(None)


class HasAlwaysRoom(Receiver):
    def __init__(self, pool: ArrayPool, windows_max: int = 100) -> None:
        super().__init__(pool)


class KeepsDescriptors(Receiver):
    def close(self, window: str) -> None:
        _, opened = self.find(window)
        del self.windows[window]
        self.kept = [*getattr(self, "kept", []), opened.fd]


def receiving(kind: type[Receiver]) -> Callable[[], Pair]:
    return lambda: TinyPair(receiving=kind)


def sending(kind: type[Sender]) -> Callable[[], Pair]:
    return lambda: TinyPair(sending=kind)


BROKEN: dict[str, Callable[[], Pair]] = {
    "test_bytes_arrive_where_they_were_granted_and_nowhere_else": receiving(LandsInOrder),
    "test_a_leading_part_can_be_landed_alone": receiving(LandsAll),
    "test_landed_pages_can_be_written_by_their_owner": receiving(LandsForReadersOnly),
    "test_an_end_is_reported_after_the_last_store_and_not_before": sending(ReportsEarly),
    "test_a_late_write_runs_on_and_reaches_reused_pages_only_under_direct": WritesIntoThePool,
    "test_landing_during_a_write_never_lets_later_stores_into_the_pool": lambda: StalePair(Stale),
    "test_there_is_no_fence_while_a_write_may_store": receiving(FencesAtOnce),
    "test_a_writer_that_comes_after_the_fence_gets_an_error": receiving(CountsWriters),
    "test_a_window_is_granted_once_and_lands_once": receiving(ForgetsNames),
    "test_a_closed_window_answers_nothing": receiving(AnswersForever),
    "test_pages_that_were_not_granted_are_refused": receiving(TakesAnyPages),
    "test_a_bad_grant_fails_and_the_next_write_succeeds": sending(WritesAnywhere),
    "test_writes_end_in_the_order_of_submission_and_close_waits_for_them": sending(LeavesAtClose),
    "test_a_full_receiver_says_so_and_grants_nothing": receiving(HasAlwaysRoom),
    "test_descriptors_and_mappings_return_to_where_they_were": receiving(KeepsDescriptors),
}


@pytest.mark.parametrize("promise", BROKEN)
def test_a_broken_transport_fails(promise: str) -> None:
    assert keeps(TransportContract, promise, "pair", TinyPair)
    assert not keeps(TransportContract, promise, "pair", BROKEN[promise])


def test_there_is_a_broken_transport_for_each_promise() -> None:
    assert set(BROKEN) == promises(TransportContract)
