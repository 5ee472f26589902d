"""Nodes that are lost, end, and come back as another life; failures inside a turn."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvairlock.core.effects import StopCompute
from kvairlock.core.ends import End
from kvairlock.core.errors import Reason
from kvairlock.core.events import ComputeBegan, PeerGone, PeerLost, PeerUp
from kvairlock.core.guards import Guard
from kvairlock.core.memory.pool import Hold
from kvairlock.core.messages import Ended, Receipt, Released, Ruling
from kvairlock.core.terms import (
    Incarnation,
    LandingPolicy,
)
from tests.core.ends import World
from tests.core.ends_parts import (
    PREFILL_LIMITS,
    Kept,
    changed,
    dropped,
)
from tests.core.ends_stages import DECODE, PREFILL, reach

COPY, SEAL, DIRECT = LandingPolicy.COPY, LandingPolicy.SEAL, LandingPolicy.DIRECT


def test_a_prefill_node_that_comes_back_is_another_life() -> None:
    world, request = reach("writing", COPY)
    receipts = Kept()
    world.tamper[Receipt] = receipts
    old = world.prefill
    world.lose("p")
    old.write_all(request.transfer)
    world.kill("p")
    world.start_prefill("p")
    assert world.prefill.peer.incarnation != old.peer.incarnation
    again = world.ask("alice", "b", 6)
    window = world.decode.machine.receptions[again.transfer].asked.window
    world.repeat(Released(again.transfer, window, 1), old.peer, DECODE)
    assert len(world.decode.machine.windows) == 1
    world.manual.clear()
    world.complete(again)
    world.heal()
    world.assert_baseline()


def test_a_new_life_that_is_seen_before_the_loss_of_the_old_one_is_kept() -> None:
    world, request = reach("computing", COPY)
    old = world.prefill.peer
    new = replace(old, incarnation=Incarnation("p-9"))
    world.decode.tell(PeerUp(new))
    world.decode.tell(PeerLost(old))
    assert world.decode.machine.peers[PREFILL] == new
    assert world.refusal(request).reason is Reason.PEER_LOST


@pytest.mark.parametrize("stage", ["granted", "computing", "writing", "written"])
def test_a_process_that_has_ended_is_lost_even_if_its_link_was_not(stage: str) -> None:
    world, request = reach(stage, COPY)
    world.decode.tell(PeerGone(world.prefill.peer))
    assert world.refusal(request).reason is Reason.PEER_LOST


def test_prefill_lets_a_job_go_when_no_ruling_comes() -> None:
    world = World()
    world.tamper[Ruling] = dropped
    request = world.ask("alice", "a", 6, scope="team")
    world.complete(request)
    assert list(world.prefill.machine.jobs) == [request.transfer]
    world.advance(PREFILL_LIMITS.verdict_ms)
    assert not world.prefill.machine.jobs
    assert world.prefill.machine.prefixes.pages == 0, "what was not admitted is not shared"
    world.assert_baseline()


def test_a_job_that_was_closed_is_not_computed() -> None:
    """The engine asks before each chunk; the answer to a closed job is to stop."""
    world, request = reach("granted", COPY)
    world.deliver_all()
    world.prefill.tell(PeerLost(world.decode.peer))
    effects = world.prefill.node.handle(ComputeBegan(request.transfer), world.now)
    assert StopCompute(request.transfer) in effects


def test_an_end_of_the_answer_before_it_was_confirmed_is_no_completion() -> None:
    world, request = reach("computing", COPY)
    world.decode.finish(request)
    ends = [a.end for a in world.answers if isinstance(a, Ended)]
    assert End.COMPLETED not in ends


def test_a_hold_that_a_lease_does_not_have_ends_the_request_and_no_other() -> None:
    """An invariant that breaks in one turn costs that request; the node goes on."""
    world, request = reach("running", COPY)
    other = world.ask("bob", "b", 6)
    lease = world.decode.machine.receptions[request.transfer].lease
    assert lease is not None
    world.decode.step_begin()
    lease.release(Hold.COMPUTE)
    world.decode.step_end()
    assert world.decode.counters["invariant_broken"] == 1
    world.manual.clear()
    world.complete(other)
    world.heal()
    assert world.pages_free() == 16


def test_the_first_guard_that_refuses_is_named_and_the_passed_ones_are_listed() -> None:
    world = World()
    world.tamper[Receipt] = changed(stop=5)
    world.ask("alice", "a", 6)
    world.settle()
    verdict = next(r for r in world.decode.records if r.event == "verdict")
    assert verdict.fields["outcome"] == Reason.RANGE
    passed = [Guard.OUTCOME, Guard.IDENTITY, Guard.INPUT, Guard.LAYOUT]
    assert verdict.fields["checks"] == tuple(passed)
    assert (verdict.fields["stop"], verdict.fields["expected_tokens"]) == (5, 6)
