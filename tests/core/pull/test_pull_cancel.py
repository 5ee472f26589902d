"""A client that leaves before its pages are claimed frees them; afterwards decode hears of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvairlock.core.ends import End
from kvairlock.core.errors import Reason, Stage
from kvairlock.core.events import Told
from kvairlock.core.messages import Cancel
from kvairlock.core.protocol.pull.loans import LoanStage
from kvairlock.core.terms import Fence, Incarnation, NodeName, Peer, Reader
from tests.core.ends_parts import GATEWAY, Request
from tests.core.pull.pulls import PullSetup, PullWorld

LEFT = (Reason.CANCELLED, Stage.GATEWAY)
SMALL = PullSetup(prefill_pages=2)
MOMENTS = ("asked", "computing", "digesting", "offered")


def brought_to(moment: str) -> tuple[PullWorld, Request]:
    """A prompt of both pages of its lender, at a moment before its pages are claimed."""
    world = PullWorld(SMALL)
    world.manual.add("digest")
    request = world.order(world.make("alice", "a", 6))
    if moment != "asked":
        world.lender.compute_begin(request.transfer)
    if moment in {"digesting", "offered"}:
        world.lender.compute_end(request.transfer)
    if moment == "offered":
        world.run("digest")
        assert world.lender.machine.loans[request.transfer].stage is LoanStage.OFFERED
    return world, request


def leave(world: PullWorld, request: Request, gateway: Peer = GATEWAY) -> None:
    """The client leaves, and its gateway says so to the lender."""
    world.lender.tell(Told(gateway, Cancel(request.transfer)))


@pytest.mark.parametrize("moment", MOMENTS)
def test_the_next_tenant_has_the_pages_of_a_client_that_left(moment: str) -> None:
    """No time passes: nothing waits for the offer's end."""
    world, request = brought_to(moment)
    leave(world, request)
    (ended,) = world.events(world.lender, "request_ended", request)
    assert (ended["end"], ended["reason"]) == (End.CANCELLED, Reason.CANCELLED)
    other = world.order(world.make("bob", "b", 6))
    world.manual.clear()
    world.settle()
    assert other.transfer in world.offers
    assert request.transfer not in world.lender.machine.loans
    world.complete(world.refer(other))
    world.heal()
    world.assert_baseline()


@pytest.mark.parametrize("moment", MOMENTS[:3])
def test_what_was_not_offered_is_declined(moment: str) -> None:
    world, request = brought_to(moment)
    leave(world, request)
    refusal = world.lender.declined[request.transfer]
    assert (refusal.reason, refusal.stage) == LEFT
    world.heal()
    world.assert_baseline()


def test_an_offer_is_taken_back_and_can_not_be_claimed_any_more() -> None:
    world, request = brought_to("offered")
    leave(world, request)
    (revoked,) = world.events(world.lender, "pages_revoked", request)
    assert (revoked["claim"], revoked["reason"]) == ("", Reason.CANCELLED)
    assert world.lender.machine.books.drain.fences[Fence.LOCAL] == 1
    world.refer(request)
    world.deliver_all()
    assert not world.lender.machine.loans
    assert world.refusal(request).reason is Reason.TIMEOUT
    assert not world.reads
    world.heal()
    world.assert_baseline()


@pytest.mark.parametrize("reader", Reader)
def test_a_claimed_loan_is_its_readers_to_end(reader: Reader) -> None:
    world = PullWorld(replace(SMALL, reader=reader))
    request = world.ask("alice", "a", 6)
    world.deliver_all()
    leave(world, request)
    assert world.lender.machine.loans[request.transfer].stage is LoanStage.CLAIMED
    assert world.lender.counters["ignored"] == 1
    world.complete(request)
    world.heal()
    world.assert_baseline()


@pytest.mark.parametrize(
    "other",
    [
        replace(GATEWAY, incarnation=Incarnation("g-0")),
        replace(GATEWAY, node=NodeName("h")),
    ],
    ids=["another life", "another gateway"],
)
@pytest.mark.parametrize("moment", MOMENTS)
def test_only_the_gateway_that_asked_may_say_so(moment: str, other: Peer) -> None:
    world, request = brought_to(moment)
    leave(world, request, other)
    assert request.transfer in world.lender.machine.jobs
    assert world.lender.counters["ignored"] == 1
    world.manual.clear()
    world.settle()
    world.complete(world.refer(request))
    world.heal()
    world.assert_baseline()


def test_a_client_of_whom_nothing_is_known_changes_nothing() -> None:
    world, request = brought_to("offered")
    leave(world, request)
    leave(world, request)
    assert len(world.events(world.lender, "request_ended", request)) == 1
    assert world.lender.counters["ignored"] == 1
    world.heal()
    world.assert_baseline()


def test_a_used_ticket_is_not_computed_again_after_the_clock_was_set_back() -> None:
    """The lender's half of `tests.core.test_claims_clock`."""
    world = PullWorld()
    request = world.ask("alice", "a", 6)
    world.complete(request)
    world.heal()
    world.advance(62_000)
    world.set_back_s = 20
    other = world.make("alice", "b", 6)
    fresh = replace(other.ticket, expires_unix_s=world.unix_s + 60)
    world.order(other, ticket=fresh)
    world.order(request, nonce="thief")
    assert world.lender.declined[request.transfer].reason is Reason.REPLAYED
    world.heal()
    world.assert_baseline()
