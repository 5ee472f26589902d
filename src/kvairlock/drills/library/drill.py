"""A drill: a fault made on purpose, as data. What is done, what must hold, and what shows without.

    limits     what was agreed on beforehand: tenants, requests, tokens, seconds, retention
    stack      the processes that it needs
    steps      what is done to them, in order
    holds      what must be seen while the guards that it is about are on
    shows      what must be seen once they are off: a drill that cannot fail proves nothing

It is carried out up to three times. *Guarded*: all guards on, nothing of another tenant shows,
whichever guard refuses first. *Alone*: its shadows, the guards that would stop the same fault
before or behind, are off, and the guard itself must hold, on the receiver's record. *Off*: it is
off as well, and the fault must be seen.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from kvairlock.core.errors import Reason, Stage
from kvairlock.core.guards import Guard
from kvairlock.drills.library.sights import SIGHTS, Sight
from kvairlock.drills.library.steps import AnyStep, Ask, Crowd, Name, Size, asks_of
from kvairlock.drills.library.topology import Topology

EVERY, ANY = "every", "any"
"""In the place of a request's name: all of them, or at least one."""


class Round(StrEnum):
    """What is broken on purpose."""

    CAPACITY = "capacity"
    RECEIPT = "receipt"
    REUSE = "reuse"
    ACCESS = "access"


ROUNDS: dict[Round, str] = {
    Round.CAPACITY: "capacity lowered, with the protocol right",
    Round.RECEIPT: "the receipt is partial or wrong, with capacity ample",
    Round.REUSE: "memory is reused while somebody is not done with it",
    Round.ACCESS: "beside the rounds: who asks, and who shares",
}
"""The rounds in words."""


class Level(IntEnum):
    """What is accepted with it."""

    CAPACITY = 1
    PROTOCOL = 2
    TENANTS = 3


LEVELS: dict[Level, str] = {
    Level.CAPACITY: "what each node was measured to hold supports the promise",
    Level.PROTOCOL: "both ends behave on what is over-long, refused, cancelled or partial",
    Level.TENANTS: "tenants at the same time never read each other",
}
"""The levels in words."""


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What was agreed on beforehand; a drill that would go beyond is refused.

    Args:
        tenants_max: Tenants that ask.
        requests_max: Requests that are made.
        prompt_tokens: The shortest and the longest prompt, in tokens.
        seconds_max: Seconds that one run may take, start and stop of the stack not counted.
        retention_h: Hours after which its data is deleted, if it is kept at all.
    """

    tenants_max: Size
    requests_max: Size
    prompt_tokens: tuple[Size, Size]
    seconds_max: Size
    retention_h: Size


class Trace(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the receiver must have recorded.

    Args:
        node: Which process.
        event: Which event of the evidence schema.
        request: About which request of the drill; empty for what is about none.
        fields: What it must say there.
    """

    node: str
    event: str
    request: str
    fields: dict[str, str | int] = {}

    def __str__(self) -> str:
        """Say it in words."""
        said = "".join(f", {name} {value}" for name, value in self.fields.items())
        about = f" of {self.request}" if self.request else ""
        return f"{self.node}: {self.event}{about}{said}"


class Sighting(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What must be seen once the guards are off.

    Args:
        request: Whose; a crowd's; `every` for all, `any` for at least one.
        sight: What.
    """

    request: str
    sight: Sight

    def __str__(self) -> str:
        """Say it in words."""
        return f"{self.request}: {SIGHTS[self.sight]}"


class Expectation(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What must be seen of a request while the guards are on.

    Args:
        request: Whose; a crowd's; `every` for all.
        sight: What.
        reason: Why it is refused; only where `sight` is a refusal, and there always.
        stage: Where it is refused; only with a reason.
        recorded: What the receiver must have recorded, or None.
    """

    request: str
    sight: Sight
    reason: Reason | None = None
    stage: Stage | None = None
    recorded: Trace | None = None

    def __str__(self) -> str:
        """Say it in words."""
        where = f" at {self.stage}" if self.stage else ""
        why = f" ({self.reason}{where})" if self.reason else ""
        record = f"; {self.recorded}" if self.recorded else ""
        return f"{self.request}: {SIGHTS[self.sight]}{why}{record}"


class Mode(StrEnum):
    """Which guards are off while a drill is carried out."""

    GUARDED = "guarded"
    ALONE = "alone"
    OFF = "off"


class Drill(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One drill.

    Args:
        name: Its name, the same as its file's.
        title: What is done, in a line.
        round: What is broken.
        level: What is accepted with it.
        guards: The guards that it is about: one, `all` together, or none.
        shadows: Guards that stop the same fault as well; off, so that it is alone.
        note: What else one should know about it; empty for nothing.
        stack: What it needs.
        limits: What was agreed on.
        steps: What is done.
        holds: What must be seen with the guards.
        shows: What must be seen without them.
    """

    name: Name
    title: Annotated[str, Meta(min_length=1)]
    round: Round
    level: Level
    guards: tuple[Guard, ...] | Literal["all"]
    shadows: tuple[Guard, ...]
    note: str = ""
    stack: Topology
    limits: Limits
    steps: Annotated[tuple[AnyStep, ...], Meta(min_length=1)]
    holds: Annotated[tuple[Expectation, ...], Meta(min_length=1)]
    shows: tuple[Sighting, ...] = ()

    @property
    def about(self) -> frozenset[Guard]:
        """The guards that it is about."""
        return frozenset(Guard if self.guards == "all" else self.guards)

    @property
    def asks(self) -> tuple[Ask, ...]:
        """The requests that it makes."""
        return asks_of(self.steps)

    @property
    def tenants(self) -> tuple[str, ...]:
        """Who asks, in the order of their first requests."""
        return tuple(dict.fromkeys(ask.tenant for ask in self.asks))

    def members(self, request: str) -> tuple[str, ...]:
        """Return the requests that a name stands for: one, those of a crowd, or all."""
        if request in (EVERY, ANY):
            return tuple(ask.request for ask in self.asks)
        crowds = [s for s in self.steps if isinstance(s, Crowd) and s.request == request]
        return tuple(ask.request for ask in asks_of(tuple(crowds))) or (request,)

    def off(self, mode: Mode) -> frozenset[Guard]:
        """Return the guards that are off."""
        if mode is Mode.GUARDED:
            return frozenset()
        shadows = frozenset(self.shadows)
        return shadows if mode is Mode.ALONE else shadows | self.about

    def runs(self) -> tuple[Run, ...]:
        """Return how often it is carried out: where nothing shadows it, guarded *is* alone."""
        modes = [Mode.GUARDED] if self.shadows else []
        modes += [Mode.ALONE, Mode.OFF] if self.about else [Mode.ALONE]
        return tuple(Run(self, mode) for mode in modes)


@dataclass(frozen=True, slots=True)
class Run:
    """A drill, once.

    Args:
        drill: The drill.
        mode: Which guards are off.
    """

    drill: Drill
    mode: Mode

    @property
    def off(self) -> frozenset[Guard]:
        """The guards that are off."""
        return self.drill.off(self.mode)

    @property
    def title(self) -> str:
        """The run in words."""
        return f"{self.drill.name}, {without(self.off)}"

    def expected(self) -> str:
        """Say what must be seen."""
        if self.mode is Mode.GUARDED:
            return "nothing of another tenant"
        wanted = self.drill.shows if self.mode is Mode.OFF else self.drill.holds
        return "; ".join(map(str, wanted))


def without(off: frozenset[Guard]) -> str:
    """Say which guards are off."""
    if not off:
        return "all guards on"
    return "without any guard" if off == frozenset(Guard) else f"without {', '.join(sorted(off))}"
