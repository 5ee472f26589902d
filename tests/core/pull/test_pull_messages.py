"""Messages that are lost, come twice or overtake others: nothing is lost, nothing moves twice."""

from __future__ import annotations

from collections import deque

import pytest

from kvairlock.core.ends import End
from kvairlock.core.errors import Reason
from kvairlock.core.messages import Claim, Lent, Release, Returned, Ruling, Validate, Validated
from kvairlock.core.protocol.pull.loans import LoanStage
from kvairlock.core.terms import Incarnation, NodeName, Peer, Role
from tests.core.ends_parts import Kept, Parcel, dropped
from tests.core.pull.pulls import PullWorld

EACH = [Claim, Lent, Validate, Validated, Release, Returned]


@pytest.mark.parametrize("kind", EACH)
def test_a_message_that_is_lost_is_said_again(kind: type) -> None:
    world = PullWorld()
    world.tamper[kind] = dropped
    request = world.ask("alice", "a", 6)
    world.settle()
    world.advance(199)
    world.settle()
    del world.tamper[kind]
    held = kind in (Release, Returned)
    assert world.is_running(request) is held, "a lost release does not keep decode waiting"
    world.advance(1)
    world.settle()
    assert world.is_running(request)
    assert not world.decode.machine.loans
    world.heal()
    assert world.ended(request).end is End.COMPLETED
    world.assert_baseline()


@pytest.mark.parametrize("kind", [*EACH, Ruling])
def test_a_message_that_comes_twice_changes_nothing(kind: type) -> None:
    world = PullWorld()
    world.tamper[kind] = lambda message: [message, message]
    request = world.ask("alice", "a", 6)
    world.complete(request)
    assert len(world.events(world.decode, "remote_read_started", request)) == 1
    assert len(world.events(world.lender, "pages_claimed", request)) == 1
    world.heal()
    world.assert_baseline()


@pytest.mark.parametrize("kind", [*EACH, Ruling])
def test_a_message_that_comes_again_after_everything_changes_nothing(kind: type) -> None:
    world = PullWorld()
    kept = Kept()
    world.tamper[kind] = kept
    request = world.ask("alice", "a", 6)
    world.complete(request)
    world.heal()
    for message in list(kept.messages):
        to_lender = kind in (Claim, Validate, Release, Ruling)
        sender, to = (world.decode, world.lender) if to_lender else (world.lender, world.decode)
        world.repeat(message, sender.peer, to.peer.node)
    world.heal()
    assert len(world.reads) == 1
    world.assert_baseline()


def test_a_repeated_claim_has_the_same_answer() -> None:
    world = PullWorld()
    request = world.ask("alice", "a", 6)
    (claim,) = world.in_flight(Claim)
    world.deliver("d", "p")
    world.advance(100)
    deadline = world.lender.machine.deadline()
    world.repeat(claim, world.decode.peer, world.lender.peer.node)
    first, second = world.in_flight(Lent)
    assert first == second
    assert world.lender.machine.deadline() == deadline, "a repeat does not hold for longer"
    world.complete(request)


def test_a_release_that_overtakes_its_claim_ends_the_offer() -> None:
    world = PullWorld()
    request = world.ask("alice", "a", 6)
    world.cancel(request)
    wire = world.wires[world.decode.peer.node, world.lender.peer.node]
    assert {type(parcel.content) for parcel in wire} >= {Claim, Release}
    backwards: deque[Parcel] = deque(reversed(wire))
    world.wires[world.decode.peer.node, world.lender.peer.node] = backwards
    while world.deliver("d", "p"):
        pass
    (answer,) = world.in_flight(Lent)
    assert answer.receipt.refusal is not None
    assert answer.receipt.refusal.reason is Reason.TIMEOUT
    pool = world.lender.machine.books.pool
    assert pool.pages_free == pool.pages
    world.heal()
    world.assert_baseline()


def test_a_late_answer_is_given_back_and_recorded_as_ignored() -> None:
    world = PullWorld()
    request = world.ask("alice", "a", 6)
    world.deliver("d", "p")
    (answer,) = world.in_flight(Lent)
    world.cancel(request)
    world.heal()
    assert not world.decode.machine.loans
    world.repeat(answer, world.lender.peer, world.decode.peer.node)
    assert [r.nonce for r in world.in_flight(Release)] == [answer.nonce]
    ignored = [r.fields for r in world.decode.records if r.event == "message_ignored"]
    assert ignored[-1]["message"] == "lent"
    assert not world.decode.reading
    world.heal()
    world.assert_baseline()


def test_a_release_of_another_claim_ends_nothing_and_is_answered() -> None:
    world = PullWorld()
    request = world.ask("alice", "a", 6)
    world.deliver_all()
    release = Release(request.transfer, "other")
    world.repeat(release, world.decode.peer, world.lender.peer.node)
    assert [r.nonce for r in world.in_flight(Returned)] == ["other"]
    assert world.lender.machine.loans[request.transfer].stage is LoanStage.CLAIMED
    world.complete(request)
    world.heal()
    world.assert_baseline()


def test_an_offer_is_not_ended_by_whom_it_was_not_made_to() -> None:
    world = PullWorld()
    request = world.order(world.make("alice", "a", 6))
    world.compute_all()
    stranger = Peer(NodeName("x"), Role.DECODE, Incarnation("x-1"))
    world.repeat(Release(request.transfer, "c1"), stranger, world.lender.peer.node)
    world.wires.clear()
    world.refer(request)
    world.complete(request)
    world.heal()
    world.assert_baseline()


@pytest.mark.parametrize("claim", ["c1", "other"])
def test_a_question_about_what_is_not_lent_is_answered_with_no(claim: str) -> None:
    world = PullWorld()
    request = world.ask("alice", "a", 6)
    world.deliver_all()
    if claim == "c1":
        world.advance(5_000)
        assert not world.lender.machine.loans
    question = Validate(request.transfer, claim)
    world.repeat(question, world.decode.peer, world.lender.peer.node)
    (answer,) = world.in_flight(Validated)
    assert answer.refusal is not None
    assert answer.nonce == claim


def test_no_answer_to_the_claim_ends_in_time() -> None:
    world = PullWorld()
    world.tamper[Lent] = dropped
    request = world.ask("alice", "a", 6)
    for _ in range(20):
        world.settle()
        world.advance(100)
    world.settle()
    assert world.refusal(request).reason is Reason.TIMEOUT
    world.heal()
    world.assert_baseline()


def test_no_answer_to_the_question_is_missing_evidence() -> None:
    world = PullWorld()
    world.tamper[Validated] = dropped
    request = world.ask("alice", "a", 6)
    for _ in range(30):
        world.settle()
        world.advance(100)
    world.settle()
    assert world.refusal(request).reason is Reason.MISSING_EVIDENCE
    assert not world.reads
    world.heal()
    world.assert_baseline()
