"""The map of a pool for somebody who looks at it: all pages once, then only those that changed.

    pool: stage, generation ---+
                               +--> PageView.changes(most) --> Changes: pages, stages, generations
    what was told last --------+                                  |  pack / unpack
                                                                  v
                                                 spans (first, count), one byte and eight per page

A view remembers what its onlooker was told, and a fresh one knows of no page. So the whole map is
no case of its own, nothing that is missed is missed for good, and who looks seldom gets one large
difference instead of many small ones. How much goes at one time is bounded; what is left comes next
time, from where this one ended, so that busy pages at the front hide none behind them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kvairlock.core.errors import Misuse
from kvairlock.core.memory.page import PageStage
from kvairlock.core.terms import Generations, Pages

Stages = NDArray[np.int8]

PAGES_MAX = 65_536
"""In one map that crosses: 0.6 MB as one run, 1.1 MB if no two pages are neighbours. A node of a
million pages is told of within sixteen maps."""

UNTOLD = -1
"""Instead of a stage or a generation: no page has it, so whatever the page has is a change."""


@dataclass(frozen=True, slots=True)
class Packed:
    """Changes as bytes, all little-endian.

    Args:
        spans: Pairs of int32: the first page of a run of changed pages, and how many they are.
        stages: One int8 for each page.
        generations: One int64 for each page.
    """

    spans: bytes
    stages: bytes
    generations: bytes


@dataclass(frozen=True, slots=True)
class Changes:
    """Pages that are not as the onlooker was told last.

    Args:
        pages: Their numbers in rising order, shape (pages,).
        stages: Their stages now, shape (pages,).
        generations: Their content counters now, shape (pages,).
        rest: How many more pages changed that are not among these.
    """

    pages: Pages
    stages: Stages
    generations: Generations
    rest: int

    def __bool__(self) -> bool:
        """Whether there is anything to tell."""
        return len(self.pages) > 0

    def pack(self) -> Packed:
        """Return them as bytes."""
        return Packed(
            spans=_spans(self.pages).astype("<i4").tobytes(),
            stages=self.stages.astype("<i1").tobytes(),
            generations=self.generations.astype("<i8").tobytes(),
        )


def unpack(packed: Packed, pool_pages: int, rest: int) -> Changes:
    """Read changes that somebody else states.

    Args:
        packed: What was stated.
        pool_pages: How many pages there are.
        rest: How many more pages changed.

    Raises:
        Misuse: They contradict themselves, name a page or a stage that there is not, or are more
            than one map may have.
    """
    try:
        spans = np.frombuffer(packed.spans, "<i4").reshape(-1, 2).astype(np.int64)
        stages = np.frombuffer(packed.stages, "<i1").astype(np.int8)
        generations = np.frombuffer(packed.generations, "<i8").astype(np.int64)
    except ValueError:
        raise Misuse("a part of the page map has no whole number of values") from None
    _check(spans, stages, generations, pool_pages, rest)
    return Changes(_pages(spans), stages, generations, rest)


class PageView:
    """What one onlooker knows of a pool.

    Args:
        pool_pages: How many pages there are.
    """

    def __init__(self, pool_pages: int) -> None:
        self._stage: Stages = np.full(pool_pages, UNTOLD, dtype=np.int8)
        self._generation: Generations = np.full(pool_pages, UNTOLD, dtype=np.int64)
        self._from = 0

    def changes(self, stage: Stages, generation: Generations, most: int) -> Changes:
        """Return what has changed since the last call, and take it for told.

        Args:
            stage: The stage of each page now, shape (pool_pages,).
            generation: Its content counter now, shape (pool_pages,).
            most: Pages to return, at most.
        """
        differs = (stage != self._stage) | (generation != self._generation)
        changed = np.flatnonzero(differs).astype(np.int32)
        told = self._next(changed, most)
        self._stage[told], self._generation[told] = stage[told], generation[told]
        return Changes(told, stage[told], generation[told], len(changed) - len(told))

    def _next(self, changed: Pages, most: int) -> Pages:
        """Return up to `most` of the changed pages, going round the pool from call to call."""
        if len(changed) <= most:
            return changed
        begin = int(np.searchsorted(changed, self._from))
        told: Pages = np.roll(changed, -begin)[:most]
        self._from = int(told[-1]) + 1
        return np.sort(told)


def _spans(pages: Pages) -> NDArray[np.int64]:
    """Return runs of neighbours as pairs of first page and count, shape (runs, 2)."""
    if not len(pages):
        return np.zeros((0, 2), dtype=np.int64)
    breaks = np.flatnonzero(np.diff(pages) != 1) + 1
    begins = np.concatenate(([0], breaks))
    counts = np.diff(np.concatenate((begins, [len(pages)])))
    return np.stack((pages[begins].astype(np.int64), counts), axis=1)


def _pages(spans: NDArray[np.int64]) -> Pages:
    """Return the pages of runs one by one; the reverse of `_spans`."""
    firsts, counts = spans[:, 0], spans[:, 1]
    before = np.cumsum(counts) - counts
    pages: Pages = (np.repeat(firsts - before, counts) + np.arange(counts.sum())).astype(np.int32)
    return pages


def _check(
    spans: NDArray[np.int64],
    stages: Stages,
    generations: Generations,
    pool_pages: int,
    rest: int,
) -> None:
    if max(len(spans), len(stages)) > PAGES_MAX:
        raise Misuse(f"the page map has more than {PAGES_MAX} pages")
    firsts, counts = spans[:, 0], spans[:, 1]
    ends = firsts + counts
    if np.any(firsts < 0) or np.any(counts < 1) or np.any(ends > pool_pages):
        raise Misuse(f"a span of the page map is not within {pool_pages} pages")
    if np.any(firsts[1:] < ends[:-1]):
        raise Misuse("the spans of the page map overlap, or do not rise")
    if not int(counts.sum()) == len(stages) == len(generations):
        raise Misuse("the page map has another number of stages or generations than pages")
    if np.any(stages < 0) or np.any(stages >= len(PageStage)) or np.any(generations < 0):
        raise Misuse("the page map names a stage or a generation that there is not")
    if not 0 <= rest <= pool_pages - len(stages):
        raise Misuse("the page map leaves out more pages than there are")
