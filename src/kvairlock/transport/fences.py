"""Evidence that a peer process can't store any more because it has ended.

A pidfd becomes readable when every thread of the process has ended; by then its mappings are gone.
It names one process for good, also after its number was given to another one. It says nothing
about descriptors that were inherited or sent on: where the kernel can seal a window, that is the
stronger fence.
"""

from __future__ import annotations

import errno
import os
import select

from kvairlock.core.errors import Misuse
from kvairlock.core.terms import Fence


class ProcessMissing(Misuse):
    """There is no process of this number (any more), so nothing can be known about it."""

    code = "process_missing"


class ProcessWatch:
    """Watches one process.

    Args:
        pid: Its number, as the kernel named it for an open connection (SO_PEERCRED). If that
            connection is not still open afterwards, the number may be another process's by now.

    Raises:
        ProcessMissing: There is no such process.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        try:
            self._pidfd = os.pidfd_open(pid)
        except OSError as error:
            if error.errno not in (errno.ESRCH, errno.EINVAL):
                raise
            raise ProcessMissing(f"no process {pid}") from error

    def fileno(self) -> int:
        """Return the pidfd: readable, for select or an event loop, once the process has ended."""
        return self._pidfd

    def gone(self) -> bool:
        """Return whether the process has ended. Never blocks."""
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        return bool(poll.poll(0))

    def try_fence(self) -> Fence | None:
        """Return evidence that the process can't store any more, or None: no evidence yet."""
        return Fence.PROCESS_GONE if self.gone() else None

    def close(self) -> None:
        """Give up the descriptor; idempotent. The watch is of no use afterwards."""
        if self._pidfd >= 0:
            os.close(self._pidfd)
            self._pidfd = -1
