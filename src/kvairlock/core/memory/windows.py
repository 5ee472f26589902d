"""Memory granted to remote writers: each window once, and gone only on evidence.

    granted --> landed or abandoned (not wanted any more) --> fenced --> closed

A window counts against landing memory until nobody can write into it any more, whatever became of
its request: what a stopped process still has mapped is used memory.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from kvairlock.core.effects import CloseWindow, Effect, ProbeWindow, Record, Value
from kvairlock.core.memory.pool import Hold, Lease
from kvairlock.core.terms import NS_PER_MS, Fence, Instant, Owner, Peer, TransferId, WindowId

PROBE_NS = 100 * NS_PER_MS
NEVER = Instant(0)


@dataclass(slots=True)
class Window:
    """Memory that was granted to one transfer for remote writes, never twice.

    Args:
        id: Its name.
        owner: For whom.
        writer: Who may write.
        pages: How many pages it has room for.
        lease: The destination's lease.
        wanted: Whether its content may still be landed.
        landing: Whether the host is at it right now.
        fence: The evidence that nobody can write any more, once there is any.
        bytes_written: What the writer says it stored.
        ended_at: When the transfer ended that it was granted for.
        probe_at: When to look for evidence next.
    """

    id: WindowId
    owner: Owner
    writer: Peer
    pages: int
    lease: Lease
    wanted: bool = True
    landing: bool = False
    fence: Fence | None = None
    bytes_written: int = 0
    ended_at: Instant = NEVER
    probe_at: Instant = NEVER


class Windows:
    """The windows of one decode node.

    Args:
        out: Where effects go.
        fences: Counts those that were let go, by the evidence they rest on.
    """

    def __init__(self, out: list[Effect], fences: Counter[Fence]) -> None:
        self._out, self._fences = out, fences
        self._open: dict[WindowId, Window] = {}

    def __len__(self) -> int:
        """Return how many windows are not fenced yet, or still wanted."""
        return len(self._open)

    def add(self, window: Window) -> None:
        """Note a fresh window."""
        self._open[window.id] = window

    def pages(self, tenant: str | None = None) -> int:
        """How many pages are in windows, of one tenant or of all."""
        return sum(w.pages for w in self._of(tenant))

    def draining(self) -> tuple[Window, ...]:
        """Windows that nobody wants any more and that are not fenced."""
        return tuple(w for w in self._open.values() if not w.wanted)

    def pages_draining(self, tenant: str | None = None) -> int:
        """How many pages are in windows whose request has ended."""
        return sum(w.pages for w in self._of(tenant) if not w.wanted)

    def deadline(self) -> list[Instant]:
        """When to look for evidence next."""
        return [w.probe_at for w in self.draining()]

    def probe(self, now: Instant) -> None:
        """Ask the host for evidence on windows that wait for it."""
        for window in self.draining():
            if window.probe_at <= now:
                window.probe_at = Instant(now + PROBE_NS)
                self._out.append(ProbeWindow(window.id))

    def unwant(self, window: Window, now: Instant) -> None:
        """Nothing will be landed from this window any more; forget it once it is fenced."""
        window.wanted, window.ended_at = False, now
        window.probe_at = Instant(now + PROBE_NS)
        self._forget(window, now)

    def landed(self, transfer: TransferId, now: Instant) -> None:
        """The host has done with landing the window of a transfer, or with trying to."""
        for window in list(self._open.values()):
            if window.owner.transfer == transfer:
                window.landing = False
                self._forget(window, now)

    def released(self, name: WindowId, writer: Peer, bytes_written: int, now: Instant) -> bool:
        """Take the writer's own word that its write is terminal; False if it is not its window."""
        window = self._open.get(name)
        if window is None or window.writer != writer:
            return False
        if window.fence is None:
            window.bytes_written = bytes_written
        self.fence(name, Fence.ACKNOWLEDGED, now)
        return True

    def never_granted(self, transfer: TransferId, now: Instant) -> None:
        """The window of a transfer could not be made: nobody can write into it."""
        for window in list(self._open.values()):
            if window.owner.transfer == transfer:
                self.fence(window.id, Fence.LOCAL, now)

    def gone(self, writer: Peer, now: Instant) -> None:
        """The process of a writer has ended."""
        for window in list(self._open.values()):
            if window.writer == writer:
                self.fence(window.id, Fence.PROCESS_GONE, now)

    def fence(self, name: WindowId, fence: Fence, now: Instant) -> None:
        """Note evidence that nobody can write into a window; the first is kept."""
        window = self._open.get(name)
        if window is None or window.fence is not None:
            return
        window.fence = fence
        if Hold.WINDOW in window.lease.holds:
            window.lease.release(Hold.WINDOW)
            window.lease.fence = fence
        self._forget(window, now)

    def _of(self, tenant: str | None) -> list[Window]:
        return [w for w in self._open.values() if tenant in (None, w.owner.tenant)]

    def _forget(self, window: Window, now: Instant) -> None:
        if window.wanted or window.landing or window.fence is None:
            return
        del self._open[window.id]
        self._fences[window.fence] += 1
        fields: dict[str, Value] = {
            "window": window.id,
            "fence": window.fence,
            "bytes_written": window.bytes_written,
            "wait_ms": (now - window.ended_at) // NS_PER_MS,
        }
        self._out.append(Record("window_fenced", window.owner, fields))
        self._out.append(CloseWindow(window.id))
