"""The map of a pool for an onlooker: whoever applies all changes knows what the pool knows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvairlock.core.errors import Misuse
from kvairlock.core.memory.page import PageStage, Verb
from kvairlock.core.memory.page_map import PAGES_MAX, UNTOLD, Changes, Packed, PageView, unpack
from kvairlock.core.memory.pool import Pool
from kvairlock.core.terms import Incarnation, Owner, TransferId

PAGES = 40


def pool_of(pages: int) -> Pool:
    return Pool(pages, 16, Incarnation("a"))


def owner(number: int) -> Owner:
    return Owner.named("acme", TransferId(f"r{number}/1"))


def seen(view: PageView, pool: Pool, most: int = PAGES) -> Changes:
    return view.changes(pool.stage, pool.generation, most)


def test_a_fresh_view_is_told_of_all_pages_and_then_of_those_that_changed() -> None:
    pool, view = pool_of(6), PageView(6)
    first = seen(view, pool)
    assert first.pages.tolist() == [0, 1, 2, 3, 4, 5]
    assert first.stages.tolist() == [PageStage.FREE] * 6
    assert not seen(view, pool)
    lease = pool.reserve(owner(1), 2)
    told = seen(view, pool)
    assert (told.pages.tolist(), told.stages.tolist()) == ([0, 1], [PageStage.RESERVED] * 2)
    pool.end(lease, Verb.RETIRE)
    assert seen(view, pool).generations.tolist() == [1, 1], "content that has ended is a change"


def test_a_page_that_is_again_what_it_was_is_no_change_but_its_content_is() -> None:
    pool, view = pool_of(2), PageView(2)
    seen(view, pool)
    lease = pool.reserve(owner(1), 1)
    pool.end(lease, Verb.RETIRE)
    pool.free(pool.scrub(pool.fence(lease, lease.fence)))
    told = seen(view, pool)
    assert (told.stages.tolist(), told.generations.tolist()) == ([PageStage.FREE], [1])


def test_neighbours_are_one_span() -> None:
    changes = Changes(
        np.array([0, 1, 2, 7, 9, 10], np.int32), np.zeros(6, np.int8), np.zeros(6, np.int64), 0
    )
    assert np.frombuffer(changes.pack().spans, "<i4").tolist() == [0, 3, 7, 1, 9, 2]


def test_what_is_left_out_comes_next_even_if_the_front_is_busy() -> None:
    stage, generation = np.zeros(9, np.int8), np.zeros(9, np.int64)
    view, told = PageView(9), []
    for _ in range(3):
        changes = view.changes(stage, generation, 3)
        told.append((changes.pages.tolist(), changes.rest))
        generation[:3] += 1
    assert told[:2] == [([0, 1, 2], 6), ([3, 4, 5], 6)]
    assert told[2] == ([6, 7, 8], 3), "the busy ones have to wait for their turn"


@given(st.lists(st.tuples(st.integers(0, PAGES - 1), st.integers(0, 11)), max_size=60), st.data())
def test_whoever_applies_all_changes_knows_the_pool(
    edits: list[tuple[int, int]], data: st.DataObject
) -> None:
    stage, generation = np.zeros(PAGES, np.int8), np.zeros(PAGES, np.int64)
    known = np.full((2, PAGES), UNTOLD)
    view = PageView(PAGES)
    for page, new in [*edits, (0, 0)]:
        stage[page], generation[page] = new, generation[page] + 1
        changes = view.changes(stage, generation, data.draw(st.integers(1, PAGES)))
        again = unpack(changes.pack(), PAGES, changes.rest)
        assert again.pages.tolist() == changes.pages.tolist()
        known[:, again.pages] = again.stages, again.generations
    while changes := view.changes(stage, generation, 7):
        known[:, changes.pages] = changes.stages, changes.generations
    assert known[0].tolist() == stage.tolist()
    assert known[1].tolist() == generation.tolist()


def ints(*values: int) -> bytes:
    return np.array(values, "<i4").tobytes()


GOOD = Packed(ints(0, 2, 3, 1), bytes(3), bytes(24))


@pytest.mark.parametrize(
    ("wrong", "rest", "why"),
    [
        (replace(GOOD, spans=ints(0, 2, 3)), 0, "whole number"),
        (replace(GOOD, generations=bytes(23)), 0, "whole number"),
        (replace(GOOD, spans=ints(0, 2, 4, 1)), 0, "not within 4"),
        (replace(GOOD, spans=ints(-1, 2, 3, 1)), 0, "not within 4"),
        (replace(GOOD, spans=ints(0, 3, 3, 0)), 0, "not within 4"),
        (replace(GOOD, spans=ints(0, 2**31 - 1)), 0, "not within 4"),
        (replace(GOOD, spans=ints(0, 2, 1, 1)), 0, "overlap"),
        (replace(GOOD, spans=ints(3, 1, 0, 2)), 0, "do not rise"),
        (replace(GOOD, stages=bytes(2)), 0, "another number"),
        (replace(GOOD, generations=bytes(16)), 0, "another number"),
        (replace(GOOD, stages=bytes([0, 0, len(PageStage)])), 0, "a stage"),
        (replace(GOOD, stages=b"\xff\0\0"), 0, "a stage"),
        (replace(GOOD, generations=bytes(16) + b"\xff" * 8), 0, "a generation"),
        (GOOD, 2, "more pages than there are"),
        (GOOD, -1, "more pages than there are"),
    ],
)
def test_a_map_that_contradicts_itself_is_refused(wrong: Packed, rest: int, why: str) -> None:
    assert unpack(GOOD, 4, 1).pages.tolist() == [0, 1, 3]
    with pytest.raises(Misuse, match=why):
        unpack(wrong, 4, rest)


@pytest.mark.parametrize("step", [1, 2])
def test_a_map_has_so_many_pages_and_no_more(step: int) -> None:
    def said(pages: int) -> Packed:
        numbers = np.arange(0, step * pages, step, dtype=np.int32)
        return Changes(numbers, np.zeros(pages, np.int8), np.zeros(pages, np.int64), 0).pack()

    pool_pages = 2 * PAGES_MAX + 2
    assert unpack(said(PAGES_MAX), pool_pages, 0).pages[-1] == step * (PAGES_MAX - 1)
    with pytest.raises(Misuse, match="more than 65536 pages"):
        unpack(said(PAGES_MAX + 1), pool_pages, 0)
