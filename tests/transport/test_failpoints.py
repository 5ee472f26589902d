from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from queue import Queue

import pytest

from kvairlock.runtime.failpoints import Failpoint, FailpointError, Failpoints, Passage, Reached

TIMEOUT_S = 20.0


def started(call: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    return thread


def test_nothing_can_be_armed_unless_enabled() -> None:
    points = Failpoints(enabled=False)
    with pytest.raises(FailpointError):
        points.arm(Failpoint.LAND)
    assert not points.armed(Failpoint.LAND)
    assert points.reach(Failpoint.LAND) is Passage.PASSED


def test_an_armed_point_holds_until_released() -> None:
    told: Queue[Reached] = Queue()
    passages: Queue[Passage] = Queue()
    points = Failpoints(enabled=True, on_reached=told.put)
    points.arm(Failpoint.LAND)

    def arrive(detail: str) -> None:
        passages.put(points.reach(Failpoint.LAND, detail))

    threads = [started(partial(arrive, detail)) for detail in ("a", "b")]
    held = {told.get(timeout=TIMEOUT_S), told.get(timeout=TIMEOUT_S)}
    assert held == {Reached(Failpoint.LAND, "a"), Reached(Failpoint.LAND, "b")}
    assert set(points.reached()) == held
    assert passages.empty()
    assert points.reach(Failpoint.DECODE_STEP) is Passage.PASSED
    points.release(Failpoint.LAND)
    for thread in threads:
        thread.join(TIMEOUT_S)
    assert [passages.get_nowait(), passages.get_nowait()] == [Passage.HELD, Passage.HELD]
    assert points.reached() == ()
    assert not points.armed(Failpoint.LAND)
    assert points.reach(Failpoint.LAND) is Passage.PASSED


def test_the_first_arrivals_pass() -> None:
    told: Queue[Reached] = Queue()
    points = Failpoints(enabled=True, on_reached=told.put)
    points.arm(Failpoint.WRITE_PIECE, after=2)
    assert points.reach(Failpoint.WRITE_PIECE, "0") is Passage.PASSED
    assert points.reach(Failpoint.WRITE_PIECE, "1") is Passage.PASSED
    assert points.armed(Failpoint.WRITE_PIECE)
    thread = started(lambda: points.reach(Failpoint.WRITE_PIECE, "2"))
    assert told.get(timeout=TIMEOUT_S).detail == "2"
    points.release(Failpoint.WRITE_PIECE)
    thread.join(TIMEOUT_S)
    assert not thread.is_alive()


def test_what_was_ever_armed_is_known_after_its_release() -> None:
    points = Failpoints(enabled=True)
    assert points.once_armed() == ()
    points.arm(Failpoint.LAND)
    points.release(Failpoint.LAND)
    points.arm(Failpoint.DECODE_STEP)
    assert points.once_armed() == (Failpoint.DECODE_STEP, Failpoint.LAND)


def test_arming_is_refused_twice_and_for_a_negative_count() -> None:
    points = Failpoints(enabled=True)
    points.arm(Failpoint.LAND)
    with pytest.raises(FailpointError):
        points.arm(Failpoint.LAND)
    points.release(Failpoint.LAND)
    points.release(Failpoint.LAND)
    with pytest.raises(FailpointError):
        points.arm(Failpoint.LAND, after=-1)
    points.arm(Failpoint.LAND)
