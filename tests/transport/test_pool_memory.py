from __future__ import annotations

import fcntl
import os
import re
from pathlib import Path

import numpy as np
import pytest

from kvairlock.runtime.ports import PagesInvalid, TransportFull, TransportMisuse
from kvairlock.transport.memfile import create_memory_file
from kvairlock.transport.memory import PoolMemory, Run, runs

PAGE_BYTES = 4096


def pages(*which: int) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    return np.array(which, dtype=np.int32)


def file_of(count: int) -> int:
    """A memory file whose page i holds the value 1 + i."""
    fd = create_memory_file("kvairlock-test", count * PAGE_BYTES)
    for page in range(count):
        os.pwrite(fd, bytes([1 + page]) * PAGE_BYTES, page * PAGE_BYTES)
    return fd


def vm_flags(address: int) -> set[str]:
    """The kernel's flags of the mapping that holds `address`."""
    found = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if span := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
            found = int(span[1], 16) <= address < int(span[2], 16)
        elif found and line.startswith("VmFlags:"):
            return set(line.split()[1:])
    raise AssertionError(f"nothing is mapped at {address:#x}")


@pytest.mark.parametrize("shared", [False, True])
def test_a_pool_is_zeroed_writable_and_not_dumped(shared: bool) -> None:
    memory = PoolMemory(4, PAGE_BYTES, shared=shared)
    assert memory.array.shape == (4, PAGE_BYTES)
    assert not memory.array.any()
    memory.array[3] = 7
    assert "dd" in vm_flags(memory.array.ctypes.data)
    if shared:
        assert os.pread(memory.fd, 4, 3 * PAGE_BYTES) == b"\7\7\7\7"
        assert fcntl.fcntl(memory.fd, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK
        assert "dc" in vm_flags(memory.array.ctypes.data)
    else:
        with pytest.raises(TransportMisuse):
            _ = memory.fd
    memory.close()


@pytest.mark.parametrize("size", [(0, 4096), (4, 0), (4, 4095), (-1, 4096), (4, -4096)])
def test_sizes_that_make_no_sense_are_refused(size: tuple[int, int]) -> None:
    with pytest.raises(TransportMisuse):
        PoolMemory(*size)


@pytest.mark.parametrize("page_bytes", [1 << 46, 1 << 60])
def test_a_pool_that_the_machine_cannot_hold_is_refused(page_bytes: int) -> None:
    with pytest.raises(TransportFull):
        PoolMemory(1, page_bytes)


def test_an_overlay_shows_the_file_and_keeps_own_writes_private() -> None:
    memory = PoolMemory(8, PAGE_BYTES)
    memory.array[:] = 99
    before = memory.array
    fd = file_of(4)
    memory.overlay(pages(2, 3, 6, 1), fd, [0, PAGE_BYTES, 2 * PAGE_BYTES, 3 * PAGE_BYTES])
    assert memory.mappings == 3
    assert [int(value) for value in before[:, 17]] == [99, 4, 1, 2, 99, 99, 3, 99]
    assert "dd" in vm_flags(memory.array[2].ctypes.data)
    memory.array[2] = 50
    assert os.pread(fd, 1, 0) == b"\1"
    os.close(fd)
    assert int(memory.array[3, 0]) == 2
    memory.close()


def test_places_that_are_apart_in_the_file_are_mapped_apart() -> None:
    memory = PoolMemory(4, PAGE_BYTES)
    fd = file_of(3)
    memory.overlay(pages(0, 1, 2), fd, [2 * PAGE_BYTES, 0, PAGE_BYTES])
    os.close(fd)
    assert memory.mappings == 2
    assert [int(value) for value in memory.array[:, 0]] == [3, 1, 2, 0]
    memory.close()


def test_scrub_zeroes_and_uncovers_only_what_it_is_told() -> None:
    memory = PoolMemory(8, PAGE_BYTES)
    memory.array[:] = 99
    fd = file_of(4)
    memory.overlay(pages(2, 3, 4, 5), fd, [at * PAGE_BYTES for at in range(4)])
    memory.scrub(pages(4, 7, 3))
    assert [int(value) for value in memory.array[:, 0]] == [99, 99, 1, 0, 0, 4, 99, 0]
    assert memory.mappings == 2
    os.pwrite(fd, b"\xee" * PAGE_BYTES, PAGE_BYTES)
    assert not memory.array[3].any()
    assert "dd" in vm_flags(memory.array[3].ctypes.data)
    memory.scrub(pages(2, 5))
    assert memory.mappings == 0
    os.close(fd)
    memory.close()


def test_too_many_mappings_are_refused_before_anything_changes() -> None:
    memory = PoolMemory(8, PAGE_BYTES, mappings_max=2)
    memory.array[:] = 99
    fd = file_of(3)
    places = [0, PAGE_BYTES, 2 * PAGE_BYTES]
    with pytest.raises(TransportFull):
        memory.overlay(pages(0, 2, 4), fd, places)
    assert (memory.array == 99).all()
    memory.overlay(pages(0, 1, 4), fd, places)
    assert memory.mappings == 2
    os.close(fd)
    memory.close()


def test_a_mapping_that_the_kernel_refuses_leaves_zeroed_memory() -> None:
    memory = PoolMemory(4, PAGE_BYTES)
    memory.array[:] = 99
    fd = file_of(2)
    write_only = os.open(f"/proc/self/fd/{fd}", os.O_WRONLY)
    with pytest.raises(TransportFull):
        memory.overlay(pages(1, 3), write_only, [0, PAGE_BYTES])
    assert [int(value) for value in memory.array[:, 0]] == [99, 0, 99, 0]
    assert memory.mappings == 0
    os.close(write_only)
    os.close(fd)
    memory.close()


@pytest.mark.parametrize("places", [[0], [0, 2 * PAGE_BYTES], [-PAGE_BYTES, 0], [0, 100]])
def test_an_overlay_of_places_outside_of_the_file_is_refused(places: list[int]) -> None:
    memory = PoolMemory(4, PAGE_BYTES)
    fd = file_of(2)
    with pytest.raises(PagesInvalid):
        memory.overlay(pages(0, 1), fd, places)
    os.close(fd)
    memory.close()


def test_a_shared_pool_takes_no_overlay() -> None:
    memory = PoolMemory(4, PAGE_BYTES, shared=True)
    fd = file_of(1)
    with pytest.raises(TransportMisuse):
        memory.overlay(pages(0), fd, [0])
    memory.scrub(pages(0))
    os.close(fd)
    memory.close()


def test_memory_lives_as_long_as_a_view_of_it() -> None:
    memory = PoolMemory(4, PAGE_BYTES)
    memory.array[2] = 42
    address = memory.array.ctypes.data
    view = memory.array[2]
    memory.close()
    memory.close()
    with pytest.raises(TransportMisuse):
        _ = memory.array
    assert (view == 42).all()
    assert "dd" in vm_flags(address)
    del view
    assert not is_ours(address)


def test_nothing_is_mapped_over_a_closed_pool() -> None:
    memory = PoolMemory(4, PAGE_BYTES)
    fd = file_of(1)
    memory.overlay(pages(1), fd, [0])
    memory.close()
    with pytest.raises(TransportMisuse):
        memory.overlay(pages(0), fd, [0])
    with pytest.raises(TransportMisuse):
        memory.scrub(pages(1))
    os.close(fd)


def is_ours(address: int) -> bool:
    try:
        return "dd" in vm_flags(address)
    except AssertionError:
        return False


def test_runs_split_where_pages_or_places_stop_being_consecutive() -> None:
    assert runs(pages(4, 5, 6, 2, 3, 9)) == [Run(0, 4, 3), Run(3, 2, 2), Run(5, 9, 1)]
    assert runs(pages(4, 5, 6), np.array([0, 10, 30]), 10) == [Run(0, 4, 2), Run(2, 6, 1)]
    assert runs(pages()) == []
