"""Named places where a drill can hold a real thread of a real process.

Races between nodes are only tested if they happen. Product code calls `reach` at a few named
places; nothing happens there unless a drill armed the name, and nothing can be armed unless the
process was started with failpoints enabled. An armed name is a gate: arrivals wait until it is
released, which also disarms it. Threads wait here, event loops must not: asyncio code reaches a
point from a thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from kvairlock.core.errors import Misuse


class Failpoint(StrEnum):
    """The closed list of places."""

    WRITE_PIECE = "write.piece"
    WRITE_REPEAT = "write.repeat"
    DECODE_STEP = "decode.step"
    LAND = "land"


class Passage(StrEnum):
    """What happened to one arrival: it went through at once, or it was held and later released."""

    PASSED = "passed"
    HELD = "held"


@dataclass(frozen=True, slots=True)
class Reached:
    """One thread that waits at `name`; `detail` says what it was about to do."""

    name: Failpoint
    detail: str


class FailpointError(Misuse):
    """A drill asked for something that failpoints refuse."""


@dataclass(slots=True)
class _Gate:
    """One arming of one name. A later arming is another gate, so its release wakes nobody twice."""

    passes_left: int
    waiting: list[Reached] = field(default_factory=list)
    opened: threading.Event = field(default_factory=threading.Event)


class Failpoints:
    """The failpoints of one process.

    Args:
        enabled: Whether anything may be armed; fixed for the life of the process.
        on_reached: Told about each held thread, in that thread, before it waits. It must neither
            block nor raise.
    """

    def __init__(self, enabled: bool, on_reached: Callable[[Reached], None] | None = None) -> None:
        self._enabled = enabled
        self._on_reached = on_reached
        self._gates: dict[Failpoint, _Gate] = {}
        self._lock = threading.Lock()

    def arm(self, name: Failpoint, after: int = 0) -> None:
        """Hold every arrival at `name` except the first `after`, until `release`.

        Raises:
            FailpointError: Failpoints are not enabled, the name is armed already, or `after` is
                negative.
        """
        if not self._enabled:
            raise FailpointError("failpoints are not enabled in this process")
        if after < 0:
            raise FailpointError(f"after must not be negative: {after}")
        with self._lock:
            if name in self._gates:
                raise FailpointError(f"{name} is armed already")
            self._gates[name] = _Gate(passes_left=after)

    def reach(self, name: Failpoint, detail: str = "") -> Passage:
        """Pass the named place, from product code; blocks the calling thread while it is held."""
        if not self._gates:
            return Passage.PASSED
        reached = Reached(name, detail)
        gate = self._arrive(reached)
        if gate is None:
            return Passage.PASSED
        if self._on_reached is not None:
            self._on_reached(reached)
        gate.opened.wait()
        return Passage.HELD

    def armed(self, name: Failpoint) -> bool:
        """Return whether `name` is armed, also while it still lets arrivals pass."""
        with self._lock:
            return name in self._gates

    def reached(self) -> tuple[Reached, ...]:
        """Return everyone who waits now, in order of arrival per name."""
        with self._lock:
            return tuple(one for gate in self._gates.values() for one in gate.waiting)

    def release(self, name: Failpoint) -> None:
        """Disarm `name` and wake all who wait there. A name that is not armed is left as it is."""
        with self._lock:
            gate = self._gates.pop(name, None)
        if gate is not None:
            gate.opened.set()

    def release_all(self) -> None:
        """Disarm every name and wake all who wait: the process ends."""
        for name in Failpoint:
            self.release(name)

    def _arrive(self, reached: Reached) -> _Gate | None:
        """The gate to wait at, or None if this arrival passes."""
        with self._lock:
            gate = self._gates.get(reached.name)
            if gate is None:
                return None
            if gate.passes_left > 0:
                gate.passes_left -= 1
                return None
            gate.waiting.append(reached)
            return gate
