"""Lender and borrower whose pages change while they serve."""

from __future__ import annotations

from kvairlock.core.ends import End
from kvairlock.core.errors import Reason, Stage
from kvairlock.core.memory.page import PageStage
from tests.core.pull.pulls import PullSetup, PullWorld
from tests.core.resizes import fits, reports, resize


def test_a_prompt_that_waits_at_a_lender_is_declined_at_once_with_the_new_limit() -> None:
    world = PullWorld(PullSetup(prefill_pages=4))
    first = world.order(world.make("alice", "a", 8))
    large = world.order(world.make("bob", "b", 12))
    small = world.order(world.make("bob", "c", 4))
    assert world.lender.machine.queue == [large.transfer, small.transfer]
    resize(world.lender, 2)
    declined = world.lender.declined[large.transfer]
    assert (declined.reason, declined.stage) == (Reason.CONTEXT_LENGTH, Stage.PREFILL_ADMISSION)
    assert (declined.asked, declined.limit) == (12, 8)
    assert world.lender.machine.queue == [small.transfer]
    world.compute_all()
    world.refer(first)
    world.complete(first)
    world.compute_all()
    world.refer(small)
    world.complete(small)
    assert fits(world.lender)
    world.heal()
    world.assert_baseline()


def test_what_is_lent_stays_until_it_is_given_back_and_is_withdrawn_then() -> None:
    world = PullWorld(PullSetup(prefill_pages=4))
    request = world.ask("alice", "a", 8)
    resize(world.lender, 0)
    pool = world.lender.machine.books.pool
    assert (pool.pages_withdrawn, pool.pages_surplus) == (2, 2)
    world.complete(request)
    assert world.ended(request).end is End.COMPLETED
    assert pool.count()[PageStage.WITHDRAWN] == 4
    assert [r["epoch"] for r in reports(world.lender)] == [1]
    world.heal()
    world.assert_baseline()


def test_a_borrower_judges_again_who_waits_for_pages_to_read_into() -> None:
    world = PullWorld(PullSetup(decode_pages=4))
    running = world.ask("alice", "a", 8)
    world.settle()
    large = world.ask("bob", "b", 12, max_tokens=4)
    small = world.ask("bob", "c", 4, max_tokens=4)
    assert world.decode.machine.queue.heads() == [large.transfer]
    resize(world.decode, 3)
    refusal = world.refusal(large)
    assert (refusal.reason, refusal.asked, refusal.limit) == (Reason.CONTEXT_LENGTH, 16, 12)
    world.complete(running)
    world.complete(small)
    assert fits(world.decode)
    world.heal()
    world.assert_baseline()
