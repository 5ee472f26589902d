"""Decode is the writer of its own pages: they wait for its own read, whatever else has ended."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvairlock.core.ends import End
from kvairlock.core.errors import Reason
from kvairlock.core.events import PeerGone, PeerUp
from kvairlock.core.guards import Guard
from kvairlock.core.messages import Release, Validate, Validated
from kvairlock.core.terms import Fence, Incarnation, NodeName, TransferId
from tests.core.ends_parts import Request
from tests.core.pull.pulls import BORROWER_LIMITS, PullSetup, PullWorld
from tests.core.pull.pulls_stages import begun, off


def cancelled_in_the_middle(off_decode: frozenset[Guard]) -> tuple[PullWorld, Request, Request]:
    """A read whose client left, then another tenant on the pages, if they are free."""
    world, request = begun(PullSetup(decode_pages=2, off_decode=off_decode))
    world.cancel(request)
    world.deliver_all()
    other = world.ask("bob", "b", 6)
    world.deliver_all()
    if other.transfer in {r.effect.transfer for r in world.decode.reading}:
        world.decode.read_all(other.transfer)
        world.deliver_all()
    world.decode.read_all(request.transfer)
    return world, request, other


def test_own_pages_stay_until_the_read_is_terminal_whatever_the_client_did() -> None:
    world, request = begun(PullSetup())
    pool = world.decode.machine.books.pool
    free = pool.pages_free
    world.cancel(request)
    world.deliver_all()
    assert world.ended(request).end is End.CANCELLED
    assert not world.in_flight(Release), "a claim is not given back while it is read"
    world.advance(60_000)
    assert pool.pages_free == free, "time frees nothing"
    assert len(world.decode.machine.windows) == 1
    world.decode.read_all(request.transfer)
    assert pool.pages_free == pool.pages
    (fenced,) = world.events(world.decode, "window_fenced", request)
    assert (fenced["fence"], fenced["wait_ms"]) == (Fence.ACKNOWLEDGED, 60_000)
    world.heal()
    world.assert_baseline()


def test_the_next_tenant_waits_for_a_cancelled_read() -> None:
    world, _, other = cancelled_in_the_middle(off())
    world.heal()
    assert world.ended(other).end is End.COMPLETED
    assert not world.leaks
    assert not world.corruptions
    world.assert_baseline()


def test_without_the_drain_a_cancelled_read_lands_in_the_next_tenants_pages() -> None:
    world, request, other = cancelled_in_the_middle(off(Guard.DRAIN))
    world.decode.step()
    assert world.leaks == {(other.transfer, request.transfer)}


@pytest.mark.parametrize("trouble", ["cancel", "timeout", "lose", "kill"])
def test_a_read_that_nobody_waits_for_ends_before_its_pages_do(trouble: str) -> None:
    world, request = begun(PullSetup())
    pool = world.decode.machine.books.pool
    match trouble:
        case "cancel":
            world.cancel(request)
        case "timeout":
            world.advance(3_000)
        case "lose":
            world.lose("p")
        case "kill":
            world.kill("p")
    reason = {"cancel": "cancelled", "timeout": "timeout"}.get(trouble, "peer_lost")
    assert world.refusal(request).reason == reason
    assert pool.pages_free == pool.pages - 2
    assert not world.in_flight(Release)
    world.decode.read_all(request.transfer)
    assert pool.pages_free == pool.pages
    if trouble == "lose":
        assert world.decode.machine.loans, "the lender is told as soon as it is there"
        world.join("p")
        world.heal()
        world.assert_baseline()
    assert not world.decode.reading
    assert len(world.decode.machine.windows) == 0


# Lenders that restart, and recovery


def test_a_lender_that_restarts_between_claim_and_answer_knows_nothing() -> None:
    world, request = begun(PullSetup())
    world.kill("p")
    world.start_prefill("p")
    assert world.refusal(request).reason is Reason.PEER_LOST
    world.decode.read_all(request.transfer)
    assert not world.decode.machine.loans, "what the former life held has ended with it"
    question = Validate(request.transfer, "c1")
    world.repeat(question, world.decode.peer, world.lender.peer.node)
    (answer,) = world.in_flight(Validated)
    assert answer.refusal is not None
    world.heal()
    world.assert_baseline()


def test_an_answer_of_the_next_life_is_not_about_this_claim() -> None:
    world, request = begun(PullSetup())
    world.kill("p")
    world.start_prefill("p")
    yes = Validated(request.transfer, "c1", None)
    world.repeat(yes, world.lender.peer, world.decode.peer.node)
    assert not world.is_running(request)
    world.decode.read_all(request.transfer)
    world.heal()
    world.assert_baseline()


def test_an_answer_of_another_node_or_about_another_claim_is_no_answer() -> None:
    world, request = begun(PullSetup(prefills=("p", "q")))
    world.decode.read_all(request.transfer)
    other = world.lenders[NodeName("q")].peer
    for sender, nonce in ((other, "c1"), (world.lender.peer, "c2")):
        answer = Validated(request.transfer, nonce, None)
        world.repeat(answer, sender, world.decode.peer.node)
        assert not world.is_running(request)
    world.complete(request)


@pytest.mark.parametrize("news", ["gone", "up"])
def test_a_lender_whose_end_is_heard_of_first_is_not_waited_for(news: str) -> None:
    """The end of a process, or its next life, may be known before its link is given up."""
    world, request = begun(PullSetup())
    lender = world.lender.peer
    next_life = replace(lender, incarnation=Incarnation("p-9"))
    event = PeerGone(lender) if news == "gone" else PeerUp(next_life)
    world.decode.tell(event)
    assert world.refusal(request).reason is Reason.PEER_LOST
    pool = world.decode.machine.books.pool
    assert pool.pages_free == pool.pages - 2, "its end says nothing about our read"
    assert len(world.decode.machine.windows) == 1
    world.decode.read_all(request.transfer)
    assert pool.pages_free == pool.pages
    assert not world.decode.machine.loans


RECOVERING = replace(BORROWER_LIMITS, recompute_tokens_per_min=6)


@pytest.mark.parametrize("trouble", ["lose", "failed_read", "timeout"])
def test_missing_evidence_recovers_by_computing_within_the_budget(trouble: str) -> None:
    world, request = begun(PullSetup(borrower_limits=RECOVERING))
    match trouble:
        case "lose":
            world.lose("p")
        case "failed_read":
            world.decode.read_fails(request.transfer)
        case "timeout":
            world.advance(3_000)
    assert request.transfer in world.decode.computing
    world.compute_all()
    assert world.is_running(request), "it need not wait for the read that it does not use"
    world.decode.step()
    assert not world.corruptions
    world.read_all()
    if trouble == "lose":
        world.join("p")
    world.heal()
    assert world.ended(request).end is End.COMPLETED
    world.assert_baseline()


def test_an_offer_that_has_expired_recovers_by_computing() -> None:
    world = PullWorld(PullSetup(borrower_limits=RECOVERING))
    request = world.order(world.make("alice", "a", 6))
    world.compute_all()
    world.advance(6_000)
    world.refer(request)
    world.deliver_all()
    assert request.transfer in world.decode.computing
    world.heal()
    assert world.ended(request).end is End.COMPLETED
    world.assert_baseline()


def test_a_broken_invariant_ends_the_request_and_returns_its_claim() -> None:
    world, request = begun(PullSetup())
    world.decode.machine.loans[request.transfer].window.lease.holds.clear()
    world.decode.read_all(request.transfer)
    assert world.decode.counters["invariant_broken"] == 1
    assert world.refusal(request).reason is Reason.INVARIANT
    world.heal()
    assert not world.decode.machine.loans
    assert not world.lender.machine.loans


def test_a_tenant_keeps_to_its_share_of_pages_that_are_read_into() -> None:
    world = PullWorld(PullSetup(tenant_pages=4))
    for name in ("a", "b", "c"):
        world.ask("alice", name, 6)
    other = world.ask("bob", "d", 6)
    world.deliver_all()
    reading = {r.effect.transfer for r in world.decode.reading}
    assert reading == {TransferId("a/1"), TransferId("b/1"), other.transfer}
    world.heal()
    assert world.ended(world.requests[TransferId("c/1")]).end is End.COMPLETED
    world.assert_baseline()


def test_a_cancelled_read_counts_once_against_the_share_of_its_tenant() -> None:
    world, request = begun(PullSetup(tenant_pages=4))
    world.cancel(request)
    second = world.ask("alice", "b", 6)
    assert second.transfer in world.decode.machine.receptions
    third = world.ask("alice", "c", 9)
    assert world.refusal(third).reason is Reason.TENANT_SHARE
    world.decode.read_all(request.transfer)
    world.heal()
    assert world.ended(second).end is End.COMPLETED
    world.assert_baseline()
