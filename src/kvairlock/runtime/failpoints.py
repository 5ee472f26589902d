"""Named places where a drill can hold a real thread of a real process, or have it do wrong.

Races between nodes are only tested if they happen. Product code calls `reach` at a few named
places; nothing happens there unless a drill armed the name, and nothing can be armed unless the
process was started with failpoints enabled. An armed name is a gate: arrivals wait until it is
released, which also disarms it. Threads wait here, event loops must not: asyncio code reaches a
point from a thread.

A peer that lies is only tested if there is one. A `Flaw` is armed and released like a place; a node
in drill mode asks whether it `strikes`, and then does what no guard relies on that it does not.

Links between processes of one machine never fail. A `Cut` makes them: from being armed until it is
released, a node's links are as if the network between two machines had gone.
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


class Flaw(StrEnum):
    """The closed list of what a node can be made to do wrong."""

    REJECTED = "prefill.rejected"
    """Computes nothing of a prompt, and reports it rejected with all that a success has."""
    IDLE = "prefill.idle"
    """Computes nothing and reports success."""
    OTHERS_REQUEST = "prefill.others_request"
    """Computes another tenant's prompt, and states that tenant's request."""
    OTHERS_INPUT = "prefill.others_input"
    """Computes another tenant's prompt, and states its digest."""
    LAYOUT = "prefill.layout"
    """Stores pages of another layout, and states it."""
    SHORT = "prefill.short"
    """Computes all but the last page's worth of tokens, and states that range."""
    ORDER = "prefill.order"
    """Writes the pages in another order, and states it."""
    TORN = "prefill.torn"
    """Another tenant's pages are written behind the first page."""
    PADDED = "prefill.padded"
    """Fills the rest of the last page with another tenant's slots."""
    FORGED = "prefill.forged"
    """Somebody without the cluster's key reports success before anything is written."""
    FORMER = "prefill.former"
    """Repeats the receipt of the transfer before, under this one's name."""
    DEAF = "decode.deaf"
    """The engine stands still, and does not hear that a request has ended."""


class Cut(StrEnum):
    """The closed list of ways in which a node's links can be cut."""

    HELD = "link.held"
    """Nothing passes between it and other nodes; all of it comes, in order, once released."""
    BROKEN = "link.broken"
    """Its channels to other nodes break and none can be made; what was under way is lost."""
    GATEWAY_HELD = "gateway.held"
    """Nothing passes between it and gateways but what steers the drill; all of it comes later."""


class Passage(StrEnum):
    """What happened to one arrival: it went through at once, or it was held and later released."""

    PASSED = "passed"
    HELD = "held"


Point = Failpoint | Flaw | Cut
POINTS: tuple[Point, ...] = (*Failpoint, *Flaw, *Cut)
"""Everything that can be armed."""


@dataclass(frozen=True, slots=True)
class Reached:
    """One arrival at `name`; `detail` says what it was about to do."""

    name: Point
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
        on_reached: Told about each held thread, in that thread, before it waits, and about each
            strike. It must neither block nor raise.
    """

    def __init__(self, enabled: bool, on_reached: Callable[[Reached], None] | None = None) -> None:
        self._enabled = enabled
        self._on_reached = on_reached
        self._gates: dict[Point, _Gate] = {}
        self._once: set[Point] = set()
        self._lock = threading.Lock()

    def arm(self, name: Point, after: int = 0) -> None:
        """Hold every arrival at `name` except the first `after`, until `release`.

        Raises:
            FailpointError: Failpoints are not enabled, the name is armed already, or `after` is
                negative, or given for a cut: nobody arrives there.
        """
        if not self._enabled:
            raise FailpointError("failpoints are not enabled in this process")
        if after < 0:
            raise FailpointError(f"after must not be negative: {after}")
        if after and isinstance(name, Cut):
            raise FailpointError(f"{name} is cut at once, not after {after} arrivals")
        with self._lock:
            if name in self._gates:
                raise FailpointError(f"{name} is armed already")
            self._gates[name] = _Gate(passes_left=after)
            self._once.add(name)

    def reach(self, name: Point, detail: str = "") -> Passage:
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

    def strikes(self, flaw: Flaw, detail: str = "") -> bool:
        """Return whether a drill wants this done wrong; the first `after` are done right."""
        if not self._gates:
            return False
        with self._lock:
            struck = self._gate(flaw) is not None
        if struck and self._on_reached is not None:
            self._on_reached(Reached(flaw, detail))
        return struck

    def armed(self, name: Point) -> bool:
        """Return whether `name` is armed, also while it still lets arrivals pass."""
        if not self._gates:
            return False
        with self._lock:
            return name in self._gates

    def once_armed(self) -> tuple[Point, ...]:
        """Return everything that is or was armed in this process, in the order of `POINTS`."""
        with self._lock:
            return tuple(point for point in POINTS if point in self._once)

    def reached(self) -> tuple[Reached, ...]:
        """Return everyone who waits now, in order of arrival per name."""
        with self._lock:
            return tuple(one for gate in self._gates.values() for one in gate.waiting)

    def release(self, name: Point) -> None:
        """Disarm `name` and wake all who wait there. A name that is not armed is left as it is."""
        with self._lock:
            gate = self._gates.pop(name, None)
        if gate is not None:
            gate.opened.set()

    def release_all(self) -> None:
        """Disarm every name and wake all who wait: the process ends."""
        for name in POINTS:
            self.release(name)

    def _arrive(self, reached: Reached) -> _Gate | None:
        """The gate to wait at, or None if this arrival passes."""
        with self._lock:
            gate = self._gate(reached.name)
            if gate is not None:
                gate.waiting.append(reached)
            return gate

    def _gate(self, name: Point) -> _Gate | None:
        """The gate that is closed for an arrival that counts; None if it passes."""
        gate = self._gates.get(name)
        if gate is None:
            return None
        if gate.passes_left > 0:
            gate.passes_left -= 1
            return None
        return gate


def point_named(name: str) -> Point:
    """Return the place, flaw or cut of a name.

    Raises:
        FailpointError: There is none.
    """
    for point in POINTS:
        if point.value == name:
            return point
    raise FailpointError(f"no failpoint is called {name}")
