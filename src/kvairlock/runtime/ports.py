"""What the rest of a node may rely on from a transport, whatever moves the bytes.

A transport has two sides. The receiving side grants a window, lands it in the pool, and says when
nobody can store into it any more. The sending side writes, and reports one terminal status per
write. The promises are about evidence: a call that returns proves only what its docstring says, and
`None` or `Busy` proves nothing at all. `transport/contract.py` checks them.

    receiving                                   sending
    open(window)  ---- grant: fd, offsets --->  submit(write)
    land(window)  <--- receipt (elsewhere) ---  done(WriteEnd)
    try_fence(window) -> SEALED | None
    close(window)

There is no cancel on either side, on purpose: with one-sided transports a write that was cancelled
keeps landing (889 MiB after a cancel that returned OK in 24 us, NIXL 1.5 over tcp).

    KvairlockError
     +- TransportMisuse (Misuse)         ours: a name, a page or a state that makes no sense
     |   +- WindowReused | WindowUnknown | PagesInvalid
     +- TransportFull                    no room for a window or mapping now; ask again later
     +- WindowTampered (PeerMisbehaved)  a peer shut a window against our fence
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from kvairlock.core.errors import KvairlockError, Misuse, PeerMisbehaved, Reason
from kvairlock.core.terms import Fence, Pages


class TransportMisuse(Misuse):
    """Our own caller asked a transport for something that this state does not allow."""

    code = "transport_misuse"


class WindowReused(TransportMisuse):
    """This window name is open, or was granted not long ago: names are not used again."""

    code = "window_reused"


class WindowUnknown(TransportMisuse):
    """No open window has this name: it never existed, or it was closed."""

    code = "window_unknown"


class PagesInvalid(TransportMisuse):
    """Pages that are empty, out of range, named twice, or not those that were granted."""

    code = "pages_invalid"


class TransportFull(KvairlockError):
    """No memory, descriptors or mappings for one more window now."""

    http_status = 503
    code = "transport_full"


class WindowTampered(PeerMisbehaved):
    """A window can't be sealed although nobody on this side forbade it."""

    code = "window_tampered"

    def __init__(self, window: str) -> None:
        super().__init__(Reason.MISSING_EVIDENCE, f"window {window} was shut against sealing")


@dataclass(frozen=True, slots=True)
class Opened:
    """One grant, in the form that crosses to the writer.

    Args:
        fd: Descriptor of the memory file. It stays the receiving side's; send or `dup` it before
            `close(window)`.
        offsets: Where each granted page lies in the file, in bytes, one per page in their order.
        nbytes: Size of the memory file in bytes.
    """

    fd: int
    offsets: tuple[int, ...]
    nbytes: int


@dataclass(frozen=True, slots=True)
class Landed:
    """The window's bytes are pool pages now, as they were when `land` was called.

    Proves nothing about whether they are complete: that is the receipt's and the checksums' part.

    Args:
        window: The window.
        pages_landed: Pages of the pool that now hold them.
        bytes_moved: Bytes that were copied; 0 where pages were mapped or nothing had to move.
    """

    window: str
    pages_landed: int
    bytes_moved: int


@dataclass(frozen=True, slots=True)
class Busy:
    """A writer may still store into the window; nothing was landed. Ask again later."""

    window: str


class WriteStatus(StrEnum):
    """How a submitted write ended. There is no third way."""

    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class WriteEnd:
    """The terminal status of one write: the writer gave its mapping up before it said so.

    Args:
        write: The name that it was submitted under.
        status: DONE if every piece was stored.
        bytes_written: Bytes that were stored, also before a failure.
        reason: Why it failed, for people; empty if it is done.
    """

    write: str
    status: WriteStatus
    bytes_written: int
    reason: str = ""


class PageMemory(Protocol):
    """The KV bytes of one node's pool."""

    @property
    def array(self) -> NDArray[np.uint8]:
        """The pool's bytes, shape (pages, page_bytes), writable, at addresses that never move."""

    @property
    def page_bytes(self) -> int:
        """Bytes of one page."""

    def scrub(self, pages: Pages) -> None:
        """Zero `pages`, shape (n,). When it returns, none of them shows a byte of any file.

        Scrubbing comes after the drain: what a writer stores later it does not undo.
        """


class ReceivingSide(Protocol):
    """Grants windows and turns them into pool pages.

    Calls for one window come from one thread at a time; other windows may be in other threads.
    """

    def open(self, window: str, pages: Pages) -> Opened:
        """Grant room for `pages` (pool pages, shape (n,)) to one writer under a new name.

        Promises that the room is backed by memory, so that storing into it can't kill the writer,
        and that no open window and none of the last ones had that name. Under copy and seal it
        holds zeros and lies outside of the pool. Raises WindowReused, PagesInvalid, TransportFull.
        """

    def land(self, window: str, pages: Pages) -> Landed | Busy:
        """Make the window's first pages the bytes of `pages`, a leading part of those granted.

        What `Landed` proves about later stores depends on the policy. Copy: they don't reach the
        pool. Seal: there are none, the kernel refuses them. Direct: nothing, they reach the pool.
        Raises WindowUnknown, PagesInvalid, TransportFull (nothing landed), WindowTampered, and
        TransportMisuse if the window landed before: a verdict about landed bytes must stay true.
        """

    def try_fence(self, window: str) -> Fence | None:
        """Evidence that nobody can store into the window any more, or None: no evidence yet.

        Never blocks. Raises WindowUnknown, WindowTampered.
        """

    def close(self, window: str) -> None:
        """Give up this side's descriptor. Proves nothing about the writer, and stops no write.

        A writer that has the window mapped keeps its memory alive, uncounted; fence it first to
        know. Raises WindowUnknown, also for the second close.
        """

    def landed_pages(self, window: str) -> int:
        """How many pages of the window hold a non-zero byte now. Raises WindowUnknown."""

    @property
    def windows_open(self) -> int:
        """Windows that were granted and not closed."""

    @property
    def bytes_open(self) -> int:
        """Bytes granted in those windows."""


class SendingSide(Protocol):
    """Writes pages of its own pool into granted windows."""

    def submit(self, write: str, pages: Pages, fd: int, offsets: Sequence[int]) -> None:
        """Write `pages` (own pool, shape (n,)) to `offsets` of the window `fd`, in bytes.

        Takes ownership of `fd`, also when it raises. Promises exactly one `WriteEnd`, after the
        last store and after the mapping is gone; a bad grant ends FAILED. It can't be taken back:
        the pages must hold still until that end. Raises TransportMisuse if this side is closed.
        """

    def close(self) -> None:
        """Take no more writes and wait until every submitted one has ended."""
