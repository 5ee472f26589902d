"""The registry of guards: one literal table, each row a guard, and how each is set on a route.

    enforcing   what the guard finds is refused
    observing   what it finds is recorded, and let pass: under a waiver, and only for a comparison
    disabled    it is not looked for at all: in drills only

A guard whose removal changes nothing is not a guard: for each row a test switches it off and shows
the leak, and a node refuses to start with any of them off outside drill mode.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import reduce

from kvairlock.core.checks import FULL, OFF, CheckPolicy, Checks, weaker
from kvairlock.core.terms import Role, Route


class Guard(StrEnum):
    """Names of the guards, in the order in which a request meets them."""

    STRIP = "strip"
    CONTRACT = "contract"
    FRAME = "frame"
    TICKET = "ticket"
    CLAIMANT = "claimant"
    CAPACITY = "capacity"
    SHARE = "share"
    SCOPE = "scope"
    TAIL = "tail"
    OUTCOME = "outcome"
    IDENTITY = "identity"
    INPUT = "input"
    LAYOUT = "layout"
    PAGE_INDEX = "page_index"
    RANGE = "range"
    GENERATION = "generation"
    INTEGRITY = "integrity"
    MAPPING = "mapping"
    DRAIN = "drain"
    SCRUB = "scrub"


class GuardMode(StrEnum):
    """How a guard is set on a route, the strictest first."""

    ENFORCING = "enforcing"
    OBSERVING = "observing"
    DISABLED = "disabled"


class Nature(StrEnum):
    """What a guard is made of, and so whether it can only observe."""

    COMPARISON = "comparison"
    """It finds that something is not as it must be: that can be recorded and let pass."""
    ACTION = "action"
    """It does something. Not doing it finds nothing, so there is nothing to be observed."""
    AUTHENTICATION = "authentication"
    """It makes known who speaks: all that others find rests on it."""


@dataclass(frozen=True, slots=True)
class GuardRow:
    """One guard.

    Args:
        roles: Where it is.
        does: What it does.
        without: What appears without it.
        nature: Whether it compares or acts; only what compares can observe.
        observing: What goes on while it only observes; of an action, why it cannot.
    """

    roles: tuple[Role, ...]
    does: str
    without: str
    nature: Nature
    observing: str

    @property
    def can_observe(self) -> bool:
        """Whether a waiver may have it observe."""
        return self.nature is Nature.COMPARISON


_G, _P, _D = Role.GATEWAY, Role.PREFILL, Role.DECODE
_COMPARISON, _ACTION, _AUTHENTICATION = Nature

GUARDS: dict[Guard, GuardRow] = {
    Guard.STRIP: GuardRow(
        (_G,),
        "drops transfer parameters that a client sends",
        "a client can present another tenant's ticket",
        _ACTION,
        "nothing that a client sends may ever steer a transfer: there is nothing to let pass",
    ),
    Guard.CONTRACT: GuardRow(
        (_G,),
        "refuses what no reachable route can hold",
        "an over-long request reaches the nodes",
        _COMPARISON,
        "the request goes to a route, whose nodes judge it by what they hold",
    ),
    Guard.FRAME: GuardRow(
        (_G, _P, _D),
        "authenticates every message between processes",
        "a forged receipt is believed",
        _AUTHENTICATION,
        "who speaks, and so about which route, is known by nothing else",
    ),
    Guard.TICKET: GuardRow(
        (_P, _D),
        "checks signature, expiry, tenant and input of the request ticket",
        "a ticket works for another tenant or another input",
        _COMPARISON,
        "another tenant, input, receiver or time passes; a signature that is wrong never does",
    ),
    Guard.CLAIMANT: GuardRow(
        (_D,),
        "lets one claimant use a ticket, once",
        "a stolen ticket reads the pages of the request that it named",
        _COMPARISON,
        "a second claimant reads what the first was given",
    ),
    Guard.CAPACITY: GuardRow(
        (_P, _D),
        "refuses what the measured pool can never hold",
        "a rejected prompt is computed on placeholder input and reported, or blocks the queue",
        _COMPARISON,
        "what never fits waits alone, for its deadline; prefill states a rejected placeholder",
    ),
    Guard.SHARE: GuardRow(
        (_D,),
        "caps the landing and draining pages of one tenant",
        "a tenant that cancels pins the memory of all",
        _COMPARISON,
        "a tenant over its share is given pages like any other",
    ),
    Guard.SCOPE: GuardRow(
        (_P,),
        "shares prefixes only inside the declared scope",
        "one tenant's pages serve another tenant's request",
        _ACTION,
        "the scope is part of the key that pages are found by: nothing outside of it is looked up",
    ),
    Guard.TAIL: GuardRow(
        (_P, _D),
        "zeroes the unused slots of the last page when it is sealed and when it is admitted",
        "bytes of an earlier owner travel in the tail",
        _ACTION,
        "it zeroes bytes, and compares none",
    ),
    Guard.OUTCOME: GuardRow(
        (_D,),
        "takes only a completed outcome as completion",
        "a rejected prefill is decoded",
        _COMPARISON,
        "a receipt of another outcome is judged as one of completion",
    ),
    Guard.IDENTITY: GuardRow(
        (_D,),
        "compares tenant, request and attempt with the expectation",
        "the receipt of another attempt admits pages",
        _COMPARISON,
        "a receipt of another request, window or node is judged as the one that is due",
    ),
    Guard.INPUT: GuardRow(
        (_D,),
        "compares the digest of what was computed with what was asked",
        "the cache of another prompt is decoded",
        _COMPARISON,
        "the cache of another prompt may become readable",
    ),
    Guard.LAYOUT: GuardRow(
        (_D,),
        "compares model, dtype and page geometry",
        "bytes of another layout are read as keys and values",
        _COMPARISON,
        "bytes of another layout may become readable",
    ),
    Guard.PAGE_INDEX: GuardRow(
        (_D,),
        "compares the page list, in order",
        "pages are admitted in another order, twice or not at all",
        _COMPARISON,
        "pages in another order, or fewer, may become readable",
    ),
    Guard.RANGE: GuardRow(
        (_D,),
        "compares the computed token range with the prompt's length",
        "pages that nobody wrote are read",
        _COMPARISON,
        "pages that nobody wrote may become readable",
    ),
    Guard.GENERATION: GuardRow(
        (_D,),
        "compares the generations of the granted pages with the pool's own",
        "a receipt of an ended window admits new pages",
        _COMPARISON,
        "pages with a receipt of their former use may become readable",
    ),
    Guard.INTEGRITY: GuardRow(
        (_D,),
        "compares the page digests with digests of what landed",
        "torn or overwritten bytes are read",
        _COMPARISON,
        "torn bytes become readable; they never count as verified",
    ),
    Guard.MAPPING: GuardRow(
        (_D,),
        "checks owner, stage and generation of every page before each step",
        "a stale page table reads the next owner's pages",
        _COMPARISON,
        "a step reads through a page table that is stale",
    ),
    Guard.DRAIN: GuardRow(
        (_P, _D),
        "keeps pages until every reader and writer is proven gone",
        "a late write lands in the next owner's pages",
        _ACTION,
        "it waits for evidence, and what was freed without it cannot be taken back",
    ),
    Guard.SCRUB: GuardRow(
        (_P, _D),
        "zeroes pages after the fence, before they are free",
        "the next owner finds the former content",
        _ACTION,
        "it zeroes bytes, and compares none",
    ),
}


@dataclass(frozen=True, slots=True)
class Relaxed:
    """One guard that does not enforce on a route, or whose check is reduced there.

    Args:
        route: Where.
        guard: Which guard.
        mode: How it is set.
        checks: What `integrity` still digests; full of every other guard.
        waiver: The waiver that allows it; empty in drills.
    """

    route: Route
    guard: Guard
    mode: GuardMode
    checks: Checks
    waiver: str

    def __str__(self) -> str:
        """Return it as records have it, for example `p/d integrity observing: pilot`."""
        how = str(self.mode)
        if self.checks.policy is not CheckPolicy.FULL:
            how += f" {self.checks}"
        return f"{self.route} {self.guard} {how}: {self.waiver or 'drill'}"


@dataclass(frozen=True, slots=True)
class GuardSet:
    """How all guards are set; what is not named here enforces, on every route.

    Args:
        off: Guards that are disabled, on all routes and for the whole life of a process (drills).
        relaxed: What waivers that are in force relax.
    """

    off: frozenset[Guard] = frozenset()
    relaxed: tuple[Relaxed, ...] = ()

    def on(self, guard: Guard) -> bool:
        """Return whether `guard` is not disabled: an action is then done, whatever the route."""
        return guard not in self.off

    def mode(self, guard: Guard, route: Route) -> GuardMode:
        """Return how a comparison is set on a route."""
        if guard in self.off:
            return GuardMode.DISABLED
        observing = (r for r in self.relaxed if r.mode is GuardMode.OBSERVING)
        if any(r.guard is guard and r.route == route for r in observing):
            return GuardMode.OBSERVING
        return GuardMode.ENFORCING

    def weakest(self, route: Route) -> GuardMode:
        """Return how the weakest guard of a route is set."""
        if self.off:
            return GuardMode.DISABLED
        if any(r.mode is GuardMode.OBSERVING and r.route == route for r in self.relaxed):
            return GuardMode.OBSERVING
        return GuardMode.ENFORCING

    def checks(self, route: Route) -> Checks:
        """Return what `integrity` digests of what lands on a route."""
        if Guard.INTEGRITY in self.off:
            return OFF
        return reduce(weaker, (r.checks for r in self.relaxed if r.route == route), FULL)

    def not_enforcing(self, routes: Iterable[Route]) -> tuple[Relaxed, ...]:
        """Return all that is relaxed on some routes, guards that are disabled among it."""
        wanted = tuple(routes)
        disabled = tuple(
            Relaxed(route, guard, GuardMode.DISABLED, FULL, "")
            for route in wanted
            for guard in sorted(self.off)
        )
        return disabled + tuple(r for r in self.relaxed if r.route in wanted)

    @property
    def all_on(self) -> bool:
        """Whether no guard is disabled."""
        return not self.off


ALL_GUARDS = GuardSet()
