"""Whoever is refused is refused with the right reason, before any byte moves, and gets nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kvairlock.core.ends import End
from kvairlock.core.errors import Reason, Refusal, Stage
from kvairlock.core.events import Submitted, Told
from kvairlock.core.guards import Guard
from kvairlock.core.messages import Claim, Lent, Release, TransferTicket
from kvairlock.core.protocol.pull.loans import LoanStage
from kvairlock.core.terms import Incarnation, NodeName, Owner, Peer, Role, TransferId
from tests.core.ends_parts import OTHER_LAYOUT, UNIX_S, Request, changed
from tests.core.pull.pulls import PullSetup, PullWorld

STRANGER = Peer(NodeName("x"), Role.DECODE, Incarnation("x-1"))
ADMISSION, VERDICT = Stage.PREFILL_ADMISSION, Stage.VERDICT


def nothing_was_read(world: PullWorld) -> None:
    assert not world.decode.reading
    assert not [r for r in world.decode.records if r.event == "remote_read_started"]


def end_refused(world: PullWorld, request: Request, reason: Reason, stage: Stage) -> None:
    """The request was refused, its claim was given back, and everything came back."""
    world.settle()
    refusal = world.refusal(request)
    assert (refusal.reason, refusal.stage) == (reason, stage)
    nothing_was_read(world)
    world.heal()
    world.assert_baseline()


def end_contradicted(world: PullWorld, request: Request, reason: Reason) -> None:
    """The lender refused for a reason that the borrower had judged itself: it is not believed."""
    end_refused(world, request, Reason.PEER_REJECTED, VERDICT)
    (stated,) = [r for r in world.lender.records if r.event == "request_refused"]
    assert (stated.fields["reason"], stated.fields["stage"]) == (reason, ADMISSION)
    assert f"{reason} at {ADMISSION}" in world.refusal(request).message


# The lender is asked for a prompt


def declined(world: PullWorld, request: Request) -> Refusal:
    assert not world.lender.computing
    assert request.transfer not in world.offers
    return world.lender.declined[request.transfer]


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ({"tenant": "bob"}, Reason.TENANT),
        ({"ticket": Refusal(Reason.FORGED, ADMISSION, "bad signature")}, Reason.FORGED),
    ],
)
def test_a_lender_declines_a_wrong_ticket(how: dict[str, Any], reason: Reason) -> None:
    world = PullWorld()
    request = world.order(world.make("alice", "a", 6), **how)
    assert declined(world, request).reason is reason


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"input_digest": b"other"}, Reason.INPUT),
        ({"prompt_tokens": 7}, Reason.INPUT),
        ({"expires_unix_s": UNIX_S - 1}, Reason.EXPIRED),
        ({"owner": Owner("alice", "other", 1)}, Reason.IDENTITY),
    ],
)
def test_a_lender_declines_a_ticket_of_something_else(
    change: dict[str, Any], reason: Reason
) -> None:
    world = PullWorld()
    request = world.make("alice", "a", 6)
    world.order(request, ticket=replace(request.ticket, **change))
    assert declined(world, request).reason is reason


def test_a_lender_declines_what_its_pool_can_never_hold() -> None:
    world = PullWorld(PullSetup(prefill_pages=4))
    request = world.order(world.make("alice", "a", 17))
    refusal = declined(world, request)
    assert (refusal.reason, refusal.asked, refusal.limit) == (Reason.CONTEXT_LENGTH, 17, 16)
    exact = world.order(world.make("alice", "b", 16))
    world.compute_all()
    assert exact.transfer in world.offers


def test_a_ticket_is_not_computed_for_a_second_asker() -> None:
    world = PullWorld()
    request = world.order(world.make("alice", "a", 6))
    world.order(request, nonce="thief")
    assert world.lender.declined[request.transfer].reason is Reason.REPLAYED


def test_a_prompt_that_waits_too_long_is_declined() -> None:
    world = PullWorld()
    request = world.order(world.make("alice", "a", 6))
    world.advance(2_001)
    assert world.lender.declined[request.transfer].reason is Reason.TIMEOUT
    assert not world.lender.computing
    world.heal()
    world.assert_baseline()


def test_a_prompt_on_which_the_engine_fails_is_declined() -> None:
    world = PullWorld()
    request = world.order(world.make("alice", "a", 6))
    world.lender.compute_begin(request.transfer)
    world.lender.compute_fails(request.transfer)
    assert world.lender.declined[request.transfer].reason is Reason.ENGINE
    world.heal()
    world.assert_baseline()


# The borrower is referred to an offer


def test_a_borrower_refuses_a_forged_transfer_ticket() -> None:
    world = PullWorld()
    forged = Refusal(Reason.FORGED, Stage.DECODE_ADMISSION, "bad signature")
    request = world.order(world.make("alice", "a", 6))
    world.compute_all()
    world.refer(request, offer=forged)
    assert not world.in_flight(Claim)
    world.advance(6_001)
    end_refused(world, request, Reason.FORGED, Stage.DECODE_ADMISSION)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"transfer": TransferId("b/1")}, Reason.IDENTITY),
        ({"lender": STRANGER}, Reason.IDENTITY),
        ({"receiver": STRANGER}, Reason.REPLAYED),
    ],
)
def test_a_borrower_refuses_an_offer_that_does_not_fit(
    change: dict[str, Any], reason: Reason
) -> None:
    world = PullWorld()
    request = world.order(world.make("alice", "a", 6))
    world.compute_all()
    world.refer(request, offer=replace(world.offers[request.transfer], **change))
    assert not world.in_flight(Claim)
    assert world.refusal(request).reason is reason
    world.heal()
    world.assert_baseline()


def test_a_borrower_refuses_a_request_without_an_offer() -> None:
    world = PullWorld()
    request = world.ask("alice", "a", 6)
    asked = world.decode.machine.receptions[request.transfer].asked
    plain = {name: getattr(asked, name) for name in Submitted.__dataclass_fields__}
    other = world.make("alice", "b", 6)
    plain["presented"] = replace(asked.presented, ticket=other.ticket)
    world.decode.tell(Submitted(**plain | {"transfer": other.transfer}))
    assert world.refusal(other).reason is Reason.FORGED


# The lender is presented a claim


def claims_as(world: PullWorld, **fields: Any) -> None:
    world.tamper[Claim] = changed(**fields)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"tenant": "bob"}, Reason.TENANT),
        ({"input_digest": b"other"}, Reason.INPUT),
        ({"prompt_tokens": 5}, Reason.INPUT),
    ],
)
def test_a_lender_refuses_a_claim_for_others(fields: dict[str, Any], reason: Reason) -> None:
    world = PullWorld()
    claims_as(world, **fields)
    request = world.ask("alice", "a", 6)
    end_contradicted(world, request, reason)


def test_a_lender_refuses_a_claim_that_names_another_transfer_than_its_offer() -> None:
    world = PullWorld()
    other = world.order(world.make("bob", "b", 6))
    world.compute_all()
    offer = repr(world.offers[other.transfer]).encode()
    claims_as(world, offer=offer)
    request = world.ask("alice", "a", 6)
    end_contradicted(world, request, Reason.IDENTITY)


def test_a_lender_refuses_a_claim_with_the_ticket_of_another_request() -> None:
    """A thief that has the transfer ticket of another needs its request ticket too."""
    world = PullWorld()
    victim = world.order(world.make("alice", "a", 6))
    world.compute_all()
    offer = world.offers[victim.transfer]
    world.tickets[b"stolen"] = offer
    claims_as(world, transfer=victim.transfer, offer=b"stolen", nonce="thief")
    thief = world.ask("bob", "b", 6)
    world.deliver("d", "p")
    (answer,) = world.in_flight(Lent)
    assert answer.pages == ()
    assert answer.receipt.refusal is not None
    assert answer.receipt.refusal.reason is Reason.IDENTITY
    world.tamper.clear()
    world.cancel(thief)
    world.heal()
    assert not world.leaks


def test_a_lender_refuses_another_node_than_the_ticket_was_issued_for() -> None:
    world = PullWorld()
    request = world.ask("alice", "a", 6)
    (claim,) = world.in_flight(Claim)
    world.wires.clear()
    world.repeat(claim, STRANGER, world.lender.peer.node)
    (answer,) = world.in_flight(Lent)
    assert answer.receipt.refusal.reason is Reason.REPLAYED
    world.wires.clear()
    world.heal()
    assert world.ended(request).end is End.COMPLETED, "its own claim is said again"
    world.assert_baseline()


def test_a_lender_refuses_a_second_claimant() -> None:
    world = PullWorld()
    request = world.ask("alice", "a", 6)
    (claim,) = world.in_flight(Claim)
    world.deliver("d", "p")
    world.repeat(replace(claim, nonce="other"), world.decode.peer, world.lender.peer.node)
    first, second = world.in_flight(Lent)
    assert first.receipt.refusal is None
    assert second.receipt.refusal.reason is Reason.REPLAYED
    assert second.pages == ()
    world.complete(request)
    world.heal()
    world.assert_baseline()


def test_without_the_claimant_guard_a_second_claimant_is_told_where_the_pages_are() -> None:
    world = PullWorld(PullSetup(off_prefill=frozenset({Guard.CLAIMANT})))
    request = world.ask("alice", "a", 6)
    (claim,) = world.in_flight(Claim)
    world.deliver("d", "p")
    world.repeat(replace(claim, nonce="other"), world.decode.peer, world.lender.peer.node)
    first, second = world.in_flight(Lent)
    assert first.pages == second.pages == world.lent_pages(request)


def test_an_offer_of_a_former_life_lends_nothing() -> None:
    world = PullWorld()
    request = world.order(world.make("alice", "a", 6))
    world.compute_all()
    world.kill("p")
    world.start_prefill("p")
    world.refer(request)
    end_refused(world, request, Reason.PEER_LOST, ADMISSION)


def test_an_offer_that_was_not_claimed_in_time_lends_nothing() -> None:
    world = PullWorld()
    request = world.order(world.make("alice", "a", 6))
    world.compute_all()
    world.advance(6_001)
    pool = world.lender.machine.books.pool
    assert pool.pages_free == pool.pages
    world.refer(request)
    end_refused(world, request, Reason.TIMEOUT, ADMISSION)


@pytest.mark.parametrize(("early", "lends"), [(1, True), (0, False)])
def test_a_claim_that_races_the_expiry_of_its_offer(early: int, lends: bool) -> None:
    world = PullWorld()
    request = world.order(world.make("alice", "a", 6))
    world.compute_all()
    world.advance(5_500)
    world.refer(request)
    world.advance(500 - early)
    world.deliver("d", "p")
    (answer,) = world.in_flight(Lent)
    assert (answer.receipt.refusal is None) is lends
    world.heal()
    assert world.ended(request).end is (End.COMPLETED if lends else End.TIMED_OUT)
    world.assert_baseline()


# The borrower judges the answer


def receipt_as(**fields: Any) -> Callable[[Any], list[Any]]:
    return lambda lent: [replace(lent, receipt=replace(lent.receipt, **fields))]


WRONG_RECEIPTS = [
    (receipt_as(outcome=End.FAILED), Reason.PEER_REJECTED),
    (receipt_as(owner=Owner("bob", "a", 1)), Reason.IDENTITY),
    (receipt_as(window="w"), Reason.IDENTITY),
    (receipt_as(input_digest=b"other"), Reason.COMPUTED_INPUT),
    (receipt_as(layout=OTHER_LAYOUT), Reason.MODEL_LAYOUT),
    (receipt_as(stop=5), Reason.RANGE),
    (receipt_as(pages=(1, 0)), Reason.PAGE_INDEX),
    (receipt_as(generations=(7, 7)), Reason.GENERATION),
    (changed(pages=(3,), generations=(0,)), Reason.PAGE_INDEX),
    (changed(pages=(3, 3)), Reason.PAGE_INDEX),
    (changed(pages=(1, 2, 3), generations=(0, 0, 0)), Reason.PAGE_INDEX),
    (changed(pages=(-1, 2)), Reason.PAGE_INDEX),
    (changed(pages=(1, 2**31)), Reason.PAGE_INDEX),
    (changed(generations=(0, 2**63)), Reason.PAGE_INDEX),
    (changed(generations=(0,)), Reason.PAGE_INDEX),
]


@pytest.mark.parametrize(("wrong", "reason"), WRONG_RECEIPTS)
def test_a_borrower_refuses_an_answer_that_is_not_what_it_expects(
    wrong: Callable[[Any], list[Any]], reason: Reason
) -> None:
    world = PullWorld()
    world.tamper[Lent] = wrong
    request = world.ask("alice", "a", 6)
    end_refused(world, request, reason, VERDICT)


@pytest.mark.parametrize("pages", [(-1, 2), (1, 2**31), (1,)])
def test_coordinates_that_can_be_none_are_refused_whatever_guard_is_off(
    pages: tuple[int, ...],
) -> None:
    world = PullWorld(PullSetup(off_decode=frozenset(Guard)))
    world.tamper[Lent] = changed(pages=pages)
    request = world.ask("alice", "a", 6)
    end_refused(world, request, Reason.PAGE_INDEX, VERDICT)


def test_bytes_that_are_not_what_the_lender_digested_are_refused() -> None:
    world = PullWorld()
    request = world.ask("alice", "a", 6)
    world.deliver_all()
    world.lender.memory[world.lent_pages(request)[0], 3] ^= 1
    world.settle()
    assert world.refusal(request).reason is Reason.INTEGRITY
    world.heal()
    world.assert_baseline()


def test_a_read_that_fails_admits_nothing() -> None:
    world = PullWorld()
    request = world.ask("alice", "a", 6)
    world.deliver_all()
    world.decode.read_piece(request.transfer)
    world.decode.read_fails(request.transfer)
    assert world.refusal(request).reason is Reason.PEER_LOST
    assert world.in_flight(Release)
    world.heal()
    world.assert_baseline()


def test_an_answer_of_another_node_is_ignored() -> None:
    world = PullWorld(PullSetup(prefills=("p", "q")))
    request = world.ask("alice", "a", 6)
    world.deliver("d", "p")
    (answer,) = world.in_flight(Lent)
    other = world.lenders[NodeName("q")].peer
    world.repeat(replace(answer, pages=(9, 9)), other, world.decode.peer.node)
    nothing_was_read(world)
    world.complete(request)
    world.heal()
    world.assert_baseline()


def test_a_receipt_without_coordinates_admits_nothing() -> None:
    """It would be one of push: nothing was pushed here."""
    world = PullWorld()
    request = world.ask("alice", "a", 6)
    world.deliver("d", "p")
    (answer,) = world.in_flight(Lent)
    world.decode.tell(Told(world.lender.peer, answer.receipt))
    assert world.decode.machine.loans[request.transfer].stage is LoanStage.CLAIMED
    world.complete(request)
    world.heal()
    world.assert_baseline()


def test_a_lender_takes_no_grant() -> None:
    world = PullWorld()
    request = world.ask("alice", "a", 6)
    grant = world.lender.machine.jobs[request.transfer].asked
    world.lender.tell(replace(grant, transfer=TransferId("b/1")))
    assert list(world.lender.machine.jobs) == [request.transfer]


def test_without_the_capacity_guard_a_rejected_prompt_is_offered_and_still_refused() -> None:
    """What engines without it did: a placeholder is computed, and the request marked rejected."""
    setup = PullSetup(prefill_pages=4, decode_pages=32, off_prefill=frozenset({Guard.CAPACITY}))
    world = PullWorld(setup)
    request = world.ask("alice", "a", 17)
    end_refused(world, request, Reason.PEER_REJECTED, VERDICT)


def test_pages_that_have_other_content_by_now_do_not_stand() -> None:
    """Whatever the loan's stage says: the pool's own counters have the last word."""
    world = PullWorld()
    request = world.ask("alice", "a", 6)
    world.deliver_all()
    world.lender.machine.loans[request.transfer].span.generations[0] -= 1
    world.settle()
    refusal = world.refusal(request)
    assert refusal.reason is Reason.GENERATION
    assert "1 pages have other content" in refusal.message


def test_a_transfer_ticket_names_who_offers_and_who_may_claim() -> None:
    names = set(TransferTicket.__dataclass_fields__)
    assert names == {"transfer", "lender", "receiver"}, "nothing of the pages travels in it"
