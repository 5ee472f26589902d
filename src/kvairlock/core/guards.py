"""The registry of guards: one literal table, each row a guard that can be switched off in drills.

A guard whose removal changes nothing is not a guard: for each row a test switches it off and shows
the leak, and a node refuses to start with any of them off outside drill mode.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from kvairlock.core.terms import Role


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


@dataclass(frozen=True, slots=True)
class GuardRow:
    """What a guard does, where, and what appears without it."""

    roles: tuple[Role, ...]
    does: str
    without: str


_G, _P, _D = Role.GATEWAY, Role.PREFILL, Role.DECODE

GUARDS: dict[Guard, GuardRow] = {
    Guard.STRIP: GuardRow(
        (_G,),
        "drops transfer parameters that a client sends",
        "a client can present another tenant's ticket",
    ),
    Guard.CONTRACT: GuardRow(
        (_G,),
        "refuses what no reachable route can hold",
        "an over-long request reaches the nodes",
    ),
    Guard.FRAME: GuardRow(
        (_G, _P, _D),
        "authenticates every message between processes",
        "a forged receipt is believed",
    ),
    Guard.TICKET: GuardRow(
        (_P, _D),
        "checks signature, expiry, tenant and input of the request ticket",
        "a ticket works for another tenant or another input",
    ),
    Guard.CLAIMANT: GuardRow(
        (_D,),
        "lets one claimant use a ticket, once",
        "a stolen ticket reads the pages of the request that it named",
    ),
    Guard.CAPACITY: GuardRow(
        (_P, _D),
        "refuses what the measured pool can never hold",
        "a rejected prompt is computed on placeholder input and reported, or blocks the queue",
    ),
    Guard.SHARE: GuardRow(
        (_D,),
        "caps the landing and draining pages of one tenant",
        "a tenant that cancels pins the memory of all",
    ),
    Guard.SCOPE: GuardRow(
        (_P,),
        "shares prefixes only inside the declared scope",
        "one tenant's pages serve another tenant's request",
    ),
    Guard.TAIL: GuardRow(
        (_P, _D),
        "zeroes the unused slots of the last page when it is sealed and when it is admitted",
        "bytes of an earlier owner travel in the tail",
    ),
    Guard.OUTCOME: GuardRow(
        (_D,),
        "takes only a completed outcome as completion",
        "a rejected prefill is decoded",
    ),
    Guard.IDENTITY: GuardRow(
        (_D,),
        "compares tenant, request and attempt with the expectation",
        "the receipt of another attempt admits pages",
    ),
    Guard.INPUT: GuardRow(
        (_D,),
        "compares the digest of what was computed with what was asked",
        "the cache of another prompt is decoded",
    ),
    Guard.LAYOUT: GuardRow(
        (_D,),
        "compares model, dtype and page geometry",
        "bytes of another layout are read as keys and values",
    ),
    Guard.PAGE_INDEX: GuardRow(
        (_D,),
        "compares the page list, in order",
        "pages are admitted in another order, twice or not at all",
    ),
    Guard.RANGE: GuardRow(
        (_D,),
        "compares the computed token range with the prompt's length",
        "pages that nobody wrote are read",
    ),
    Guard.GENERATION: GuardRow(
        (_D,),
        "compares the generations of the granted pages with the pool's own",
        "a receipt of an ended window admits new pages",
    ),
    Guard.INTEGRITY: GuardRow(
        (_D,),
        "compares the page digests with digests of what landed",
        "torn or overwritten bytes are read",
    ),
    Guard.MAPPING: GuardRow(
        (_D,),
        "checks owner, stage and generation of every page before each step",
        "a stale page table reads the next owner's pages",
    ),
    Guard.DRAIN: GuardRow(
        (_P, _D),
        "keeps pages until every reader and writer is proven gone",
        "a late write lands in the next owner's pages",
    ),
    Guard.SCRUB: GuardRow(
        (_P, _D),
        "zeroes pages after the fence, before they are free",
        "the next owner finds the former content",
    ),
}


@dataclass(frozen=True, slots=True)
class GuardSet:
    """Which guards are off; all others enforce."""

    off: frozenset[Guard] = frozenset()

    def on(self, guard: Guard) -> bool:
        """Return whether `guard` enforces."""
        return guard not in self.off

    @property
    def all_on(self) -> bool:
        """Whether every guard enforces."""
        return not self.off


ALL_GUARDS = GuardSet()
