"""How often something happened within a window, against a count by hand."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kvairlock.core.promise.recent import Recent
from kvairlock.core.terms import NS_PER_MS, Instant

WITHIN_MS = 100


def at(ms: int) -> Instant:
    return Instant(10_000 * NS_PER_MS + ms * NS_PER_MS)


def test_what_is_as_old_as_the_window_no_longer_counts() -> None:
    recent = Recent(WITHIN_MS, 10)
    assert recent.count(at(0)) == 0
    assert (recent.add(at(0)), recent.add(at(40))) == (1, 2)
    assert (recent.count(at(99)), recent.count(at(100)), recent.count(at(140))) == (2, 1, 0)


def test_it_says_when_there_will_be_fewer() -> None:
    recent = Recent(WITHIN_MS, 10)
    assert recent.fewer_at(at(5)) == at(5)
    recent.add(at(10))
    recent.add(at(20))
    assert recent.fewer_at(at(30)) == at(110)
    assert recent.fewer_at(at(110)) == at(120)


def test_more_than_anybody_asks_about_is_not_kept() -> None:
    recent = Recent(WITHIN_MS, 3)
    assert [recent.add(at(ms)) for ms in range(6)] == [1, 2, 3, 3, 3, 3]
    assert recent.count(at(102)) == 3, "the oldest went, not the newest"
    recent.clear()
    assert recent.count(at(102)) == 0


@given(waits=st.lists(st.integers(0, 60), max_size=60), most=st.integers(1, 20))
def test_it_counts_as_a_list_does(waits: list[int], most: int) -> None:
    recent, happened, now = Recent(WITHIN_MS, most), [], 0
    for wait in waits:
        now += wait
        happened.append(now)
        expected = sum(moment > now - WITHIN_MS for moment in happened)
        assert recent.add(at(now)) == min(expected, most)
