"""A node whose pages change while it serves: who runs, who waits, who comes new."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kvairlock.core.ends import End
from kvairlock.core.errors import Reason, Stage
from kvairlock.core.guards import Guard
from kvairlock.core.memory.page import PageStage
from kvairlock.core.messages import Receipt
from kvairlock.core.protocol.handoff import HandoffStage
from kvairlock.core.terms import LandingPolicy
from tests.core.ends import World
from tests.core.ends_parts import DECODE_LIMITS, PAGE_TOKENS, Request, Setup
from tests.core.ends_recovery import recover, stage_of
from tests.core.resizes import fits, reports, resize

S = PageStage
UNCHECKED = frozenset({Guard.CAPACITY})


def told(world: World, request: Request) -> tuple[Reason, Stage, int | None, int | None]:
    """Why a request was refused, where, and the figures."""
    refusal = world.refusal(request)
    return refusal.reason, refusal.stage, refusal.asked, refusal.limit


def counts(world: World) -> dict[PageStage, int]:
    return world.decode.machine.books.pool.count()


# Figures


def test_free_pages_are_withdrawn_at_once_and_the_report_is_a_new_epoch() -> None:
    world = World(Setup(decode_pages=16))
    resize(world.decode, 10)
    books = world.decode.machine.books
    assert (books.report.pages, books.report.epoch) == (10, 1)
    assert counts(world) == dict.fromkeys(S, 0) | {S.FREE: 10, S.WITHDRAWN: 6}
    resize(world.decode, 13)
    assert (books.report.pages, books.report.epoch) == (13, 2)
    assert counts(world) == dict.fromkeys(S, 0) | {S.FREE: 13, S.WITHDRAWN: 3}
    assert [(r["epoch"], r["pool_pages"], r["cause"]) for r in reports(world.decode)] == [
        (1, 10, "resized"),
        (2, 13, "resized"),
    ]
    assert {r["fingerprint"] for r in reports(world.decode)} == {"f"}
    assert {r["landing_pages"] for r in reports(world.decode)} == {8}


def test_what_is_already_so_is_no_new_report() -> None:
    world = World(Setup(decode_pages=16))
    resize(world.decode, 16)
    assert world.decode.machine.books.report.epoch == 0
    assert reports(world.decode) == []


@pytest.mark.parametrize("pages", [-1, 17])
def test_more_than_was_mapped_changes_nothing_and_is_recorded(pages: int) -> None:
    world = World(Setup(decode_pages=16))
    resize(world.decode, pages)
    books = world.decode.machine.books
    assert (books.report.pages, books.report.epoch, books.pool.pages_free) == (16, 0, 16)
    (ignored,) = [r for r in world.decode.records if r.event == "message_ignored"]
    assert ignored.fields["message"] == "resize"


def test_pages_in_use_are_withdrawn_when_they_come_back_and_before_anybody_has_them() -> None:
    world = World(Setup(decode_pages=6))
    world.settle()
    running = world.ask("alice", "a", 8)
    world.settle()
    assert counts(world)[S.FREE] == 3
    resize(world.decode, 2)
    assert (counts(world)[S.FREE], counts(world)[S.WITHDRAWN]) == (0, 3)
    waiting = world.ask("bob", "b", 4, max_tokens=4)
    world.settle()
    assert not world.is_running(waiting), "of its two pages none is there yet"
    world.decode.step()
    world.manual |= {"scrub"}
    world.decode.finish(running)
    assert world.ended(running).end is End.COMPLETED, "who runs finishes"
    assert counts(world)[S.FENCED] == 3
    world.run("scrub")
    world.settle()
    assert fits(world.decode)
    assert world.is_running(waiting), "two of the three pages are left to it"
    assert counts(world)[S.WITHDRAWN] == 4
    world.heal()
    assert counts(world) == dict.fromkeys(S, 0) | {S.FREE: 2, S.WITHDRAWN: 4}
    world.assert_baseline()


def test_restored_pages_are_in_a_later_life_than_every_old_reference() -> None:
    world = World(Setup(decode_pages=3))
    pool = world.decode.machine.books.pool
    first = world.ask("alice", "a", 8)
    world.complete(first)
    spans = [r.fields for r in world.decode.records if r.event == "pages_allocated"]
    resize(world.decode, 0)
    resize(world.decode, 3)
    pages, generations = spans[0]["pages"], spans[0]["generations"]
    assert isinstance(pages, tuple)
    assert isinstance(generations, tuple)
    assert all(pool.generation[list(map(int, pages))] > np.array(generations))
    world.complete(world.ask("bob", "b", 8))
    assert not world.leaks
    world.assert_baseline()


# Decode's queue


def crowded() -> tuple[World, Request, Request, Request]:
    """One runs on 3 of 4 pages; one that needs 4 waits, and behind it one that needs 2."""
    world = World(Setup(decode_pages=4))
    world.settle()
    running = world.ask("alice", "a", 8)
    world.settle()
    large = world.ask("bob", "b", 12, max_tokens=4)
    small = world.ask("bob", "c", 4, max_tokens=4)
    world.settle()
    assert world.is_running(running)
    assert world.decode.machine.queue.heads() == [large.transfer]
    return world, running, large, small


def test_who_waits_and_can_never_fit_is_refused_at_once_with_the_new_limit() -> None:
    world, running, large, small = crowded()
    resize(world.decode, 3)
    assert told(world, large) == (
        Reason.CONTEXT_LENGTH,
        Stage.DECODE_ADMISSION,
        16,
        3 * PAGE_TOKENS,
    )
    assert world.decode.machine.queue.heads() == [small.transfer], "nobody waits behind it"
    assert world.is_running(running)
    world.complete(running)
    assert world.is_running(small), "without any time having passed"
    world.complete(small)
    assert fits(world.decode)
    world.assert_baseline()


def test_without_the_guard_they_wait_for_what_never_comes_and_so_do_all_behind_them() -> None:
    """What the guard is for: off, the queue stands until the deadline."""
    world = World(Setup(decode_pages=4, off_decode=UNCHECKED))
    world.settle()
    running = world.ask("alice", "a", 8)
    world.settle()
    large = world.ask("bob", "b", 12, max_tokens=4)
    small = world.ask("bob", "c", 4, max_tokens=4)
    resize(world.decode, 3)
    world.complete(running)
    assert not world.is_running(small)
    assert world.decode.machine.queue.heads() == [large.transfer]
    world.advance(DECODE_LIMITS.queue_ms)
    assert world.refusal(large).reason is Reason.CAPACITY
    world.heal()
    world.assert_baseline()


def test_new_requests_are_judged_by_the_new_figures() -> None:
    world = World(Setup(decode_pages=4))
    resize(world.decode, 3)
    over = world.ask("alice", "a", 8, max_tokens=5)
    assert told(world, over) == (Reason.CONTEXT_LENGTH, Stage.DECODE_ADMISSION, 13, 12)
    world.complete(world.ask("alice", "b", 8, max_tokens=4))
    resize(world.decode, 4)
    world.complete(world.ask("alice", "c", 8, max_tokens=5))
    world.assert_baseline()


def test_a_node_without_any_pages_refuses_all_and_serves_again() -> None:
    world, running, large, small = crowded()
    resize(world.decode, 0)
    for request in (large, small):
        assert world.refusal(request).reason is Reason.CONTEXT_LENGTH
        assert world.refusal(request).limit == 0
    world.complete(running)
    assert counts(world)[S.WITHDRAWN] == 4
    resize(world.decode, 4)
    world.complete(world.ask("alice", "d", 8))
    world.assert_baseline()


def test_who_waits_for_pages_to_recover_in_is_judged_again_too() -> None:
    world, request = recover("waiting", LandingPolicy.COPY)
    assert stage_of(world, request) is HandoffStage.RECOVERING
    resize(world.decode, 1)
    assert told(world, request) == (
        Reason.CONTEXT_LENGTH,
        Stage.DECODE_ADMISSION,
        8,
        PAGE_TOKENS,
    )
    world.kill("p")
    world.heal()
    world.assert_baseline()


def test_who_has_pages_to_recover_in_goes_on() -> None:
    world, request = recover("first_chunk", LandingPolicy.COPY)
    resize(world.decode, 1)
    world.decode.compute_end(request.transfer)
    assert world.is_running(request)
    world.kill("p")
    world.decode.finish(request)
    assert world.ended(request).end is End.COMPLETED
    world.heal()
    world.assert_baseline()


def test_who_loses_its_evidence_after_the_node_has_become_too_small_is_not_started_over() -> None:
    """It would wait, and all others behind it, for what never comes."""
    limits = replace(DECODE_LIMITS, recompute_tokens_per_min=1_000)
    world = World(Setup(decode_pages=4, decode_limits=limits))
    world.manual |= {"digest"}
    request = world.ask("alice", "a", 8)
    world.deliver_all()
    resize(world.decode, 2)
    world.lose("p")
    assert world.refusal(request).reason is Reason.PEER_LOST
    assert world.decode.machine.budget.spend(1_000, world.now), "nothing was spent on it"
    assert not world.decode.machine.queue
    world.kill("p")
    world.heal()
    world.assert_baseline()


# Prefill's queue


def queued_at_prefill() -> tuple[World, Request, Request, Request]:
    """One is computed on 2 of 4 pages; one that needs 3 waits, and behind it one that needs 1."""
    world = World(Setup(prefill_pages=4, tenant_pages=16))
    computing = world.ask("alice", "a", 8)
    large, small = world.ask("bob", "b", 12), world.ask("bob", "c", 4)
    world.deliver_all()
    assert list(world.prefill.computing) == [computing.transfer]
    assert world.prefill.machine.queue == [large.transfer, small.transfer]
    return world, computing, large, small


def test_a_prompt_that_waits_on_prefill_is_refused_as_a_refusal_and_not_as_a_failure() -> None:
    world, computing, large, small = queued_at_prefill()
    resize(world.prefill, 2)
    assert world.prefill.machine.queue == [small.transfer]
    (receipt,) = world.in_flight(Receipt)
    assert (receipt.transfer, receipt.outcome, receipt.digests) == (
        large.transfer,
        End.REJECTED,
        (),
    )
    world.deliver_all()
    assert told(world, large) == (Reason.CONTEXT_LENGTH, Stage.PREFILL_ADMISSION, 12, 8)
    for request in (computing, small):
        world.complete(request)
    assert fits(world.prefill)
    world.heal()
    world.assert_baseline()


def test_without_the_guard_prompts_wait_behind_what_never_fits() -> None:
    world = World(Setup(prefill_pages=4, tenant_pages=16, off_prefill=UNCHECKED))
    computing = world.ask("alice", "a", 8)
    large, small = world.ask("bob", "b", 12), world.ask("bob", "c", 4)
    world.deliver_all()
    resize(world.prefill, 2)
    world.complete(computing)
    assert world.prefill.machine.queue == [large.transfer, small.transfer]
    world.advance(DECODE_LIMITS.prefill_ms)
    assert world.refusal(large).reason is Reason.TIMEOUT
    world.heal()
    world.assert_baseline()


def test_a_prefill_node_without_pages_refuses_new_prompts_with_its_limit() -> None:
    world = World(Setup(prefill_pages=4))
    resize(world.prefill, 0)
    request = world.ask("alice", "a", 4)
    world.settle()
    assert told(world, request) == (Reason.CONTEXT_LENGTH, Stage.PREFILL_ADMISSION, 4, 0)
    world.assert_baseline()


def kept_prefixes(pages: int) -> World:
    """A prefill node that keeps two prompts of two pages each as prefixes."""
    limits = replace(Setup().prefill_limits, prefix_pages=4)
    world = World(Setup(prefill_pages=pages, prefill_limits=limits))
    for number in range(2):
        world.complete(world.ask("alice", f"a{number}", 8, scope="alice"))
    assert world.prefill.machine.prefixes.pages == 4
    return world


def test_idle_prefixes_make_way_the_oldest_first() -> None:
    world = kept_prefixes(6)
    resize(world.prefill, 3)
    assert world.prefill.machine.prefixes.pages == 2
    assert fits(world.prefill)
    kept = [entry.creator.request for entry in world.prefill.machine.prefixes.entries]
    assert kept == ["a1"]
    resize(world.prefill, 1)
    assert world.prefill.machine.prefixes.pages == 0
    world.assert_baseline()


def test_prefixes_that_need_not_make_way_stay() -> None:
    world = kept_prefixes(6)
    resize(world.prefill, 4)
    assert world.prefill.machine.prefixes.pages == 4
    world.assert_baseline()


def test_prefixes_in_use_make_way_when_their_reader_has_ended() -> None:
    world = kept_prefixes(6)
    beginning = world.requests[next(iter(world.requests))].tokens
    request = world.ask("alice", "b", (*beginning, 1), scope="alice")
    world.deliver_all()
    assert world.prefill.machine.prefixes.pages_idle == 2
    resize(world.prefill, 0)
    assert world.prefill.machine.prefixes.pages == 2, "a request reads them"
    world.complete(request)
    assert world.prefill.machine.prefixes.pages == 0
    assert fits(world.prefill)
    world.assert_baseline()


def test_pages_that_are_on_their_way_are_not_counted_on_if_they_will_be_withdrawn() -> None:
    world = kept_prefixes(6)
    world.manual |= {"scrub"}
    world.complete(world.ask("bob", "b", 8))
    assert world.prefill.machine.books.pool.pages_coming == 2
    resize(world.prefill, 4)
    assert world.prefill.machine.books.pool.pages_coming == 0
    assert world.prefill.machine.prefixes.pages == 4
    waiting = world.ask("carol", "c", 8)
    world.deliver_all()
    assert world.prefill.machine.prefixes.pages == 2, "a prefix makes room, in the same turn"
    world.run("scrub")
    assert list(world.prefill.computing) == [waiting.transfer]
    assert fits(world.prefill)
    world.complete(waiting)
    world.heal()
    world.assert_baseline()
