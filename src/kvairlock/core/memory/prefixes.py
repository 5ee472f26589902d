"""Declared sharing: finished prefix pages that later requests of the same scope may read.

An entry is a run of full pages of one prompt, owned by the entry and held by leases. It enters
only after it was completed, sealed and admitted by the receiver, and only under a scope; it leaves
whole, through the drain, so that its pages' generations turn before any new byte lands.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kvairlock.core.memory.pool import Lease
from kvairlock.core.terms import Owner, Pages

Key = tuple[str, bytes]
"""Scope and chained key of a page: both must be equal for a page to be shared."""


@dataclass(slots=True, eq=False)
class Entry:
    """A run of shared pages.

    Args:
        creator: Who computed them.
        keys: Scope and key of each page.
        lease: The pages' lease, the entry's own.
        scope: For whom they were computed, as the creator's ticket says it.
        users: How many requests hold the entry.
    """

    creator: Owner
    keys: tuple[Key, ...]
    lease: Lease
    scope: str
    users: int = 0


@dataclass(frozen=True, slots=True)
class Match:
    """The longest known prefix of a prompt.

    Args:
        entries: The entries to hold, in order.
        pages: The shared pages in token order, shape (pages,).
    """

    entries: tuple[Entry, ...]
    pages: Pages


class Prefixes:
    """The prefix entries of one node, least recently used first."""

    def __init__(self) -> None:
        self._where: dict[Key, tuple[Entry, int]] = {}
        self._order: dict[Entry, None] = {}

    @property
    def pages(self) -> int:
        """How many pages all entries have."""
        return sum(len(entry.keys) for entry in self._order)

    @property
    def pages_idle(self) -> int:
        """How many pages the entries have that nobody holds."""
        return sum(len(entry.keys) for entry in self._order if entry.users == 0)

    @property
    def entries(self) -> tuple[Entry, ...]:
        """All entries, least recently used first."""
        return tuple(self._order)

    def match(self, keys: tuple[Key, ...]) -> Match:
        """Find the longest prefix of `keys` that is held, and mark it as used now."""
        entries: dict[Entry, None] = {}
        pages: list[int] = []
        for key in keys:
            found = self._where.get(key)
            if found is None:
                break
            entry, index = found
            entries[entry] = None
            pages.append(int(entry.lease.pages[index]))
        for entry in entries:
            del self._order[entry]
            self._order[entry] = None
        return Match(tuple(entries), np.array(pages, dtype=np.int32))

    def knows(self, key: Key) -> bool:
        """Whether a page with this key is held."""
        return key in self._where

    def add(self, entry: Entry) -> None:
        """Hold a new entry, none of whose keys is known."""
        self._order[entry] = None
        for index, key in enumerate(entry.keys):
            self._where[key] = (entry, index)

    def pop_idle(self) -> Entry | None:
        """Forget the least recently used entry that nobody holds, and return it."""
        entry = next((e for e in self._order if e.users == 0), None)
        if entry is not None:
            del self._order[entry]
            for key in entry.keys:
                del self._where[key]
        return entry
