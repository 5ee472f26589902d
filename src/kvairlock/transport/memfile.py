"""Memory files that others may store into without being able to hurt either side.

A file that is mapped can kill whoever touches it (SIGBUS): if it shrinks, or if memory runs out
when a page is touched for the first time. So it gets all its memory at once and is sealed against
shrink and growth before anyone else sees it. Sealing against *writes* is the fence: the kernel
grants it only when no writable mapping exists anywhere, and allows none afterwards.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat

from kvairlock.runtime.ports import TransportFull

_FIXED_SIZE = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW


def create_memory_file(label: str, nbytes: int) -> int:
    """Return the descriptor of a new, zeroed, fully backed memory file of fixed size.

    Args:
        label: Shows in /proc to this user; names no tenant and no request.
        nbytes: Its size.

    Raises:
        TransportFull: No descriptor or no memory is left for it.
    """
    try:
        fd = os.memfd_create(label, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    except OSError as error:
        raise TransportFull(f"no memory file: {error}") from error
    try:
        os.posix_fallocate(fd, 0, nbytes)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _FIXED_SIZE)
    except OSError as error:
        os.close(fd)
        raise TransportFull(f"no memory file of {nbytes} bytes: {error}") from error
    return fd


def seal_against_writes(fd: int) -> bool:
    """Try to make the file immutable for good; False while a writable mapping exists.

    Raises:
        PermissionError: The file was sealed against further seals by someone else.
    """
    if fcntl.fcntl(fd, fcntl.F_GET_SEALS) & fcntl.F_SEAL_WRITE:
        return True
    try:
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL)
    except OSError as error:
        if error.errno == errno.EBUSY:
            return False
        raise
    return True


def safe_size(fd: int) -> int:
    """Return the bytes of a memory file that a writer can store into without risking its life.

    Raises:
        ValueError: It could shrink or is not backed by memory.
        OSError: It is no memory file.
    """
    if not fcntl.fcntl(fd, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK:
        raise ValueError("the window could shrink under the write")
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode) or status.st_blocks * 512 < status.st_size:
        raise ValueError("the window is not backed by memory")
    return status.st_size
