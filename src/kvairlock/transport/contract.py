"""What every transport must promise, as tests that any transport can be put on.

A transport's test module subclasses `TransportContract`, gives a `Pair`, and pytest collects the
rest (docs/rack.md). The tests speak of a *former* request (its bytes are 0xA0 + page) and a *next*
one that gets the same pool pages (0x55): a byte of the former in the next one's pages is a foreign
byte.
"""

# ruff: noqa: D102, S101 - these methods are tests: their names say what is promised

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import numpy as np

from kvairlock.core.terms import Fence, LandingPolicy, Pages
from kvairlock.runtime.ports import (
    Busy,
    Landed,
    Opened,
    PageMemory,
    PagesInvalid,
    TransportFull,
    TransportMisuse,
    WindowReused,
    WindowUnknown,
    WriteEnd,
    WriteStatus,
)
from kvairlock.transport.contract_checks import held, refused
from kvairlock.transport.contract_pair import FORMER, NEXT, PAGES, POOL_PAGES, SOURCE, Pair


class TransportContract(ABC):
    """Subclass it as `Test...` and give `pair`."""

    @abstractmethod
    def pair(self) -> Pair:
        """Return a new pair with two pools of POOL_PAGES pages, both zeroed."""

    @contextmanager
    def running(self) -> Iterator[Pair]:
        """A pair whose source holds the former request's bytes, one value per page."""
        pair = self.pair()
        try:
            for page in SOURCE:
                pair.source.array[page] = FORMER + page
            yield pair
        finally:
            pair.resume()
            pair.close()

    def test_bytes_arrive_where_they_were_granted_and_nowhere_else(self) -> None:
        with self.running() as pair:
            end = _write(pair, "w1")
            assert end == WriteEnd("w1", WriteStatus.DONE, len(PAGES) * pair.pool.page_bytes)
            landed = pair.receiver.land("w1", PAGES)
            assert isinstance(landed, Landed)
            assert landed.pages_landed == len(PAGES)
            for page, source in zip(PAGES, SOURCE, strict=True):
                assert (pair.pool.array[page] == FORMER + source).all()
            others = np.setdiff1d(np.arange(POOL_PAGES), PAGES)
            assert not pair.pool.array[others].any()

    def test_a_leading_part_can_be_landed_alone(self) -> None:
        with self.running() as pair:
            opened = pair.receiver.open("w1", PAGES)
            pair.send("w1", SOURCE[:4], _first(opened, 4))
            assert pair.wait_end().status is WriteStatus.DONE
            pair.pool.array[PAGES[4:]] = NEXT
            landed = pair.receiver.land("w1", PAGES[:4])
            assert isinstance(landed, Landed)
            assert landed.pages_landed == 4
            assert (pair.pool.array[PAGES[3]] == FORMER + 3).all()
            assert foreign_bytes(pair.pool, PAGES[4:]) == 0

    def test_landed_pages_can_be_written_by_their_owner(self) -> None:
        with self.running() as pair:
            _write(pair, "w1")
            pair.receiver.land("w1", PAGES)
            pair.pool.array[PAGES[0], 100:] = NEXT
            assert (pair.pool.array[PAGES[0], :100] == FORMER).all()
            assert (pair.pool.array[PAGES[0], 100:] == NEXT).all()

    def test_an_end_is_reported_after_the_last_store_and_not_before(self) -> None:
        with self.running() as pair:
            pair.hold_after(len(PAGES) - 1)
            pair.send("w1", SOURCE, pair.receiver.open("w1", PAGES))
            pair.wait_held()
            assert pair.ended() == ()
            assert pair.receiver.landed_pages("w1") == len(PAGES) - 1
            pair.resume()
            assert pair.wait_end().bytes_written == len(PAGES) * pair.pool.page_bytes
            assert pair.receiver.landed_pages("w1") == len(PAGES)

    def test_a_late_write_runs_on_and_reaches_reused_pages_only_under_direct(self) -> None:
        """Direct fails here on purpose: the former request's bytes land in the next one's pages.

        The write can't be stopped and the pages are the window, so nothing but waiting would help.
        That is why direct exists for drills only.
        """
        with self.running() as pair:
            pair.hold_after(2)
            pair.send("w1", SOURCE, pair.receiver.open("w1", PAGES))
            pair.wait_held()
            pair.receiver.close("w1")
            _reuse(pair)
            pair.resume()
            end = pair.wait_end()
            assert end == WriteEnd("w1", WriteStatus.DONE, len(PAGES) * pair.pool.page_bytes)
            late = 4 * pair.pool.page_bytes if pair.policy is LandingPolicy.DIRECT else 0
            assert foreign_bytes(pair.pool, PAGES) == late

    def test_landing_during_a_write_never_lets_later_stores_into_the_pool(self) -> None:
        with self.running() as pair:
            pair.hold_after(2)
            pair.send("w1", SOURCE, pair.receiver.open("w1", PAGES))
            pair.wait_held()
            landed = pair.receiver.land("w1", PAGES)
            if pair.policy is LandingPolicy.SEAL:
                assert landed == Busy("w1")
                assert not pair.pool.array[PAGES].any()
            _reuse(pair)
            pair.resume()
            pair.wait_end()
            if pair.policy is not LandingPolicy.DIRECT:
                assert foreign_bytes(pair.pool, PAGES) == 0
                assert pair.receiver.landed_pages("w1") == len(PAGES)

    def test_there_is_no_fence_while_a_write_may_store(self) -> None:
        with self.running() as pair:
            pair.hold_after(2)
            pair.send("w1", SOURCE, pair.receiver.open("w1", PAGES))
            pair.wait_held()
            assert pair.receiver.try_fence("w1") is None
            pair.resume()
            pair.wait_end()
            fence = None if pair.policy is LandingPolicy.DIRECT else Fence.SEALED
            assert pair.receiver.try_fence("w1") is fence
            assert pair.receiver.try_fence("w1") is fence
            assert isinstance(pair.receiver.land("w1", PAGES), Landed)

    def test_a_writer_that_comes_after_the_fence_gets_an_error(self) -> None:
        with self.running() as pair:
            opened = pair.receiver.open("w1", PAGES)
            fence = pair.receiver.try_fence("w1")
            pair.send("w1", SOURCE, opened)
            end = pair.wait_end()
            if fence is None:
                assert pair.policy is LandingPolicy.DIRECT
                assert end.status is WriteStatus.DONE
                return
            assert (end.status, end.bytes_written) == (WriteStatus.FAILED, 0)
            assert end.reason
            assert pair.receiver.landed_pages("w1") == 0

    def test_a_window_is_granted_once_and_lands_once(self) -> None:
        with self.running() as pair:
            _write(pair, "w1")
            assert isinstance(pair.receiver.land("w1", PAGES), Landed)
            refused(TransportMisuse, lambda: pair.receiver.land("w1", PAGES))
            refused(WindowReused, lambda: pair.receiver.open("w1", PAGES))
            pair.receiver.close("w1")
            refused(WindowReused, lambda: pair.receiver.open("w1", PAGES))

    def test_a_closed_window_answers_nothing(self) -> None:
        with self.running() as pair:
            receiver = pair.receiver
            receiver.open("w1", PAGES)
            receiver.close("w1")
            refused(WindowUnknown, lambda: receiver.close("w1"))
            refused(WindowUnknown, lambda: receiver.land("w1", PAGES))
            refused(WindowUnknown, lambda: receiver.try_fence("w1"))
            refused(WindowUnknown, lambda: receiver.landed_pages("w1"))

    def test_pages_that_were_not_granted_are_refused(self) -> None:
        with self.running() as pair:
            for pages in ([], [1, 1], [-1], [POOL_PAGES]):
                asked = np.array(pages, dtype=np.int32)
                refused(PagesInvalid, partial(pair.receiver.open, "w1", asked))
            _write(pair, "w1")
            for pages in ([], [5, 6, 8], [6, 5], [*PAGES, 10]):
                asked = np.array(pages, dtype=np.int32)
                refused(PagesInvalid, partial(pair.receiver.land, "w1", asked))
            assert isinstance(pair.receiver.land("w1", PAGES), Landed)

    def test_a_bad_grant_fails_and_the_next_write_succeeds(self) -> None:
        with self.running() as pair:
            opened = pair.receiver.open("w1", PAGES)
            page_bytes = pair.pool.page_bytes
            bad = {
                "beyond the end": (*opened.offsets[:-1], opened.nbytes),
                "over the end": (*opened.offsets[:-1], opened.nbytes - page_bytes // 2),
                "negative": (-page_bytes, *opened.offsets[1:]),
                "between pages": (*opened.offsets[:-1], page_bytes // 2),
                "twice": (opened.offsets[0], *opened.offsets[:-1]),
                "too few": opened.offsets[:-1],
            }
            before = held()
            for name, offsets in bad.items():
                pair.send(name, SOURCE, Opened(opened.fd, offsets, opened.nbytes))
                end = pair.wait_end()
                assert (end.write, end.status, end.bytes_written) == (name, WriteStatus.FAILED, 0)
            assert held() == before
            assert pair.receiver.landed_pages("w1") == 0
            pair.send("w1", SOURCE, opened)
            assert pair.wait_end().status is WriteStatus.DONE

    def test_writes_end_in_the_order_of_submission_and_close_waits_for_them(self) -> None:
        with self.running() as pair:
            for name, pages in (("w1", PAGES[:2]), ("w2", PAGES[2:4]), ("w3", PAGES[4:])):
                pair.send(name, SOURCE[:2], pair.receiver.open(name, pages))
            pair.sender.close()
            assert [end.write for end in pair.ended()] == ["w1", "w2", "w3"]
            opened = pair.receiver.open("w4", PAGES)
            refused(TransportMisuse, lambda: pair.send("w4", SOURCE, opened))

    def test_a_full_receiver_says_so_and_grants_nothing(self) -> None:
        with self.running() as pair:
            pair.crowd_out()
            refused(TransportFull, lambda: pair.receiver.open("w1", PAGES))
            assert (pair.receiver.windows_open, pair.receiver.bytes_open) == (0, 0)

    def test_descriptors_and_mappings_return_to_where_they_were(self) -> None:
        with self.running() as pair:
            before = held()
            for name in ("w1", "w2", "w3"):
                _write(pair, name)
                assert isinstance(pair.receiver.land(name, PAGES), Landed)
                assert pair.receiver.windows_open == 1
                assert pair.receiver.bytes_open == len(PAGES) * pair.pool.page_bytes
                pair.receiver.close(name)
                pair.pool.scrub(PAGES)
                assert not pair.pool.array[PAGES].any()
            assert (pair.receiver.windows_open, pair.receiver.bytes_open) == (0, 0)
            assert held() == before


def foreign_bytes(pool: PageMemory, pages: Pages) -> int:
    """Bytes in the next request's `pages`, shape (n,), that it did not put there."""
    return int(np.count_nonzero(pool.array[pages] != NEXT))


def _reuse(pair: Pair) -> None:
    pair.pool.scrub(PAGES)
    pair.pool.array[PAGES] = NEXT


def _write(pair: Pair, name: str) -> WriteEnd:
    pair.send(name, SOURCE, pair.receiver.open(name, PAGES))
    return pair.wait_end()


def _first(opened: Opened, pages: int) -> Opened:
    return Opened(opened.fd, opened.offsets[:pages], opened.nbytes)
