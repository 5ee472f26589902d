from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from queue import Queue

import numpy as np
import pytest

from kvairlock.core.terms import Fence, LandingPolicy
from kvairlock.runtime.failpoints import Failpoint, Failpoints, Reached
from kvairlock.runtime.ports import Busy, Landed, WriteEnd, WriteStatus
from kvairlock.transport.memfile import create_memory_file
from kvairlock.transport.memory import PoolMemory
from kvairlock.transport.windows import Landing
from kvairlock.transport.writer import Writer

PAGE_BYTES = 4096
PAGES = np.array([3, 4, 6], dtype=np.int32)
TIMEOUT_S = 20.0


@dataclass
class Bench:
    ends: Queue[WriteEnd] = field(default_factory=Queue)
    repeats: Queue[WriteEnd] = field(default_factory=Queue)
    held: Queue[Reached] = field(default_factory=Queue)

    def __post_init__(self) -> None:
        self.points = Failpoints(enabled=True, on_reached=self.held.put)
        self.source = PoolMemory(8, PAGE_BYTES)
        self.writer = Writer(self.source, self.ends.put, self.points, repeated=self.repeats.put)

    def submit(self, name: str, fd: int, offsets: tuple[int, ...]) -> WriteEnd:
        self.writer.submit(name, PAGES, os.dup(fd), offsets)
        return self.ends.get(timeout=TIMEOUT_S)


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    for point in Failpoint:
        bench.points.release(point)
    bench.writer.close()


@pytest.mark.parametrize("policy", LandingPolicy)
def test_a_repeated_write_stores_what_the_source_holds_by_then(
    bench: Bench, policy: LandingPolicy
) -> None:
    pool = PoolMemory(8, PAGE_BYTES, shared=policy is LandingPolicy.DIRECT)
    receiver = Landing(pool, policy)
    opened = receiver.open("w", PAGES)
    bench.source.array[PAGES] = 0x11
    bench.points.arm(Failpoint.WRITE_REPEAT)
    assert bench.submit("w", opened.fd, opened.offsets).status is WriteStatus.DONE
    assert bench.held.get(timeout=TIMEOUT_S) == Reached(Failpoint.WRITE_REPEAT, "w")
    landed = receiver.land("w", PAGES)
    assert receiver.try_fence("w") is None
    assert isinstance(landed, Busy if policy is LandingPolicy.SEAL else Landed)
    bench.source.array[PAGES] = 0x22
    bench.points.release(Failpoint.WRITE_REPEAT)
    repeat = bench.repeats.get(timeout=TIMEOUT_S)
    assert repeat == WriteEnd("w", WriteStatus.DONE, 3 * PAGE_BYTES)
    seen = {LandingPolicy.COPY: 0x11, LandingPolicy.SEAL: 0x00, LandingPolicy.DIRECT: 0x22}
    assert (pool.array[PAGES] == seen[policy]).all()
    assert receiver.try_fence("w") is (None if policy is LandingPolicy.DIRECT else Fence.SEALED)
    if policy is LandingPolicy.SEAL:
        assert isinstance(receiver.land("w", PAGES), Landed)
        assert (pool.array[PAGES] == 0x22).all()


def test_a_repeat_that_passes_its_point_stores_nothing(bench: Bench) -> None:
    receiver = Landing(PoolMemory(8, PAGE_BYTES), LandingPolicy.COPY)
    bench.points.arm(Failpoint.WRITE_REPEAT, after=1)
    first, second = receiver.open("a", PAGES), receiver.open("b", PAGES)
    bench.submit("a", first.fd, first.offsets)
    wait_for_repeaters()
    bench.submit("b", second.fd, second.offsets)
    assert bench.held.get(timeout=TIMEOUT_S).detail == "b"
    bench.points.release(Failpoint.WRITE_REPEAT)
    assert bench.repeats.get(timeout=TIMEOUT_S).write == "b"
    assert bench.repeats.empty()


def wait_for_repeaters() -> None:
    for thread in threading.enumerate():
        if thread.name == "kv-repeat":
            thread.join(TIMEOUT_S)


def test_pieces_name_the_write_and_their_place(bench: Bench) -> None:
    receiver = Landing(PoolMemory(8, PAGE_BYTES), LandingPolicy.COPY)
    opened = receiver.open("w", PAGES)
    bench.points.arm(Failpoint.WRITE_PIECE, after=1)
    bench.writer.submit("w", PAGES, os.dup(opened.fd), opened.offsets)
    assert bench.held.get(timeout=TIMEOUT_S).detail == "w 1/3"


def test_files_that_could_kill_the_writer_are_refused(bench: Bench) -> None:
    unsealed = os.memfd_create("kvairlock-test", os.MFD_ALLOW_SEALING)
    os.posix_fallocate(unsealed, 0, 4 * PAGE_BYTES)
    unbacked = os.memfd_create("kvairlock-test", os.MFD_ALLOW_SEALING)
    os.ftruncate(unbacked, 4 * PAGE_BYTES)
    fcntl.fcntl(unbacked, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
    pipe_end, other_end = os.pipe()
    offsets = (0, PAGE_BYTES, 2 * PAGE_BYTES)
    for fd in (unsealed, unbacked, pipe_end):
        end = bench.submit("w", fd, offsets)
        assert (end.status, end.bytes_written) == (WriteStatus.FAILED, 0)
    bench.writer.submit("w", PAGES, -1, offsets)
    assert bench.ends.get(timeout=TIMEOUT_S).status is WriteStatus.FAILED
    for fd in (unsealed, unbacked, pipe_end, other_end):
        os.close(fd)


def test_pages_of_another_pool_are_refused(bench: Bench) -> None:
    fd = create_memory_file("kvairlock-test", 3 * PAGE_BYTES)
    bench.writer.submit("w", np.array([8], dtype=np.int32), fd, (0,))
    assert bench.ends.get(timeout=TIMEOUT_S).status is WriteStatus.FAILED


def test_a_source_that_closes_during_a_write_stays_until_the_write_ends(bench: Bench) -> None:
    fd = create_memory_file("kvairlock-test", 3 * PAGE_BYTES)
    bench.source.array[PAGES] = 0x77
    bench.points.arm(Failpoint.WRITE_PIECE, after=1)
    bench.writer.submit("w", PAGES, os.dup(fd), (0, PAGE_BYTES, 2 * PAGE_BYTES))
    bench.held.get(timeout=TIMEOUT_S)
    bench.source.close()
    bench.points.release(Failpoint.WRITE_PIECE)
    assert bench.ends.get(timeout=TIMEOUT_S).status is WriteStatus.DONE
    assert os.pread(fd, 3 * PAGE_BYTES, 0) == b"\x77" * (3 * PAGE_BYTES)
    assert bench.submit("next", fd, (0, PAGE_BYTES, 2 * PAGE_BYTES)).status is WriteStatus.FAILED
    os.close(fd)


def test_a_listener_that_raises_costs_no_later_write_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ends: Queue[WriteEnd] = Queue()
    raised: Queue[threading.ExceptHookArgs] = Queue()
    monkeypatch.setattr(threading, "excepthook", raised.put)

    def listen(end: WriteEnd) -> None:
        ends.put(end)
        raise RuntimeError(end.write)

    writer = Writer(PoolMemory(8, PAGE_BYTES), listen, Failpoints(enabled=False))
    for name in ("a", "b"):
        fd = create_memory_file("kvairlock-test", 3 * PAGE_BYTES)
        writer.submit(name, PAGES, fd, (0, PAGE_BYTES, 2 * PAGE_BYTES))
    writer.close()
    assert [ends.get_nowait().write, ends.get_nowait().write] == ["a", "b"]
    assert [str(raised.get_nowait().exc_value) for _ in range(2)] == ["a", "b"]
