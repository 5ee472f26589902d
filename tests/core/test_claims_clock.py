"""A used ticket stays used when the wall clock is set back; the boot clock has no say in it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvairlock.core.errors import Reason
from kvairlock.core.messages import RequestTicket
from kvairlock.core.protocol.claims import Claims
from kvairlock.core.terms import Claimant, Incarnation, NodeName
from tests.core.ends import World
from tests.core.ends_parts import GrantParcel, Kept, Request
from tests.core.ends_stages import PREFILL

FIRST = Claimant(NodeName("g"), Incarnation("g-1"), "n")
NOON_S, LAST_S = 1_000_000, 60
"""When a clock starts, and how long tickets last by it."""


def issued(world: World, name: str) -> Request:
    """A request whose ticket was issued now, by the wall clock as it is set."""
    request = world.make("alice", name, 6)
    fresh = replace(request.ticket, expires_unix_s=world.unix_s + LAST_S)
    return replace(request, ticket=fresh)


def used(number: int, at_unix_s: int) -> RequestTicket:
    """A ticket that was issued at a second of the wall clock."""
    ticket = World().make("alice", f"r{number}", 6).ticket
    return replace(ticket, expires_unix_s=at_unix_s + LAST_S)


@pytest.mark.parametrize("set_back_s", [0, 2, 20, 60, 3_600])
def test_a_used_ticket_is_never_admitted_again(set_back_s: int) -> None:
    """62 s later by the boot clock, another request makes the node forget what it may."""
    world = World()
    request = issued(world, "a")
    world.submit(request)
    world.complete(request)
    world.advance(62_000)
    world.set_back_s = set_back_s
    other = issued(world, "b")
    world.submit(other)
    world.complete(other)
    thief = world.make("alice", "thief", 6)
    world.submit(thief, ticket=request.ticket, digest=request.digest, nonce="thief")
    expected = Reason.EXPIRED if set_back_s < 2 else Reason.REPLAYED
    assert world.refusal(thief).reason is expected
    world.assert_baseline()


@pytest.mark.parametrize("set_back_s", [0, 2, 20, 60])
def test_what_was_forgotten_before_the_clock_was_set_back_stays_expired(set_back_s: int) -> None:
    world = World()
    request = issued(world, "a")
    world.submit(request)
    world.complete(request)
    world.advance(62_000)
    other = issued(world, "b")
    world.submit(other)
    world.complete(other)
    assert len(world.decode.machine.claims) == 1, "the first is forgotten"
    world.set_back_s = set_back_s
    thief = world.make("alice", "thief", 6)
    world.submit(thief, ticket=request.ticket, digest=request.digest, nonce="thief")
    assert world.refusal(thief).reason is Reason.EXPIRED
    later = issued(world, "c")
    world.submit(later)
    world.complete(later)
    world.assert_baseline()


def test_prefill_computes_no_grant_again_after_the_clock_was_set_back() -> None:
    kept = Kept()
    world = World()
    world.tamper[GrantParcel] = kept
    request = issued(world, "a")
    world.submit(request)
    world.complete(request)
    world.advance(62_000)
    world.set_back_s = 20
    other = issued(world, "b")
    world.submit(other)
    world.complete(other)
    parcel = kept.messages[0]
    presented = replace(parcel.granted.presented, now_unix_s=world.unix_s)
    again = GrantParcel(replace(parcel.granted, presented=presented), parcel.file)
    world.repeat(again, world.decode.peer, PREFILL)
    assert not world.prefill.machine.jobs
    assert world.prefill.counters["admitted"] == 2
    world.heal()
    world.assert_baseline()


def test_a_ticket_is_expired_once_its_like_was_forgotten() -> None:
    claims = Claims()
    first, later = used(1, NOON_S), used(2, NOON_S + 1)
    claims.remember(first, FIRST, NOON_S)
    claims.remember(used(3, NOON_S + 61), FIRST, NOON_S + 61)
    assert claims.claimant(first.owner.transfer) is None
    assert claims.has_expired(first, NOON_S)
    assert not claims.has_expired(later, NOON_S + 61), "it may be used in its last second"
    assert claims.has_expired(later, NOON_S + 62)


def test_a_forgotten_ticket_of_an_earlier_second_takes_nothing_back() -> None:
    """Tickets are not forgotten in the order of their ends: the latest end counts."""
    claims = Claims()
    late, early = used(1, NOON_S + 10), used(2, NOON_S)
    for ticket in (late, early):
        claims.remember(ticket, FIRST, NOON_S + 10)
    claims.remember(used(3, NOON_S + 100), FIRST, NOON_S + 100)
    assert len(claims) == 1
    assert claims.has_expired(late, NOON_S)
    assert claims.has_expired(early, NOON_S)


def test_what_is_remembered_is_bounded_also_while_the_clock_is_behind() -> None:
    """One ticket a second for ten minutes; the clock is set back by 50 s after each two."""
    claims, most = Claims(), 0
    clock_s = NOON_S
    for number in range(600):
        if number and number % 120 == 0:
            clock_s -= 50
        clock_s += 1
        claims.remember(used(number, clock_s), FIRST, clock_s)
        most = max(most, len(claims))
    assert LAST_S < most <= 2 * (LAST_S + 1)
