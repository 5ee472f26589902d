"""Messages that come twice, late, from somebody else, or in another order change nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvairlock.core.ends import End
from kvairlock.core.errors import Reason, Stage
from kvairlock.core.events import Told
from kvairlock.core.messages import Receipt, Released, Ruling, Withdraw
from kvairlock.core.protocol.handoff import HandoffStage
from kvairlock.core.terms import (
    Incarnation,
    LandingPolicy,
    Peer,
    Role,
    TransferId,
)
from tests.core.ends import World
from tests.core.ends_parts import (
    DECODE_LIMITS,
    PREFILL_LIMITS,
    GrantParcel,
    Kept,
    Setup,
)
from tests.core.ends_stages import DECODE, PREFILL, STRANGER, reach, take

COPY, SEAL, DIRECT = LandingPolicy.COPY, LandingPolicy.SEAL, LandingPolicy.DIRECT


@pytest.mark.parametrize("policy", LandingPolicy)
def test_messages_that_come_twice_change_nothing(policy: LandingPolicy) -> None:
    """Every message of the conversation again, as soon as it has arrived."""
    world = World(Setup(policy=policy))
    for kind in (Receipt, Released, Ruling):
        world.tamper[kind] = lambda message: [message, message]
    request = world.ask("alice", "a", 6)
    world.complete(request)
    assert world.decode.counters["ignored"] == 1
    assert world.prefill.counters["ignored"] == 1
    assert world.decode.counters["verdict.admitted"] == 1
    assert not world.corruptions
    world.heal()
    world.assert_baseline()


@pytest.mark.parametrize("policy", LandingPolicy)
@pytest.mark.parametrize("stage", ["computing", "digesting", "writing"])
def test_a_grant_that_comes_twice_releases_nothing(stage: str, policy: LandingPolicy) -> None:
    """The write still runs: a word of release would let its pages go to another tenant."""
    kept = Kept()
    world = World(Setup(policy=policy, decode_pages=3))
    world.tamper[GrantParcel] = kept
    world.manual |= {"digest", "land"}
    request = world.ask("alice", "a", 6)
    world.deliver_all()
    for step in ("computing", "digesting", "writing"):
        take(world, request, step)
        if step == stage:
            break
    world.repeat(kept.messages[0], world.decode.peer, PREFILL)
    assert not world.in_flight(Released)
    assert not world.prefill.faults
    world.manual.clear()
    world.complete(request)
    world.assert_baseline()


@pytest.mark.parametrize("policy", LandingPolicy)
def test_a_grant_that_comes_again_after_its_write_leaves_no_file_mapped(
    policy: LandingPolicy,
) -> None:
    """The receipt is out and the ruling still to come: nobody will write into the second file."""
    kept = Kept()
    world = World(Setup(policy=policy))
    world.tamper[GrantParcel] = kept
    world.manual |= {"land"}
    request = world.ask("alice", "a", 6)
    world.settle()
    assert world.prefill.machine.jobs[request.transfer].stage is HandoffStage.REPORTED
    world.repeat(kept.messages[0], world.decode.peer, PREFILL)
    assert not world.prefill.windows
    world.manual.clear()
    world.work()
    world.complete(request)
    world.assert_baseline()


def test_a_grant_that_comes_twice_lets_no_late_write_reach_the_next_owner() -> None:
    kept = Kept()
    world = World(Setup(policy=DIRECT, decode_pages=3, prefills=("p", "q")))
    world.tamper[GrantParcel] = kept
    left = world.ask("mallory", "m", 8)
    world.deliver_all()
    world.prefill.compute(left.transfer)
    world.prefill.write_piece(left.transfer)
    world.cancel(left)
    world.repeat(kept.messages[0], world.decode.peer, PREFILL)
    owner = world.ask("alice", "a", 8, prefill="q")
    for _ in range(3):
        world.deliver_all()
        if owner.transfer in world.prefills["q"].computing:
            world.prefills["q"].compute(owner.transfer)
        world.prefills["q"].write_all(owner.transfer)
    world.prefill.write_all(left.transfer)
    world.settle()
    world.decode.step()
    assert not world.leaks
    world.heal()
    world.assert_baseline()


def test_a_submit_repeated_by_its_claimant_is_served_once() -> None:
    world = World()
    request = world.ask("alice", "a", 6)
    world.submit(request)
    world.complete(request)
    world.submit(request)
    assert world.ended(request).end is End.COMPLETED
    assert world.decode.counters["admitted"] == 1
    world.assert_baseline()


def test_a_used_ticket_is_refused_to_another_claimant_also_after_the_end() -> None:
    world = World()
    request = world.ask("alice", "a", 6)
    world.complete(request)
    again = world.make("alice", "again", 6)
    world.submit(again, ticket=request.ticket, digest=request.digest, nonce="other")
    assert world.refusal(again).reason is Reason.REPLAYED
    world.assert_baseline()


def test_claims_are_forgotten_when_their_tickets_have_expired() -> None:
    world = World()
    world.complete(world.ask("alice", "a", 6))
    assert len(world.decode.machine.claims) == 1
    world.advance(120_000)
    later = world.make("alice", "b", 6)
    fresh = replace(later.ticket, expires_unix_s=world.unix_s + 60)
    world.submit(later, ticket=fresh)
    assert len(world.decode.machine.claims) == 1
    world.complete(later)
    world.assert_baseline()


@pytest.mark.parametrize(
    "sender",
    [STRANGER, Peer(PREFILL, Role.PREFILL, Incarnation("p-0"))],
    ids=["another node", "another life"],
)
def test_a_receipt_of_another_than_was_granted_is_ignored(sender: Peer) -> None:
    world, request = reach("writing", COPY)
    kept = Kept()
    world.tamper[Receipt] = kept
    world.prefill.write_all(request.transfer)
    world.repeat(kept.messages[0], sender, DECODE)
    assert world.decode.machine.receptions[request.transfer].stage is HandoffStage.GRANTED
    assert world.decode.counters["ignored"] == 1
    world.manual.clear()
    world.complete(request)
    world.assert_baseline()


def test_a_receipt_for_nothing_is_ignored() -> None:
    world, request = reach("released", COPY)
    receipt = world.in_flight(Receipt)[0]
    world.repeat(replace(receipt, transfer=TransferId("nobody/1")), world.prefill.peer, DECODE)
    assert world.decode.counters["ignored"] == 1
    world.manual.clear()
    world.complete(request)
    world.assert_baseline()


def test_a_receipt_after_the_cancel_is_ignored_and_prefill_still_lets_go() -> None:
    world, request = reach("released", COPY)
    world.cancel(request)
    world.deliver_all()
    assert world.decode.counters["ignored"] == 1
    assert not world.prefill.machine.jobs
    assert world.prefill.counters["ended.cancelled"] == 1
    world.heal()
    world.assert_baseline()


def test_a_withdrawal_that_overtakes_its_grant_costs_time_and_nothing_else() -> None:
    world = World()
    request = world.ask("alice", "a", 6)
    grant = world.wires[(DECODE, PREFILL)].popleft()
    world.cancel(request)
    world.deliver_all()
    world.repeat(grant.content, world.decode.peer, PREFILL)
    world.settle()
    assert len(world.decode.machine.windows) == 0, "its writer has released it"
    assert list(world.prefill.machine.jobs) == [request.transfer]
    world.advance(PREFILL_LIMITS.verdict_ms)
    assert world.prefill.counters["ended.timed_out"] == 1
    world.heal()
    world.assert_baseline()


@pytest.mark.parametrize("word", [Ruling, Withdraw])
def test_prefill_listens_only_to_the_node_that_granted(word: type) -> None:
    world, request = reach("released", COPY)
    message = (
        Ruling(request.transfer, True, None)
        if word is Ruling
        else Withdraw(request.transfer, End.CANCELLED)
    )
    other = replace(world.decode.peer, incarnation=Incarnation("d-0"))
    for sender in (other, STRANGER):
        world.prefill.tell(Told(sender, message))
    assert list(world.prefill.machine.jobs) == [request.transfer]
    assert world.prefill.counters["ignored"] == 2
    world.manual.clear()
    world.complete(request)
    world.assert_baseline()


def test_a_ruling_before_the_receipt_is_ignored() -> None:
    world, request = reach("computing", COPY)
    world.prefill.tell(Told(world.decode.peer, Ruling(request.transfer, True, None)))
    assert list(world.prefill.machine.jobs) == [request.transfer]
    assert world.prefill.machine.prefixes.pages == 0
    world.manual.clear()
    world.complete(request)
    world.assert_baseline()


def test_direct_writes_need_the_word_of_release_before_the_receipt() -> None:
    world, request = reach("written", DIRECT)
    wire = world.wires[(PREFILL, DECODE)]
    wire.reverse()
    world.settle()
    refusal = world.refusal(request)
    assert (refusal.reason, refusal.stage) == (Reason.MISSING_EVIDENCE, Stage.VERDICT)
    world.heal()
    world.assert_baseline()


def test_a_sealed_window_is_landed_again_when_its_writer_has_let_go() -> None:
    world, request = reach("landing", SEAL)
    file = world.decode.windows[next(iter(world.decode.windows))]
    file.mapped = True
    world.manual.clear()
    world.work()
    assert not world.is_running(request)
    world.advance(10)
    assert not world.is_running(request)
    file.mapped = False
    world.advance(10)
    assert world.is_running(request)
    world.complete(request)
    world.assert_baseline()


def test_a_writer_that_never_lets_go_ends_as_missing_evidence() -> None:
    world, request = reach("landing", SEAL)
    file = world.decode.windows[next(iter(world.decode.windows))]
    file.mapped = True
    world.manual.clear()
    world.work()
    for _ in range(DECODE_LIMITS.landing_ms // 10):
        world.advance(10)
    refusal = world.refusal(request)
    assert (refusal.reason, refusal.stage) == (Reason.MISSING_EVIDENCE, Stage.TRANSFER)
    world.heal()
    world.assert_baseline()
