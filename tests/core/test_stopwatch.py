"""The stopwatch reads records and nothing else: each wait is counted once, under what it was."""

from __future__ import annotations

from typing import Any

import pytest

from kvairlock.core.effects import Record
from kvairlock.core.evidence import EVENTS
from kvairlock.core.stopwatch import Stopwatch
from kvairlock.core.terms import NS_PER_MS, Fence, Instant, Owner
from kvairlock.core.waits import BOUNDS_MS, Wait, Waited

OWNER = Owner("acme", "r-1", 1)
PROMPT = 300


class Told:
    """A stopwatch that is told records, a time in milliseconds with each."""

    def __init__(self, requests_min: int = 0) -> None:
        self.watch = Stopwatch(requests_min)

    def at(self, ms: int, event: str, owner: Owner | None = OWNER, **fields: Any) -> Told:
        assert fields.keys() <= EVENTS[event].keys(), "such a record is never made"
        self.watch.note(Record(event, owner, fields), Instant(ms * NS_PER_MS))
        return self

    def admitted(self, ms: int, owner: Owner = OWNER, prompt: int = PROMPT) -> Told:
        return self.at(ms, "request_admitted", owner, prompt_tokens=prompt)

    def granted(self, ms: int, lease: int = 1, owner: Owner = OWNER) -> Told:
        return self.at(ms, "pages_allocated", owner, lease=lease)

    def waits(self, wait: Wait) -> list[tuple[str, str, Fence | None, int, int]]:
        found = [w for w in self.watch.waited() if w.wait is wait]
        return [(w.length, w.cause, w.fence, w.count, w.sum_ms) for w in found]


def test_a_request_waits_for_pages_then_for_its_verdict() -> None:
    told = Told().admitted(10).granted(40).at(95, "verdict", outcome="admitted")
    told.at(500, "request_ended", end="completed")
    assert told.waits(Wait.QUEUE) == [("1024", "granted", None, 1, 30)]
    assert told.waits(Wait.HANDOVER) == [("1024", "admitted", None, 1, 55)]


def test_on_prefill_a_hand_over_ends_with_the_receipt() -> None:
    told = Told().admitted(0).granted(5).at(25, "receipt_sent", outcome="completed")
    assert told.waits(Wait.HANDOVER) == [("1024", "completed", None, 1, 20)]


@pytest.mark.parametrize(("pages", "wait"), [(False, Wait.QUEUE), (True, Wait.HANDOVER)])
def test_who_gives_up_waited_too(pages: bool, wait: Wait) -> None:
    told = Told().admitted(0)
    if pages:
        told.granted(0)
    told.at(70, "request_ended", end="timed_out")
    assert told.waits(wait) == [("1024", "ended", None, 1, 70)]


def test_what_is_recomputed_queues_again_and_is_handed_over_no_more() -> None:
    told = Told().admitted(0).granted(10).at(30, "request_recomputed", reason="timeout")
    told.granted(35, lease=2).at(90, "request_ended", end="completed")
    assert told.waits(Wait.QUEUE) == [("1024", "granted", None, 2, 15)]
    assert told.waits(Wait.HANDOVER) == [("1024", "timeout", None, 1, 20)]


def test_a_refusal_of_what_was_never_admitted_is_no_wait() -> None:
    told = Told().at(5, "receipt_sent", outcome="rejected").at(9, "request_ended", end="rejected")
    assert told.watch.waited() == ()


def test_a_drain_is_counted_by_its_cause_its_fence_and_the_length_of_its_request() -> None:
    told = Told().admitted(0).granted(1, lease=7).at(2, "request_ended", end="cancelled")
    told.at(2, "drain_began", lease=7, cause="cancelled")
    told.at(62, "drain_ended", lease=7, fence="acknowledged", wait_ms=60)
    assert told.waits(Wait.DRAIN) == [("1024", "cancelled", Fence.ACKNOWLEDGED, 1, 60)]


def test_a_drain_of_pages_that_no_one_request_held_has_no_length() -> None:
    told = Told().at(0, "drain_began", lease=9, cause="evicted")
    told.at(0, "drain_ended", lease=9, fence="local", wait_ms=0)
    assert told.waits(Wait.DRAIN) == [("other", "evicted", Fence.LOCAL, 1, 0)]


def test_a_window_outlives_its_request_and_keeps_its_length() -> None:
    told = Told().admitted(0).granted(0).at(0, "window_granted", window="w")
    told.at(10, "request_ended", end="cancelled")
    told.at(900, "window_fenced", window="w", fence="process_gone", wait_ms=890)
    assert told.waits(Wait.WINDOW) == [("1024", "", Fence.PROCESS_GONE, 1, 890)]


def test_a_wait_is_shown_with_enough_others_and_what_comes_after_waits_for_more() -> None:
    told = Told(requests_min=3)
    for number, ms in enumerate((1, 5, 30, 60_000)):
        owner = Owner("acme", f"r-{number}", 1)
        assert told.waits(Wait.QUEUE) == ([("1024", "granted", None, 3, 36)] if number > 2 else [])
        told.admitted(0, owner).granted(ms, number, owner)
    (found,) = told.watch.waited()
    assert found.within_ms == {1: 1, 5: 1, 50: 1}, "the long one is not among them yet"
    assert (found.count, found.sum_ms) == (3, 36)


@pytest.mark.parametrize(
    ("wait_ms", "bucket"), [(0, 1), (1, 1), (2, 5), (300_000, 300_000), (300_001, None)]
)
def test_a_wait_is_in_the_first_bucket_that_holds_it(wait_ms: int, bucket: int | None) -> None:
    told = Told().admitted(0).granted(wait_ms)
    (found,) = told.watch.waited()
    assert found.within_ms == ({} if bucket is None else {bucket: 1})
    assert (found.count, found.sum_ms) == (1, wait_ms)


def test_bounds_rise() -> None:
    assert list(BOUNDS_MS) == sorted(set(BOUNDS_MS))


def test_nothing_is_kept_of_what_has_ended() -> None:
    told = Told().admitted(0).granted(1, lease=7).at(2, "window_granted", window="w")
    told.at(3, "request_ended", end="completed").at(3, "drain_began", lease=7, cause="completed")
    told.at(4, "drain_ended", lease=7, fence="local", wait_ms=1)
    told.at(5, "window_fenced", window="w", fence="sealed", wait_ms=2)
    watch = told.watch
    assert (watch._underway, watch._leases, watch._windows) == ({}, {}, {})


def test_a_histogram_names_nobody() -> None:
    told = Told().admitted(0).granted(1).at(2, "verdict", outcome="admitted")
    for found in told.watch.waited():
        assert isinstance(found, Waited)
        assert not {"acme", "r-1"} & {found.length, found.cause}


@pytest.mark.parametrize(
    "wrong",
    [
        {"length": "acme"},
        {"cause": "acme"},
        {"within_ms": {3: 1}},
        {"within_ms": {10: 3}},
        {"within_ms": {10: -1}},
        {"count": -1, "within_ms": {}},
        {"sum_ms": -1},
    ],
    ids=str,
)
def test_a_histogram_with_other_words_or_figures_is_refused(wrong: dict[str, Any]) -> None:
    right: dict[str, Any] = {"length": "256", "cause": "granted", "count": 2, "sum_ms": 9}
    right["within_ms"] = {10: 1}
    assert Waited(wait=Wait.QUEUE, fence=None, **right)
    with pytest.raises(ValueError, match="a wait"):
        Waited(wait=Wait.QUEUE, fence=None, **right | wrong)
