"""Waivers: what may be checked less than in full, where, until when, and who answers for it.

    UNSEEN --first look--> IN_FORCE --its time is up--> EXPIRED
       +---------------its time is up already-------------^

A waiver is the only way to reduce a check outside drills. It expires by itself, by the wall clock,
and for good: a clock that is set back revives none in the life of a process.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from kvairlock.core.checks import FULL, CheckPolicy, Checks
from kvairlock.core.guards import Guard, GuardMode, GuardSet, Relaxed
from kvairlock.core.terms import Route


class WaiverState(StrEnum):
    """Where a waiver is in its life."""

    UNSEEN = "unseen"
    IN_FORCE = "in_force"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True)
class Waiver:
    """One waiver.

    Args:
        name: Its name.
        guards: Guards that only observe while it is in force.
        checks: What `integrity` still digests meanwhile; full leaves that as it is.
        routes: Where; each route is named.
        conditions: Under which conditions it may be used.
        owner: The team or role that answers for it.
        expires_unix_s: The second from which on it is worth nothing.
        evidence: What must be seen before it may be widened.
    """

    name: str
    guards: frozenset[Guard]
    checks: Checks
    routes: tuple[Route, ...]
    conditions: str
    owner: str
    expires_unix_s: int
    evidence: str

    @property
    def relaxes(self) -> tuple[Relaxed, ...]:
        """What it relaxes, route by route."""
        return tuple(one for route in self.routes for one in self._on(route))

    def _on(self, route: Route) -> Iterable[Relaxed]:
        for guard in sorted(self.guards):
            yield Relaxed(route, guard, GuardMode.OBSERVING, FULL, self.name)
        if self.checks.policy is not CheckPolicy.FULL:
            yield Relaxed(route, Guard.INTEGRITY, GuardMode.ENFORCING, self.checks, self.name)


class Waivers:
    """The waivers of a stack, as one process sees them in its life.

    Args:
        waivers: All of them.
    """

    def __init__(self, waivers: Iterable[Waiver]) -> None:
        self.states = dict.fromkeys(waivers, WaiverState.UNSEEN)

    @property
    def in_force(self) -> tuple[Waiver, ...]:
        """Those that are in force."""
        return tuple(w for w, state in self.states.items() if state is WaiverState.IN_FORCE)

    def look(self, now_unix_s: int) -> tuple[Waiver, ...]:
        """Look at the clock; return the waivers whose state has changed.

        Args:
            now_unix_s: The wall clock.
        """
        changed = tuple(w for w in self.states if self._state(w, now_unix_s) != self.states[w])
        for waiver in changed:
            self.states[waiver] = self._state(waiver, now_unix_s)
        return changed

    def guards(self, off: frozenset[Guard]) -> GuardSet:
        """Return how all guards are set now.

        Args:
            off: The guards that are disabled (drills).
        """
        return GuardSet(off, tuple(one for waiver in self.in_force for one in waiver.relaxes))

    def _state(self, waiver: Waiver, now_unix_s: int) -> WaiverState:
        expired = self.states[waiver] is WaiverState.EXPIRED
        if expired or now_unix_s >= waiver.expires_unix_s:
            return WaiverState.EXPIRED
        return WaiverState.IN_FORCE
