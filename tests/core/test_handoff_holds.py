"""Pages stay held until their last reader or writer has ended, whatever became of the request."""

from __future__ import annotations

import pytest

from kvairlock.core.ends import End
from kvairlock.core.memory.page import PageStage
from kvairlock.core.messages import Receipt, Released
from kvairlock.core.terms import (
    Fence,
    LandingPolicy,
)
from tests.core.ends_parts import (
    PAGE_BYTES,
)
from tests.core.ends_stages import reach

COPY, SEAL, DIRECT = LandingPolicy.COPY, LandingPolicy.SEAL, LandingPolicy.DIRECT


@pytest.mark.parametrize("policy", LandingPolicy)
def test_pages_of_a_step_stay_until_the_step_has_ended(policy: LandingPolicy) -> None:
    world, request = reach("stepping", policy)
    free = world.pages_free()
    world.cancel(request)
    world.settle()
    assert world.ended(request).end is End.CANCELLED
    assert world.pages_free() == free
    pool = world.decode.machine.books.pool
    assert pool.count()[PageStage.DRAINING] == 2
    world.advance(60_000)
    assert world.pages_free() == free, "time frees nothing"
    world.decode.step_end()
    assert world.pages_free() == pool.pages
    world.heal()
    world.assert_baseline()


@pytest.mark.parametrize("policy", LandingPolicy)
def test_pages_that_are_landed_into_stay_until_the_landing_has_ended(policy: LandingPolicy) -> None:
    world, request = reach("landing", policy)
    free = world.pages_free()
    world.cancel(request)
    world.settle()
    world.advance(60_000)
    assert world.pages_free() == free
    world.run("land")
    assert world.pages_free() == world.decode.machine.books.pool.pages
    assert world.ended(request).end is End.CANCELLED
    assert not world.is_running(request)
    world.heal()
    world.assert_baseline()


@pytest.mark.parametrize("policy", LandingPolicy)
def test_a_window_stays_open_while_it_is_landed(policy: LandingPolicy) -> None:
    """Its writer has released it and its request has ended, but a thread of ours reads it."""
    world, request = reach("landing", policy)
    world.cancel(request)
    assert list(world.decode.windows) == ["w1"]
    world.run("land")
    world.settle()
    assert not world.decode.windows
    assert not world.decode.faults
    world.heal()
    world.assert_baseline()


@pytest.mark.parametrize("stage", ["computing", "digesting", "writing"])
def test_prefill_keeps_its_pages_until_their_last_reader_or_writer(stage: str) -> None:
    world, request = reach(stage, COPY)
    pool = world.prefill.machine.books.pool
    world.cancel(request)
    world.deliver_all()
    assert pool.pages_free == 14
    world.advance(60_000)
    assert pool.pages_free == 14, "time frees nothing"
    world.compute_all()
    world.run("digest")
    assert (pool.pages_free == 16) is (stage != "writing")
    world.write_all()
    assert pool.pages_free == 16
    world.heal()
    world.assert_baseline()


def test_a_write_goes_on_after_the_cancel_and_reports_itself() -> None:
    world, request = reach("writing", COPY)
    world.cancel(request)
    world.deliver_all()
    assert len(world.decode.machine.windows) == 1
    assert world.decode.machine.windows.pages_draining("alice") == 2
    world.prefill.write_all(request.transfer)
    released = world.in_flight(Released)
    assert [(r.window, r.bytes_written) for r in released] == [("w1", 2 * PAGE_BYTES)]
    assert not world.in_flight(Receipt), "a write of an ended request has no receipt"
    world.deliver_all()
    assert len(world.decode.machine.windows) == 0
    fenced = [r for r in world.decode.records if r.event == "window_fenced"]
    assert fenced[0].fields["fence"] == Fence.ACKNOWLEDGED
    assert fenced[0].fields["bytes_written"] == 2 * PAGE_BYTES
    world.assert_baseline()
