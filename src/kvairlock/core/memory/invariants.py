"""What must hold after every turn, always on: predicates over a node's books.

They are the ledger's own law, not a guard: no setting switches them off. What a drill with a guard
off breaks is a promise to tenants, which the evidence shows; the arithmetic of pages still holds.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kvairlock.core.errors import InvariantBroken
from kvairlock.core.memory.page import PageStage
from kvairlock.core.memory.pool import NOBODY, Pool
from kvairlock.core.terms import Generations, Pages

UNOWNED = frozenset({PageStage.FREE, PageStage.WITHDRAWN, PageStage.FENCED, PageStage.SCRUBBED})
"""Stages in which a page belongs to no lease."""

_IS_OWNED: NDArray[np.bool_] = np.array([stage not in UNOWNED for stage in PageStage])
"""By the value of the stage: whether a page in it belongs to a lease, shape (stages,)."""


def check(pool: Pool) -> None:
    """Check the pool's arithmetic.

    Args:
        pool: The pool after a turn.

    Raises:
        InvariantBroken: The message names the invariant and a page.
    """
    _free_is_free(pool)
    _withdrawn_is_withdrawn(pool)
    _owned_once(pool)
    _live_is_current(pool)


def _free_is_free(pool: Pool) -> None:
    free = pool.free_list
    marked = np.zeros(pool.pages, dtype=np.int64)
    np.add.at(marked, free, 1)
    is_free = pool.stage == PageStage.FREE
    if not np.array_equal(marked, is_free.astype(np.int64)):
        page = int(np.argmax(marked != is_free))
        raise InvariantBroken("I2 free list", f"page {page} is {PageStage(pool.stage[page]).name}")
    if np.any(pool.lease[free] != NOBODY):
        raise InvariantBroken("I2 free list", "a free page belongs to a lease")


def _withdrawn_is_withdrawn(pool: Pool) -> None:
    """What is withdrawn is counted, nobody's, and nothing is free while there is a surplus."""
    withdrawn = pool.stage == PageStage.WITHDRAWN
    counted = int(np.count_nonzero(withdrawn))
    if counted != pool.pages_withdrawn:
        message = f"{counted} pages are withdrawn, {pool.pages_withdrawn} are counted"
        raise InvariantBroken("capacity", message)
    if counted and np.any(pool.lease[withdrawn] != NOBODY):
        raise InvariantBroken("capacity", "a withdrawn page belongs to a lease")
    if pool.pages_surplus and pool.pages_free:
        message = f"{pool.pages_free} pages are free, {pool.pages_surplus} are to be withdrawn"
        raise InvariantBroken("capacity", message)


def _owned_once(pool: Pool) -> None:
    """Every page belongs to one lease, is free or withdrawn, or on its way from a fence to free."""
    pages, ids = _all_pages(pool)
    if np.any(pool.lease[pages] != ids):
        lease = int(ids[np.argmax(pool.lease[pages] != ids)])
        raise InvariantBroken("owner", f"a page of lease {lease} names another lease")
    owned = np.bincount(pages, minlength=pool.pages)
    expected = _IS_OWNED[pool.stage]
    if not np.array_equal(owned, expected.astype(np.int64)):
        page = int(np.argmax(owned != expected))
        raise InvariantBroken("owner", f"page {page} has {int(owned[page])} leases")


def _live_is_current(pool: Pool) -> None:
    """A live lease's pages have the generation in which they were reserved; an ended one's not."""
    pages, ids = _all_pages(pool)
    reserved_in = _concatenate([lease.generations for lease in pool.leases.values()])
    live = np.repeat(
        np.array([lease.live for lease in pool.leases.values()], dtype=np.bool_), _sizes(pool)
    )
    wrong = (pool.generation[pages] == reserved_in) != live
    if np.any(wrong):
        lease = int(ids[np.argmax(wrong)])
        message = f"lease {lease}: its references and its pages have not ended together"
        raise InvariantBroken("I5 generation", message)


def _sizes(pool: Pool) -> NDArray[np.int64]:
    return np.array([len(lease.pages) for lease in pool.leases.values()], dtype=np.int64)


def _all_pages(pool: Pool) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """All pages of all leases, and the lease of each, shape (pages,) both."""
    pages = _concatenate([lease.pages for lease in pool.leases.values()])
    ids = np.array(list(pool.leases), dtype=np.int64)
    return pages, np.repeat(ids, _sizes(pool))


def _concatenate(arrays: Sequence[Pages | Generations]) -> NDArray[np.int64]:
    if not arrays:
        return np.zeros(0, dtype=np.int64)
    return np.concatenate(arrays).astype(np.int64, copy=False)
