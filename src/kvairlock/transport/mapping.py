"""The four calls to mmap(2) that a node needs, with explicit addresses.

Python's `mmap` objects can't map over a given address, and refuse to close while a numpy view is
alive. Here a mapping is an address and a length: whoever made it says when it goes, and must not
while a copy may run. All KV mappings stay out of core dumps (they are tenant data); shared ones are
also not inherited by a fork, because a child that never stores would still count as a writer.
"""

from __future__ import annotations

import ctypes
import mmap
import os

import numpy as np
from numpy.typing import NDArray

MAP_FIXED = 0x10
"""Replace whatever is mapped there, atomically; `mmap` does not name it before Python 3.13."""

ADDRESS_SPACE_BYTES = 1 << 47
"""User addresses of x86-64 and arm64; ctypes would truncate larger lengths in silence."""

_READ_WRITE = mmap.PROT_READ | mmap.PROT_WRITE
_ANONYMOUS = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
_FAILED = ctypes.c_void_p(-1).value

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int64,
)
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_libc.mlock.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


def map_anonymous(nbytes: int) -> int:
    """Map `nbytes` of zeroed private memory; return its address. Raises OSError."""
    return _kept_private(_mmap(None, nbytes, _ANONYMOUS, -1, 0), nbytes)


def map_anonymous_over(address: int, nbytes: int) -> None:
    """Replace what is mapped at `address` by zeroed private memory. Raises OSError."""
    _kept_private(_mmap(address, nbytes, _ANONYMOUS | MAP_FIXED, -1, 0), nbytes)


def map_private_over(address: int, nbytes: int, fd: int, offset: int) -> None:
    """Replace what is mapped at `address` by a writable private view of a file. Raises OSError."""
    flags = mmap.MAP_PRIVATE | MAP_FIXED
    _kept_private(_mmap(address, nbytes, flags, fd, offset), nbytes)


def map_shared(fd: int, nbytes: int) -> int:
    """Map the first `nbytes` of a file for everyone to see; return the address. Raises OSError."""
    address = _kept_private(_mmap(None, nbytes, mmap.MAP_SHARED, fd, 0), nbytes)
    _advise(address, nbytes, mmap.MADV_DONTFORK)
    return address


def lock(address: int, nbytes: int) -> None:
    """Keep a mapping out of swap, and resident. Raises OSError, also over RLIMIT_MEMLOCK."""
    if _libc.mlock(address, nbytes) != 0:
        raise _last_error("mlock")


def unmap(address: int, nbytes: int) -> None:
    """Remove a mapping. Any view of it kills the process when touched. Raises OSError."""
    if _libc.munmap(address, nbytes) != 0:
        raise _last_error("munmap")


def view(address: int, nbytes: int) -> NDArray[np.uint8]:
    """Return the mapped bytes, shape (nbytes,), writable. The view does not own the mapping."""
    return np.ctypeslib.as_array((ctypes.c_ubyte * nbytes).from_address(address))


def _mmap(address: int | None, nbytes: int, flags: int, fd: int, offset: int) -> int:
    if not 0 < nbytes < ADDRESS_SPACE_BYTES:
        raise OSError(f"mmap: no mapping has {nbytes} bytes")
    mapped = _libc.mmap(address, nbytes, _READ_WRITE, flags, fd, offset)
    if mapped is None or mapped == _FAILED:
        raise _last_error("mmap")
    return int(mapped)


def _kept_private(address: int, nbytes: int) -> int:
    _advise(address, nbytes, mmap.MADV_DONTDUMP)
    return address


def _advise(address: int, nbytes: int, advice: int) -> None:
    if _libc.madvise(address, nbytes, advice) != 0:
        raise _last_error("madvise")


def _last_error(call: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, f"{call}: {os.strerror(number)}")
