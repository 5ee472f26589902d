"""What is taken back during a read is never believed; what cannot be taken back waits for evidence.

The lender's memory is small here, so that pages which came back are the next tenant's at once.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvairlock.core.ends import End
from kvairlock.core.errors import Reason, Stage
from kvairlock.core.events import PeerGone, PeerLost
from kvairlock.core.guards import Guard
from kvairlock.core.memory.page import PageStage, Verb
from kvairlock.core.memory.pool import Lease, Pool
from kvairlock.core.messages import Claim, Lent, Validate, Validated
from kvairlock.core.protocol.pull.loans import LoanStage
from kvairlock.core.terms import Fence, Reader
from tests.core.ends_parts import Request
from tests.core.pull.pulls import PullSetup, PullWorld
from tests.core.pull.pulls_stages import PATIENT, SMALL, TRUSTING, begun, off


def next_tenant_computes(world: PullWorld) -> Request:
    """Another tenant's prompt is computed as soon as the lender has pages for it."""
    other = world.order(world.make("bob", "b", 6))
    world.compute_all()
    return other


def revoked(setup: PullSetup) -> tuple[PullWorld, Request, Request]:
    """The lender took its pages back in the middle of a read, and somebody else filled them."""
    world, request = begun(setup)
    pages = world.lent_pages(request)
    world.advance(500)
    other = next_tenant_computes(world)
    assert set(world.lent_pages(other)) == set(pages), "the pages are the next tenant's"
    world.decode.read_all(request.transfer)
    world.settle()
    return world, request, other


# Revoked while it is read


def test_pages_taken_back_during_a_read_are_not_believed() -> None:
    world, request, _ = revoked(SMALL)
    refusal = world.refusal(request)
    assert (refusal.reason, refusal.stage) == (Reason.GENERATION, Stage.VERDICT)
    assert not world.reads, "no attention over these pages"
    assert world.lender.machine.books.drain.fences[Fence.REVOKED] == 1
    ended = world.events(world.decode, "request_ended", request)
    assert (ended[0]["end"], ended[0]["generated_tokens"]) == (End.FAILED, 0)
    world.heal()
    world.assert_baseline()


def test_the_refused_pages_are_quarantined_and_scrubbed(monkeypatch: pytest.MonkeyPatch) -> None:
    verbs = []
    end = Pool.end

    def spied(pool: Pool, lease: Lease, verb: Verb) -> None:
        verbs.append((lease.owner.tenant, verb))
        end(pool, lease, verb)

    world, request = begun(SMALL)
    world.advance(500)
    next_tenant_computes(world)
    target = world.decode.reading[0].effect.target
    world.decode.read_all(request.transfer)
    assert len(world.decode.tags(target)) == 2, "half of it is the next tenant's"
    monkeypatch.setattr(Pool, "end", spied)
    world.settle()
    assert verbs == [("alice", Verb.QUARANTINE)]
    assert not world.decode.memory[target].any()
    world.heal()
    world.assert_baseline()


def test_it_holds_without_the_check_of_the_bytes() -> None:
    world, request, _ = revoked(replace(SMALL, off_decode=off(Guard.INTEGRITY)))
    assert world.refusal(request).reason is Reason.GENERATION
    assert not world.reads


def test_without_asking_afterwards_the_next_tenants_bytes_are_read() -> None:
    """The `generation` guard of pull: nobody asks the lender whether its pages stood."""
    setup = replace(SMALL, off_decode=off(Guard.GENERATION, Guard.INTEGRITY))
    world, request, other = revoked(setup)
    assert world.is_running(request)
    world.decode.step()
    assert world.leaks == {(request.transfer, other.transfer)}


def test_what_was_taken_back_and_not_reused_is_refused_too() -> None:
    """The bytes are right and their digests fit; nobody can say that they stayed so."""
    world, request = begun(SMALL)
    world.manual.add("scrub")
    world.advance(500)
    world.decode.read_all(request.transfer)
    world.settle()
    assert world.refusal(request).reason is Reason.GENERATION
    world.heal()
    world.assert_baseline()


def test_pages_that_did_not_stand_are_no_reason_to_recover() -> None:
    world, request, _ = revoked(
        replace(SMALL, borrower_limits=replace(PATIENT, recompute_tokens_per_min=6))
    )
    assert world.refusal(request).reason is Reason.GENERATION
    assert not world.decode.computing


def test_revocation_just_after_the_answer_does_no_harm() -> None:
    world, request = begun(SMALL)
    world.decode.read_all(request.transfer)
    world.deliver("d", "p")
    assert [v.refusal for v in world.in_flight(Validated)] == [None]
    world.advance(500)
    next_tenant_computes(world)
    world.deliver("p", "d")
    world.decode.step()
    assert not world.leaks
    assert not world.corruptions
    world.heal()
    assert world.ended(request).end is End.COMPLETED
    world.assert_baseline()


def test_a_revoked_prefix_is_not_believed() -> None:
    """Shared pages in front of the own ones are lent as well, and evicted after a revocation."""
    world = PullWorld(replace(SMALL, prefill_pages=3))
    first = world.ask("alice", "a", tuple(range(8)), scope="alice")
    world.complete(first)
    second = world.ask("alice", "b", tuple(range(9)), scope="alice")
    world.deliver_all()
    world.decode.read_piece(second.transfer)
    world.advance(500)
    other = world.order(world.make("bob", "c", 12))
    world.compute_all()
    assert len(world.lent_pages(other)) == 3
    world.decode.read_all(second.transfer)
    world.settle()
    assert world.refusal(second).reason is Reason.GENERATION
    assert not world.leaks
    world.heal()
    world.assert_baseline()


def test_a_prefix_stays_while_a_loan_holds_it() -> None:
    world = PullWorld(replace(SMALL, prefill_pages=3))
    first = world.ask("alice", "a", tuple(range(8)), scope="alice")
    world.complete(first)
    second = world.ask("alice", "b", tuple(range(9)), scope="alice")
    world.deliver_all()
    other = world.order(world.make("bob", "c", 12))
    assert other.transfer not in world.lender.computing
    world.complete(second)
    assert world.ended(second).reused_tokens == 8
    world.compute_all()
    assert other.transfer in world.offers, "the prefix makes room once nobody holds it"
    world.heal()
    world.assert_baseline()


# Readers that do not ask afterwards


def test_a_reader_that_does_not_ask_pins_the_pages_until_it_releases_them() -> None:
    world, request = begun(TRUSTING)
    pool = world.lender.machine.books.pool
    world.advance(500)
    assert world.lender.machine.loans[request.transfer].stage is LoanStage.REVOKED
    assert pool.count()[PageStage.DRAINING] == 2
    world.advance(60_000)
    assert pool.pages_free == 0, "time frees nothing"
    other = next_tenant_computes(world)
    assert other.transfer not in world.offers
    world.decode.read_all(request.transfer)
    assert not world.in_flight(Validate)
    world.settle()
    assert world.lender.machine.books.drain.fences[Fence.ACKNOWLEDGED] == 1
    assert not world.leaks
    world.heal()
    world.assert_baseline()


def test_what_a_trusting_reader_has_read_was_never_anybody_elses() -> None:
    world, request = begun(replace(TRUSTING, off_decode=off(Guard.INTEGRITY)))
    world.advance(500)
    next_tenant_computes(world)
    world.decode.read_all(request.transfer)
    assert world.is_running(request)
    world.decode.step()
    assert not world.leaks
    assert not world.corruptions


def test_without_the_drain_a_trusting_reader_reads_the_next_tenant() -> None:
    setup = replace(TRUSTING, off_prefill=off(Guard.DRAIN), off_decode=off(Guard.INTEGRITY))
    world, request = begun(setup)
    world.advance(500)
    other = next_tenant_computes(world)
    world.decode.read_all(request.transfer)
    world.decode.step()
    assert world.leaks == {(request.transfer, other.transfer)}


def test_a_revoked_loan_is_neither_lent_again_nor_vouched_for() -> None:
    world = PullWorld(TRUSTING)
    request = world.ask("alice", "a", 6)
    (claim,) = world.in_flight(Claim)
    world.deliver_all()
    world.advance(500)
    world.repeat(claim, world.decode.peer, world.lender.peer.node)
    question = Validate(request.transfer, claim.nonce)
    world.repeat(question, world.decode.peer, world.lender.peer.node)
    (lent,), (answer,) = world.in_flight(Lent), world.in_flight(Validated)
    assert lent.pages == ()
    assert lent.receipt.refusal.reason is Reason.TIMEOUT
    assert answer.refusal is not None
    assert answer.refusal.message == "the loan has ended"


# The consumer dies before it releases


@pytest.mark.parametrize("reader", Reader)
def test_the_process_end_of_a_reader_frees_what_it_held(reader: Reader) -> None:
    world, _ = begun(replace(SMALL, reader=reader))
    lender, pool = world.lender, world.lender.machine.books.pool
    world.cut.add(world.decode.peer.node)
    lender.tell(PeerLost(world.decode.peer))
    assert pool.pages_free == 0, "a lost link is no evidence"
    lender.tell(PeerGone(world.decode.peer))
    assert pool.pages_free == 2
    assert lender.machine.books.drain.fences == {Fence.PROCESS_GONE: 1}
    assert not lender.machine.loans
    assert not lender.machine.jobs


@pytest.mark.parametrize("reader", Reader)
def test_a_reader_that_is_only_lost_keeps_what_it_cannot_be_asked_about(reader: Reader) -> None:
    world, _ = begun(replace(SMALL, reader=reader))
    lender, pool = world.lender, world.lender.machine.books.pool
    world.cut.add(world.decode.peer.node)
    lender.tell(PeerLost(world.decode.peer))
    world.advance(60_000)
    assert pool.pages_free == (2 if reader is Reader.VALIDATING else 0)


def test_a_pinned_loan_that_was_revoked_is_freed_by_the_process_end() -> None:
    world, request = begun(TRUSTING)
    lender = world.lender
    world.advance(500)
    lender.tell(PeerGone(world.decode.peer))
    assert request.transfer not in lender.machine.loans
    assert lender.machine.books.pool.pages_free == 2
    assert lender.machine.books.drain.fences == {Fence.PROCESS_GONE: 1}


def test_offers_to_a_process_that_has_ended_are_taken_back() -> None:
    world = PullWorld()
    offered = world.order(world.make("alice", "a", 6))
    world.compute_all()
    waiting = world.order(world.make("alice", "b", 6))
    world.lender.tell(PeerGone(world.decode.peer))
    assert world.lender.declined[waiting.transfer].reason is Reason.PEER_LOST
    assert offered.transfer not in world.lender.machine.loans
    pool = world.lender.machine.books.pool
    assert pool.pages_free == pool.pages
