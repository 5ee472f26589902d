"""Brings a read to its middle: one of two pages has landed when something happens to it."""

from __future__ import annotations

from dataclasses import replace

from kvairlock.core.guards import Guard
from kvairlock.core.terms import Reader
from tests.core.ends_parts import Request
from tests.core.pull.pulls import BORROWER_LIMITS, LENDER_LIMITS, PullSetup, PullWorld

PATIENT = replace(BORROWER_LIMITS, landing_ms=60_000)
SMALL = PullSetup(
    prefill_pages=2,
    borrower_limits=PATIENT,
    lender_limits=replace(LENDER_LIMITS, verdict_ms=500),
)
TRUSTING = replace(SMALL, reader=Reader.TRUSTING)


def off(*guards: Guard) -> frozenset[Guard]:
    return frozenset(guards)


def begun(setup: PullSetup) -> tuple[PullWorld, Request]:
    """A read of two pages of which one has landed."""
    world = PullWorld(setup)
    request = world.ask("alice", "a", 6)
    world.deliver_all()
    world.decode.read_piece(request.transfer)
    return world, request
