"""Large random worlds: every parameter is drawn, so that no choice of ours hides anything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from kvairlock.core.protocol.prefill.job import PrefillLimits
from kvairlock.core.terms import LandingPolicy, Reader
from kvairlock.sim.setup import DECODE_LIMITS, PREFILL_LIMITS, Ask, Direction, Flaw, Setup, Theft
from kvairlock.sim.state import Budget, Kind

TENANTS = ("alice", "bob", "carol", "dave")
FLAWS = (*(flaw for flaw in Flaw if flaw not in (Flaw.NONE, Flaw.IDLE)), Flaw.EARLY, Flaw.EARLY)
"""Without the one that no check can know: an engine that computes nothing and says it did. Reports
that come too early are drawn more often: what they bring about is rare."""
FLAWED = 0.25
"""Share of requests with which prefill does something wrong."""


def draw_setup(rng: Random) -> Setup:
    """Draw a world."""
    decodes, prefills = rng.choice((1, 1, 2)), rng.choice((1, 1, 2, 3))
    page_tokens = rng.randint(1, 4)
    decode_pages, prefill_pages = rng.randint(4, 12), rng.randint(3, 12)
    tenant_pages = rng.randint(2, 6)
    most = page_tokens * min(decode_pages - 1, prefill_pages, tenant_pages)
    asks = draw_asks(rng, most, decodes, prefills)
    return Setup(
        asks=asks,
        direction=rng.choice(tuple(Direction)),
        page_tokens=page_tokens,
        prefill_pages=prefill_pages,
        decode_pages=decode_pages,
        tenant_pages=tenant_pages,
        policy=rng.choice((LandingPolicy.COPY, LandingPolicy.SEAL, LandingPolicy.DIRECT)),
        reader=rng.choice(tuple(Reader)),
        decode_limits=replace(
            DECODE_LIMITS,
            landing_pages=rng.randint(tenant_pages, 12),
            queue_max=rng.randint(1, 8),
            windows_max=rng.randint(1, 6),
            recompute_tokens_per_min=rng.choice((0, 8, 64)),
        ),
        prefill_limits=PrefillLimits(PREFILL_LIMITS.verdict_ms, rng.randint(0, 4)),
        deaf_engine=rng.random() < 0.2,
        copies=rng.random() < 0.3,
        slow_scrubs=rng.random() < 0.5,
        decodes=decodes,
        prefills=prefills,
    )


def draw_asks(rng: Random, most: int, decodes: int, prefills: int) -> tuple[Ask, ...]:
    """Draw the requests of a world.

    Args:
        rng: What to draw from.
        most: Tokens of the longest prompt that fits.
        decodes: How many decode nodes there are.
        prefills: How many prefill nodes.
    """
    tenants = TENANTS[: rng.randint(2, len(TENANTS))]
    asks: list[Ask] = []
    for number in range(rng.randint(3, 12)):
        tenant = tenants[number] if number < 2 else rng.choice(tenants)
        tokens = rng.randint(1, most) if rng.random() < 0.95 else most * 3
        scope = rng.choice(("", tenant, "team"))
        ask = Ask(
            tenant=tenant,
            request=f"{tenant[0]}{number}",
            tokens=tokens,
            max_tokens=rng.randint(1, 3),
            scope=scope,
            content=rng.choice((0, 0, tokens)),
            flaw=rng.choice(FLAWS) if rng.random() < FLAWED else Flaw.NONE,
            decode=rng.randrange(decodes),
            prefill=rng.randrange(prefills),
        )
        asks.append(ask)
        if rng.random() < 0.2:
            asks.append(replace(ask, attempt=2, flaw=Flaw.NONE))
        if rng.random() < 0.08:
            asks.append(_thief(rng, asks, ask, number))
    return tuple(asks)


def _thief(rng: Random, asks: Sequence[Ask], victim: Ask, number: int) -> Ask:
    other = next(name for name in TENANTS if name != victim.tenant)
    return Ask(
        tenant=other,
        request=f"thief{number}",
        tokens=victim.tokens,
        stolen=victim.transfer,
        theft=rng.choice(tuple(Theft)),
        decode=victim.decode,
        prefill=victim.prefill,
    )


def draw_budget(rng: Random, setup: Setup) -> Budget:
    """Draw how many faults of each kind may happen.

    Where windows are the pool itself, a lost word of a writer pins pages until its process ends,
    and a late copy of a write has nothing in its way: there the transport is reliable.
    """
    reliable = setup.policy is LandingPolicy.DIRECT and setup.direction is Direction.PUSH

    def some(most: int) -> int:
        return rng.choice((0, rng.randint(0, most)))

    return Budget(
        crashes=some(2),
        drops=0 if reliable else some(3),
        duplicates=some(3),
        reorders=some(3),
        suspensions=some(2),
        timeouts=some(4),
        cancels=some(5),
        cuts=some(2),
        forgeries=some(2),
        copies=0 if reliable else some(2),
    )


def draw_weights(rng: Random) -> dict[Kind, float]:
    """Draw how eager each kind of move is: some runs starve one, some rush another."""
    return {kind: rng.choice((0.1, 1.0, 1.0, 4.0)) for kind in Kind}
