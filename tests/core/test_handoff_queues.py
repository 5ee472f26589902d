"""Who waits, in which order, and what is said to those who wait in vain."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvairlock.core.errors import Reason
from kvairlock.core.terms import (
    LandingPolicy,
)
from tests.core.ends import World
from tests.core.ends_parts import (
    DECODE_LIMITS,
    Setup,
)

COPY, SEAL, DIRECT = LandingPolicy.COPY, LandingPolicy.SEAL, LandingPolicy.DIRECT


def test_tenants_that_ask_for_once_are_served_in_the_order_of_arrival() -> None:
    world = World(Setup(decode_pages=4))
    world.settle()
    first = world.ask("alice", "a", 8)
    second, third = world.ask("bob", "b", 8), world.ask("carol", "c", 2, max_tokens=1)
    world.settle()
    assert [world.is_running(r) for r in (first, second, third)] == [True, False, False]
    assert world.decode.machine.queue.heads() == [second.transfer, third.transfer]
    world.complete(first)
    assert world.is_running(second)
    world.heal()
    world.assert_baseline()


def test_a_tenant_at_its_share_does_not_block_those_behind_it() -> None:
    world = World(Setup(tenant_pages=2))
    first, second = world.ask("alice", "a", 8), world.ask("alice", "b", 8)
    other = world.ask("bob", "c", 8)
    world.deliver_all()
    assert second.transfer in world.decode.machine.queue
    assert set(world.prefill.computing) == {first.transfer, other.transfer}
    world.settle()
    assert all(world.is_running(r) for r in (first, second, other))
    world.heal()
    world.assert_baseline()


@pytest.mark.parametrize(
    ("tenant", "reason", "limit_name"),
    [
        ("carol", Reason.CAPACITY, "queue_max"),
        ("bob", Reason.TENANT_SHARE, "tenant_queue_places"),
    ],
    ids=["by others", "by itself"],
)
def test_a_queue_that_is_full_refuses_with_its_figures(
    tenant: str, reason: Reason, limit_name: str
) -> None:
    limits = replace(DECODE_LIMITS, queue_max=1)
    world = World(Setup(decode_pages=3, decode_limits=limits))
    running, waiting = world.ask("alice", "a", 8), world.ask("bob", "b", 8)
    refusal = world.refusal(world.ask(tenant, "c", 8))
    assert (refusal.reason, refusal.limit_name) == (reason, limit_name)
    assert (refusal.asked, refusal.limit) == (2, 1)
    world.settle()
    world.complete(running)
    world.complete(waiting)
    world.assert_baseline()


def test_who_waits_behind_a_drain_is_told_so() -> None:
    world = World(Setup(policy=DIRECT, decode_pages=3))
    left = world.ask("mallory", "m", 8)
    world.deliver_all()
    world.prefill.compute(left.transfer)
    world.prefill.write_piece(left.transfer)
    world.cancel(left)
    waiting = world.ask("alice", "a", 8)
    world.advance(DECODE_LIMITS.queue_ms)
    refusal = world.refusal(waiting)
    assert (refusal.reason, refusal.row.http_status) == (Reason.DRAINING, 503)
    world.heal()
    world.assert_baseline()
