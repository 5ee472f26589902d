"""One prompt from one node to the other by pull, and what is recorded, kept and shared of it."""

from __future__ import annotations

from kvairlock.core.ends import End
from kvairlock.core.messages import Claim, Lent, Release, Returned, Validate, Validated
from kvairlock.core.protocol.pull.loans import LoanStage
from kvairlock.core.terms import Fence
from tests.core.pull.pulls import PullWorld


def test_a_prompt_is_lent_read_validated_admitted_and_returned() -> None:
    world = PullWorld()
    request = world.ask("alice", "a", 6)
    assert len(world.in_flight(Claim)) == 1
    world.deliver_all()
    assert len(world.decode.reading) == 1
    assert not world.is_running(request), "no token before the read"
    world.decode.read_all(request.transfer)
    assert world.decode.machine.loans[request.transfer].stage is LoanStage.READ
    assert len(world.in_flight(Validate)) == 1
    assert not world.is_running(request), "no token before the answer"
    world.deliver("d", "p")
    assert [v.refusal for v in world.in_flight(Validated)] == [None]
    world.deliver("p", "d")
    assert world.is_running(request)
    world.complete(request)
    assert [r.missing for r in world.reads] == [()]
    assert world.ended(request).computed_tokens == 6
    world.heal()
    world.assert_baseline()


def test_the_claim_is_given_back_as_soon_as_the_pages_are_admitted() -> None:
    world = PullWorld()
    request = world.ask("alice", "a", 6)
    world.deliver_all()
    world.decode.read_all(request.transfer)
    world.deliver("d", "p")
    world.deliver("p", "d")
    assert [r.nonce for r in world.in_flight(Release)] == ["c1"]
    world.deliver_all()
    assert world.is_running(request)
    assert not world.decode.machine.loans
    assert not world.lender.machine.loans
    assert len(world.decode.machine.windows) == 0
    pool = world.lender.machine.books.pool
    assert pool.pages_free == pool.pages
    assert world.lender.machine.books.drain.fences == {Fence.ACKNOWLEDGED: 1}


def test_coordinates_travel_between_the_nodes_only() -> None:
    """The router's ticket names the transfer; pages and digests are in the answer to the claim."""
    world = PullWorld()
    request = world.ask("alice", "a", 6)
    ticket = world.offers[request.transfer]
    assert (ticket.lender, ticket.receiver) == (world.lender.peer, world.decode.peer)
    world.deliver("d", "p")
    (answer,) = world.in_flight(Lent)
    assert answer.pages == world.lent_pages(request)
    assert len(answer.receipt.digests) == 2


def test_both_ends_record_which_pages_were_read_in_which_of_their_lives() -> None:
    world = PullWorld()
    request = world.ask("alice", "a", 6)
    world.settle()
    borrower, lender = world.decode, world.lender
    (offered,) = world.events(lender, "pages_offered", request)
    (claimed,) = world.events(lender, "pages_claimed", request)
    (began,) = world.events(borrower, "remote_read_started", request)
    (ended,) = world.events(borrower, "remote_read_ended", request)
    (validated,) = world.events(lender, "pages_validated", request)
    (given_back,) = world.events(borrower, "pages_returned", request)
    (returned,) = world.events(lender, "pages_returned", request)
    assert offered["pages"] == claimed["pages"] == began["source_pages"] == validated["pages"]
    assert offered["generations"] == began["source_generations"] == validated["generations"]
    assert began["pages"] == ended["pages"] == given_back["pages"]
    assert began["peer_incarnation"] == "p-1"
    assert claimed["reader"] == "validating"
    assert (ended["status"], validated["outcome"]) == ("done", "stood")
    claims = [claimed, began, ended, validated, given_back, returned]
    assert {record["claim"] for record in claims} == {"c1"}


def test_several_choices_and_chunks() -> None:
    world = PullWorld()
    request = world.order(world.make("alice", "a", 11, choices=3))
    world.lender.compute(request.transfer, 5)
    world.compute_all()
    world.refer(request)
    world.complete(request)
    assert [(r.choice, r.missing) for r in world.reads] == [(0, ()), (1, ()), (2, ())]
    world.heal()
    world.assert_baseline()


def test_an_admitted_prompt_is_kept_for_its_scope_and_lent_again() -> None:
    world = PullWorld()
    first = world.ask("alice", "a", tuple(range(8)), scope="alice")
    world.complete(first)
    assert world.lender.machine.prefixes.pages == 2
    second = world.ask("alice", "b", tuple(range(9)), scope="alice")
    world.deliver("d", "p")
    (answer,) = world.in_flight(Lent)
    assert answer.receipt.reused == 8
    world.complete(second)
    assert world.ended(second).reused_tokens == 8
    assert not world.leaks
    assert not world.corruptions
    world.heal()
    world.assert_baseline()


def test_a_prompt_that_was_not_admitted_is_not_kept() -> None:
    world = PullWorld()
    request = world.ask("alice", "a", tuple(range(8)), scope="alice")
    world.deliver_all()
    world.cancel(request)
    world.heal()
    assert world.lender.machine.prefixes.pages == 0
    world.assert_baseline()


def test_a_repeated_order_of_the_same_router_is_offered_again() -> None:
    world = PullWorld()
    request = world.order(world.make("alice", "a", 6))
    world.compute_all()
    world.offers.clear()
    world.order(request)
    assert request.transfer in world.offers
    world.refer(request)
    world.complete(request)
    world.heal()
    world.assert_baseline()


def test_a_repeated_referral_is_ignored() -> None:
    world = PullWorld()
    request = world.ask("alice", "a", 6)
    world.refer(request)
    world.complete(request)
    assert world.ended(request).end is End.COMPLETED
    assert len(world.in_flight(Claim)) == 0
    world.heal()
    world.assert_baseline()


def test_the_answer_to_a_release_is_the_last_word() -> None:
    world = PullWorld()
    world.ask("alice", "a", 6)
    world.settle()
    assert not world.in_flight(Returned)
    world.advance(10_000)
    assert not world.in_flight(Release), "an acknowledged release is not said again"
