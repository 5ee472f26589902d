"""What only memory files can show: real kernel refusals, sealing, tampering."""

from __future__ import annotations

import fcntl
import mmap
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import numpy.ma  # np.unique loads it when it is first called: not without descriptors
import pytest

from kvairlock.core.terms import Fence, LandingPolicy
from kvairlock.runtime.ports import (
    Busy,
    Landed,
    TransportFull,
    TransportMisuse,
    WindowReused,
    WindowTampered,
)
from kvairlock.transport.memory import PoolMemory
from kvairlock.transport.windows import NAMES_REMEMBERED, Landing

PAGE_BYTES = 4096
PAGES = np.array([1, 2, 5], dtype=np.int32)


def landing(policy: LandingPolicy) -> tuple[PoolMemory, Landing]:
    memory = PoolMemory(8, PAGE_BYTES, shared=policy is LandingPolicy.DIRECT)
    return memory, Landing(memory, policy)


@contextmanager
def limited(limit: int, value: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(limit)
    resource.setrlimit(limit, (value, hard))
    try:
        yield
    finally:
        resource.setrlimit(limit, (soft, hard))


@pytest.mark.parametrize("policy", LandingPolicy)
def test_a_process_without_descriptors_refuses_typed(policy: LandingPolicy) -> None:
    _, receiver = landing(policy)
    with limited(resource.RLIMIT_NOFILE, 3), pytest.raises(TransportFull):
        receiver.open("w", PAGES)
    assert (receiver.windows_open, receiver.bytes_open) == (0, 0)
    receiver.open("w", PAGES)


@pytest.mark.parametrize("policy", [LandingPolicy.COPY, LandingPolicy.SEAL])
def test_a_window_that_cannot_be_backed_is_refused_and_leaves_no_descriptor(
    policy: LandingPolicy,
) -> None:
    _, receiver = landing(policy)
    held = len(list(Path("/proc/self/fd").iterdir()))
    with limited(resource.RLIMIT_FSIZE, PAGE_BYTES), pytest.raises(TransportFull):
        receiver.open("w", PAGES)
    assert len(list(Path("/proc/self/fd").iterdir())) == held


def test_direct_needs_a_shared_pool() -> None:
    with pytest.raises(TransportMisuse):
        Landing(PoolMemory(8, PAGE_BYTES), LandingPolicy.DIRECT)


def test_a_window_is_backed_private_to_exec_and_of_fixed_size() -> None:
    _, receiver = landing(LandingPolicy.COPY)
    opened = receiver.open("w", PAGES)
    assert opened.offsets == (0, PAGE_BYTES, 2 * PAGE_BYTES)
    assert os.fstat(opened.fd).st_blocks * 512 >= opened.nbytes == 3 * PAGE_BYTES
    assert not os.get_inheritable(opened.fd)
    for size in (0, 4 * PAGE_BYTES):
        with pytest.raises(PermissionError):
            os.ftruncate(opened.fd, size)
    receiver.close("w")


def test_direct_grants_the_pages_own_places_of_the_pool() -> None:
    memory, receiver = landing(LandingPolicy.DIRECT)
    opened = receiver.open("w", PAGES)
    assert opened.offsets == tuple(int(page) * PAGE_BYTES for page in PAGES)
    os.pwrite(opened.fd, b"\x11" * PAGE_BYTES, opened.offsets[2])
    assert (memory.array[5] == 0x11).all()
    assert receiver.landed_pages("w") == 1
    assert receiver.land("w", PAGES) == Landed("w", 3, 0)
    receiver.close("w")
    assert os.fstat(memory.fd).st_size == 8 * PAGE_BYTES


def test_seal_lands_without_a_copy_once_no_writable_mapping_is_left() -> None:
    memory, receiver = landing(LandingPolicy.SEAL)
    opened = receiver.open("w", PAGES)
    writer = mmap.mmap(opened.fd, opened.nbytes)
    writer[:] = b"\x22" * opened.nbytes
    assert receiver.land("w", PAGES) == Busy("w")
    assert receiver.try_fence("w") is None
    writer.close()
    assert receiver.land("w", PAGES) == Landed("w", 3, 0)
    assert receiver.try_fence("w") is Fence.SEALED
    assert (memory.array[PAGES] == 0x22).all()
    assert memory.mappings == 2
    with pytest.raises(PermissionError):
        mmap.mmap(opened.fd, opened.nbytes)
    with pytest.raises(PermissionError):
        os.pwrite(opened.fd, b"late", 0)
    receiver.close("w")
    assert (memory.array[PAGES] == 0x22).all()


def test_a_copy_is_reported_in_bytes_and_does_not_follow_the_file() -> None:
    memory, receiver = landing(LandingPolicy.COPY)
    opened = receiver.open("w", PAGES)
    os.pwrite(opened.fd, b"\x33" * opened.nbytes, 0)
    assert receiver.land("w", PAGES) == Landed("w", 3, 3 * PAGE_BYTES)
    os.pwrite(opened.fd, b"\x44" * opened.nbytes, 0)
    assert (memory.array[PAGES] == 0x33).all()
    assert memory.mappings == 0


@pytest.mark.parametrize("policy", [LandingPolicy.COPY, LandingPolicy.SEAL])
def test_a_window_that_a_peer_shut_against_sealing_is_its_fault(policy: LandingPolicy) -> None:
    _, receiver = landing(policy)
    opened = receiver.open("w", PAGES)
    fcntl.fcntl(opened.fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SEAL)
    with pytest.raises(WindowTampered):
        receiver.try_fence("w")


def test_a_landing_that_is_out_of_mappings_can_be_tried_again() -> None:
    memory = PoolMemory(8, PAGE_BYTES, mappings_max=3)
    receiver = Landing(memory, LandingPolicy.SEAL)
    other = np.array([7, 3], dtype=np.int32)
    for window, pages in (("a", PAGES), ("b", other)):
        os.pwrite(receiver.open(window, pages).fd, b"\x66" * PAGE_BYTES, 0)
    assert isinstance(receiver.land("a", PAGES), Landed)
    with pytest.raises(TransportFull):
        receiver.land("b", other)
    assert not memory.array[other].any()
    memory.scrub(PAGES)
    assert isinstance(receiver.land("b", other), Landed)
    assert (memory.array[7] == 0x66).all()


def test_quarantined_windows_count_until_they_are_closed() -> None:
    memory = PoolMemory(8, PAGE_BYTES)
    receiver = Landing(memory, LandingPolicy.COPY, bytes_max=6 * PAGE_BYTES)
    receiver.open("a", PAGES)
    receiver.open("b", PAGES)
    with pytest.raises(TransportFull):
        receiver.open("c", PAGES[:1])
    receiver.close("a")
    receiver.open("c", PAGES[:1])
    assert (receiver.windows_open, receiver.bytes_open) == (2, 4 * PAGE_BYTES)
    receiver.close_all()
    assert (receiver.windows_open, receiver.bytes_open) == (0, 0)


def test_names_are_remembered_long_enough_and_not_for_ever() -> None:
    _, receiver = landing(LandingPolicy.COPY)
    receiver.open("open", PAGES[:1])
    receiver.open("first", PAGES[:1])
    receiver.close("first")
    for number in range(NAMES_REMEMBERED - 1):
        receiver.open(f"w{number}", PAGES[:1])
        receiver.close(f"w{number}")
    with pytest.raises(WindowReused):
        receiver.open("first", PAGES[:1])
    receiver.open("last", PAGES[:1])
    receiver.open("first", PAGES[:1])
    with pytest.raises(WindowReused):
        receiver.open("open", PAGES[:1])
