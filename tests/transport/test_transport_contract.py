"""The contract on memory files within one process, under each landing policy."""

from __future__ import annotations

import os
from queue import Empty, SimpleQueue

from kvairlock.core.terms import LandingPolicy, Pages
from kvairlock.runtime.failpoints import Failpoint, Failpoints, Reached
from kvairlock.runtime.ports import Opened, WriteEnd
from kvairlock.transport.contract import TransportContract
from kvairlock.transport.contract_pair import POOL_PAGES, Pair
from kvairlock.transport.memory import PoolMemory
from kvairlock.transport.windows import Landing
from kvairlock.transport.writer import Writer

PAGE_BYTES = 8192
TIMEOUT_S = 20.0


class LocalPair(Pair):
    """A Landing and a Writer that share a process but no descriptor."""

    pool: PoolMemory
    source: PoolMemory
    receiver: Landing

    def __init__(self, policy: LandingPolicy) -> None:
        self.policy = policy
        self.pool = PoolMemory(POOL_PAGES, PAGE_BYTES, shared=policy is LandingPolicy.DIRECT)
        self.source = PoolMemory(POOL_PAGES, PAGE_BYTES)
        self._held: SimpleQueue[Reached] = SimpleQueue()
        self._ends: SimpleQueue[WriteEnd] = SimpleQueue()
        self._points = Failpoints(enabled=True, on_reached=self._held.put)
        self.receiver = Landing(self.pool, policy)
        self.sender = Writer(self.source, self._ends.put, self._points)

    def send(self, write: str, pages: Pages, opened: Opened) -> None:
        self.sender.submit(write, pages, os.dup(opened.fd), opened.offsets)

    def hold_after(self, pieces: int) -> None:
        self._points.arm(Failpoint.WRITE_PIECE, after=pieces)

    def wait_held(self) -> None:
        self._held.get(timeout=TIMEOUT_S)

    def resume(self) -> None:
        self._points.release(Failpoint.WRITE_PIECE)

    def ended(self) -> tuple[WriteEnd, ...]:
        ends = []
        while True:
            try:
                ends.append(self._ends.get_nowait())
            except Empty:
                return tuple(ends)

    def wait_end(self) -> WriteEnd:
        return self._ends.get(timeout=TIMEOUT_S)

    def crowd_out(self) -> None:
        self.receiver = Landing(self.pool, self.policy, bytes_max=5 * PAGE_BYTES)

    def close(self) -> None:
        self.sender.close()
        self.receiver.close_all()
        self.pool.close()
        self.source.close()


class TestCopy(TransportContract):
    def pair(self) -> Pair:
        return LocalPair(LandingPolicy.COPY)


class TestSeal(TransportContract):
    def pair(self) -> Pair:
        return LocalPair(LandingPolicy.SEAL)


class TestDirect(TransportContract):
    def pair(self) -> Pair:
        return LocalPair(LandingPolicy.DIRECT)
