"""Windows drain on evidence only: a word of their writer, a seal, the end of its process."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvairlock.core.ends import End
from kvairlock.core.errors import Reason
from kvairlock.core.messages import Released, Withdraw
from kvairlock.core.terms import (
    Fence,
    Incarnation,
    LandingPolicy,
    Peer,
    Role,
)
from tests.core.ends import World
from tests.core.ends_parts import (
    DECODE_LIMITS,
    Kept,
    Setup,
    dropped,
)
from tests.core.ends_stages import DECODE, PREFILL, STRANGER, reach

COPY, SEAL, DIRECT = LandingPolicy.COPY, LandingPolicy.SEAL, LandingPolicy.DIRECT


def test_a_window_counts_until_its_writer_has_let_go() -> None:
    limits = replace(DECODE_LIMITS, landing_pages=3)
    world = World(Setup(decode_limits=limits))
    first = world.ask("alice", "a", 6)
    world.deliver_all()
    world.prefill.compute(first.transfer)
    world.prefill.write_piece(first.transfer)
    world.cancel(first)
    second = world.ask("bob", "b", 6)
    world.deliver_all()
    assert world.decode.machine.queue.heads() == [second.transfer]
    world.prefill.write_all(first.transfer)
    world.settle()
    assert world.is_running(second)
    world.heal()
    world.assert_baseline()


@pytest.mark.parametrize("policy", [COPY, SEAL])
def test_a_window_without_a_word_of_its_writer_is_fenced_by_sealing(policy: LandingPolicy) -> None:
    world, request = reach("writing", policy)
    world.lose("p")
    world.advance(100)
    assert len(world.decode.machine.windows) == 1, "the writer still has it mapped"
    world.prefill.write_all(request.transfer)
    world.advance(100)
    assert len(world.decode.machine.windows) == 0
    assert world.decode.machine.books.drain.window_fences[Fence.SEALED] == 1
    world.heal()
    world.assert_baseline()


@pytest.mark.parametrize("policy", LandingPolicy)
def test_a_window_whose_writer_has_died_is_fenced_by_its_end(policy: LandingPolicy) -> None:
    world, request = reach("writing", policy)
    world.lose("p")
    world.advance(5_000)
    assert len(world.decode.machine.windows) == 1
    held = world.pages_free() < world.decode.machine.books.pool.pages
    assert held is (policy is DIRECT), "only direct writes reach pool pages"
    world.kill("p")
    assert len(world.decode.machine.windows) == 0
    assert world.decode.machine.books.drain.window_fences[Fence.PROCESS_GONE] >= 1
    assert world.refusal(request).reason is Reason.PEER_LOST
    world.heal()
    world.assert_baseline()


def test_a_release_that_comes_after_the_fence_changes_nothing() -> None:
    world, request = reach("writing", COPY)
    kept = Kept()
    world.tamper[Released] = lambda message: kept(message)[:0]
    world.cancel(request)
    world.deliver_all()
    world.prefill.write_all(request.transfer)
    world.advance(101)
    drain = world.decode.machine.books.drain
    assert (drain.window_fences, drain.fences) == ({Fence.SEALED: 1}, {Fence.LOCAL: 1})
    world.repeat(kept.messages[0], world.prefill.peer, DECODE)
    assert (drain.window_fences, drain.fences) == ({Fence.SEALED: 1}, {Fence.LOCAL: 1})
    assert world.decode.counters["ignored"] == 1
    world.heal()
    world.assert_baseline()


@pytest.mark.parametrize(
    "stranger",
    [STRANGER, Peer(PREFILL, Role.PREFILL, Incarnation("p-0"))],
    ids=["another node", "another life"],
)
def test_only_the_writer_itself_can_release_its_window(stranger: Peer) -> None:
    world, request = reach("writing", DIRECT)
    world.cancel(request)
    world.repeat(Released(request.transfer, world.prefill.writing[0].window, 0), stranger, DECODE)
    assert len(world.decode.machine.windows) == 1
    assert world.pages_free() < 16
    world.heal()
    world.assert_baseline()


@pytest.mark.parametrize("policy", LandingPolicy)
def test_a_window_for_which_there_is_no_room_ends_its_request_at_once(
    policy: LandingPolicy,
) -> None:
    world = World(Setup(policy=policy))
    world.decode.fails_windows = True
    world.tamper[Withdraw] = dropped
    request = world.ask("alice", "a", 6)
    assert world.refusal(request).reason is Reason.CAPACITY
    assert len(world.decode.machine.windows) == 0
    books = world.decode.machine.books
    assert books.pool.pages_free == books.pool.pages
    assert books.drain.fences == books.drain.window_fences == {Fence.LOCAL: 1}


@pytest.mark.parametrize("policy", LandingPolicy)
def test_a_window_that_fails_after_the_cancel_is_not_waited_for(policy: LandingPolicy) -> None:
    world = World(Setup(policy=policy))
    world.decode.fails_windows = True
    world.tamper[Withdraw] = dropped
    world.manual.add("window failed")
    request = world.ask("alice", "a", 6)
    world.cancel(request)
    world.run("window failed")
    world.settle()
    assert world.ended(request).end is End.CANCELLED
    assert len(world.decode.machine.windows) == 0, "nobody was ever granted it"
    assert world.pages_free() == world.decode.machine.books.pool.pages
