"""What must hold after every turn, always on: predicates over a node's books.

They are the ledger's own law, not a guard: no setting switches them off. What a drill with a guard
off breaks is a promise to tenants, which the evidence shows; the arithmetic of pages still holds.
"""

from __future__ import annotations

import numpy as np

from kvairlock.core.errors import InvariantBroken
from kvairlock.core.memory.page import PageStage
from kvairlock.core.memory.pool import NOBODY, Pool


def check(pool: Pool) -> None:
    """Check the pool's arithmetic.

    Args:
        pool: The pool after a turn.

    Raises:
        InvariantBroken: The message names the invariant and a page.
    """
    _free_is_free(pool)
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


def _owned_once(pool: Pool) -> None:
    """Every page that is not free belongs to one lease, or is on its way from a fence to free."""
    owned = np.zeros(pool.pages, dtype=np.int64)
    for lease in pool.leases.values():
        np.add.at(owned, lease.pages, 1)
        if np.any(pool.lease[lease.pages] != lease.id):
            raise InvariantBroken("owner", f"a page of lease {lease.id} names another lease")
    in_between = (pool.stage == PageStage.FENCED) | (pool.stage == PageStage.SCRUBBED)
    expected = (pool.stage != PageStage.FREE) & ~in_between
    if not np.array_equal(owned, expected.astype(np.int64)):
        page = int(np.argmax(owned != expected))
        raise InvariantBroken("owner", f"page {page} has {int(owned[page])} leases")


def _live_is_current(pool: Pool) -> None:
    """A live lease's pages still have the generation in which they were reserved."""
    for lease in pool.leases.values():
        if lease.live and not np.array_equal(pool.generation[lease.pages], lease.generations):
            raise InvariantBroken("I5 generation", f"lease {lease.id} lives in ended pages")
        if not lease.live and np.any(pool.generation[lease.pages] == lease.generations):
            raise InvariantBroken(
                "I5 generation", f"lease {lease.id} ended, its references did not"
            )
