"""Flaws and cuts are armed like places, and only where drills may be."""

from __future__ import annotations

import pytest

from kvairlock.runtime.failpoints import (
    POINTS,
    Cut,
    Failpoint,
    FailpointError,
    Failpoints,
    Flaw,
    Reached,
    point_named,
)


def test_no_flaw_can_be_armed_unless_enabled() -> None:
    points = Failpoints(enabled=False)
    for flaw in Flaw:
        with pytest.raises(FailpointError):
            points.arm(flaw)
        assert not points.strikes(flaw)


def test_a_flaw_strikes_until_it_is_released_and_says_so() -> None:
    told: list[Reached] = []
    points = Failpoints(enabled=True, on_reached=told.append)
    points.arm(Flaw.TORN, after=1)
    assert not points.strikes(Flaw.TORN, "first")
    assert points.strikes(Flaw.TORN, "second")
    assert points.strikes(Flaw.TORN, "third")
    assert not points.strikes(Flaw.ORDER, "another")
    assert told == [Reached(Flaw.TORN, "second"), Reached(Flaw.TORN, "third")]
    assert points.reached() == ()
    points.release(Flaw.TORN)
    assert not points.strikes(Flaw.TORN, "fourth")


def test_a_cut_is_armed_until_it_is_released_and_nobody_arrives_there() -> None:
    points = Failpoints(enabled=True)
    points.arm(Cut.HELD)
    assert (points.armed(Cut.HELD), points.armed(Cut.BROKEN)) == (True, False)
    assert points.reached() == ()
    points.release(Cut.HELD)
    assert not points.armed(Cut.HELD)
    with pytest.raises(FailpointError, match=r"link.held is cut at once, not after 1 arrivals"):
        points.arm(Cut.HELD, after=1)
    assert not points.armed(Cut.HELD)


def test_all_are_released_at_the_end() -> None:
    points = Failpoints(enabled=True)
    for point in POINTS:
        points.arm(point)
    points.release_all()
    assert [point for point in POINTS if points.armed(point)] == []


def test_points_are_known_by_names_of_their_own() -> None:
    assert [point_named(str(point)) for point in POINTS] == [*Failpoint, *Flaw, *Cut]
    assert len({str(point) for point in POINTS}) == len(POINTS)
    with pytest.raises(FailpointError, match="no failpoint is called nothing"):
        point_named("nothing")
