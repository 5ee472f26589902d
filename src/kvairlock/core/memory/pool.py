"""Who owns which pages of one node, as arrays: stage, generation and lease of every page.

All verbs work on spans. A lease is the pages of one owner; its number is its epoch and is never
used again. Holds are the readers and writers that a lease still has; `drain` waits for them. The
way back to the free list is a chain of types: `fence` gives a `Fenced`, which `scrub` turns into a
`Scrubbed`, which is all that `free` takes.

A pool may be made smaller than what was mapped, and larger again, while it is in use. What is free
is withdrawn at once; what is owned is withdrawn when it comes back, before anybody can reserve it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from kvairlock.core.errors import InvariantBroken, Misuse
from kvairlock.core.memory.page import CONTENT_ENDS, LOOKUP, REFUSED, PageStage, Verb
from kvairlock.core.terms import (
    Fence,
    Generations,
    Incarnation,
    LeaseId,
    Owner,
    Pages,
    PageSpan,
)

NOBODY = -1


class Hold(StrEnum):
    """Kinds of registered readers and writers of a lease's pages."""

    COMPUTE = "compute"
    """The local engine reads, and appends."""
    FILL = "fill"
    """The local engine computes a prompt into the pages of a decode node."""
    LANDING = "landing"
    """The local host copies or maps landed bytes into the pages."""
    WRITE = "write"
    """A write of ours reads the pages as its source."""
    WINDOW = "window"
    """A remote process may store into the pages."""
    READ = "read"
    """A one-sided read of ours stores another node's pages into these."""
    LOAN = "loan"
    """A remote process that does not ask afterwards may read the pages."""


@dataclass(slots=True)
class Lease:
    """The pages that one owner holds on this node.

    Args:
        id: The lease's number, its epoch.
        owner: The identity that the pages are allocated to.
        pages: Page indices in the order of the owner's tokens, shape (pages,).
        generations: Their content counters when they were reserved, shape (pages,).
        holds: Who may still read or write, with the number of registrations.
        live: False once the lease has ended.
        fence: The evidence on which the last remote writer or reader was let go.
    """

    id: LeaseId
    owner: Owner
    pages: Pages
    generations: Generations
    holds: dict[Hold, int] = field(default_factory=dict)
    live: bool = True
    fence: Fence = Fence.LOCAL

    def hold(self, kind: Hold) -> None:
        """Register one more reader or writer."""
        self.holds[kind] = self.holds.get(kind, 0) + 1

    def release(self, kind: Hold) -> None:
        """Take one registration back.

        Raises:
            InvariantBroken: There is none of this kind.
        """
        count = self.holds.get(kind, 0)
        if count < 1:
            raise InvariantBroken("holds", f"lease {self.id} has no {kind} hold to release")
        if count == 1:
            del self.holds[kind]
        else:
            self.holds[kind] = count - 1


@dataclass(frozen=True, slots=True)
class Fenced:
    """Pages that nobody can reach any more, and why that is known."""

    pages: Pages
    fence: Fence


@dataclass(frozen=True, slots=True)
class Scrubbed:
    """Fenced pages that hold nobody's bytes."""

    pages: Pages


class Pool:
    """The pages of one node.

    Args:
        pages: How many pages there are.
        page_tokens: Token slots of a page.
        incarnation: The life of the process that the pool belongs to.
    """

    def __init__(self, pages: int, page_tokens: int, incarnation: Incarnation) -> None:
        if pages < 1 or page_tokens < 1:
            raise Misuse(f"a pool needs pages and slots, got {pages} x {page_tokens}")
        self.page_tokens = page_tokens
        self.incarnation = incarnation
        self.stage: NDArray[np.int8] = np.full(pages, PageStage.FREE, dtype=np.int8)
        self.generation: Generations = np.zeros(pages, dtype=np.int64)
        self.lease: NDArray[np.int64] = np.full(pages, NOBODY, dtype=np.int64)
        self.leases: dict[LeaseId, Lease] = {}
        self._free: Pages = np.arange(pages, dtype=np.int32)[::-1].copy()
        self._free_count = pages
        self._next_lease = 1
        self._target = pages
        self._withdrawn = 0

    @property
    def pages(self) -> int:
        """How many pages there are, the withdrawn ones among them."""
        return len(self.stage)

    @property
    def pages_withdrawn(self) -> int:
        """How many pages nobody can have now."""
        return self._withdrawn

    @property
    def pages_surplus(self) -> int:
        """How many pages are still to be withdrawn, as soon as they come back."""
        return max(0, self.pages - self._withdrawn - self._target)

    @property
    def pages_free(self) -> int:
        """How many pages can be reserved now."""
        return self._free_count

    @property
    def pages_coming(self) -> int:
        """How many pages are free, or will be as soon as the host has zeroed them.

        Below zero while more are to be withdrawn than are on their way.
        """
        fenced = int(np.count_nonzero(self.stage == PageStage.FENCED))
        return self._free_count + fenced - self.pages_surplus

    @property
    def free_list(self) -> Pages:
        """The free pages; the last is reserved first."""
        return self._free[: self._free_count]

    def reserve(self, owner: Owner, count: int) -> Lease:
        """Take `count` free pages for `owner`, most recently freed first.

        Raises:
            Misuse: There are not so many free pages; admission decides before.
        """
        if not 0 <= count <= self._free_count:
            raise Misuse(f"{count} pages asked, {self._free_count} free")
        self._free_count -= count
        pages = self._free[self._free_count : self._free_count + count][::-1].copy()
        self._apply(Verb.RESERVE, pages)
        lease = Lease(LeaseId(self._next_lease), owner, pages, self.generation[pages])
        self._next_lease += 1
        self.lease[pages] = lease.id
        self.leases[lease.id] = lease
        return lease

    def advance(self, lease: Lease, verb: Verb, pages: Pages) -> None:
        """Apply one of the verbs between reserve and retire to pages of a live lease.

        Raises:
            InvariantBroken: The lease has ended, or a page is not its own or in another stage.
        """
        if not lease.live or verb in CONTENT_ENDS:
            raise InvariantBroken("lease", f"{verb.name} on lease {lease.id}, live={lease.live}")
        if not np.all(self.lease[pages] == lease.id):
            raise InvariantBroken("owner", f"{verb.name} on pages not of lease {lease.id}")
        self._apply(verb, pages)

    def end(self, lease: Lease, verb: Verb) -> None:
        """End a lease: its references are stale at once, its pages wait in the drain.

        Raises:
            InvariantBroken: The lease had ended, or a page is in a stage that cannot end.
        """
        if not lease.live or verb not in CONTENT_ENDS:
            raise InvariantBroken("lease", f"{verb.name} on lease {lease.id}, live={lease.live}")
        self._apply(verb, lease.pages)
        self.generation[lease.pages] += 1
        lease.live = False

    def fence(self, lease: Lease, evidence: Fence) -> Fenced:
        """Take the pages of an ended lease from all that could reach them.

        Raises:
            InvariantBroken: The lease lives.
        """
        if lease.live:
            raise InvariantBroken("fence", f"lease {lease.id} lives")
        self._apply(Verb.FENCE, lease.pages)
        del self.leases[lease.id]
        return Fenced(lease.pages, evidence)

    def scrub(self, fenced: Fenced) -> Scrubbed:
        """Note that fenced pages were zeroed."""
        self._apply(Verb.SCRUB, fenced.pages)
        return Scrubbed(fenced.pages)

    def free(self, scrubbed: Scrubbed) -> None:
        """Put pages back on the free list: the only way there. What is surplus is withdrawn."""
        pages = scrubbed.pages
        self._apply(Verb.FREE, pages)
        self.lease[pages] = NOBODY
        # Reversed, so that the next owner of as many pages gets them in the same order: what a
        # missing guard leaks then shows every time instead of now and then.
        self._free[self._free_count : self._free_count + len(pages)] = pages[::-1]
        self._free_count += len(pages)
        self._withdraw_surplus()

    def resize(self, pages: int) -> None:
        """Make the pool smaller or larger, within what was mapped.

        Args:
            pages: How many pages leases may have together from now on.

        Raises:
            Misuse: There are not so many, or it is below zero.
        """
        if not 0 <= pages <= self.pages:
            raise Misuse(f"{pages} pages asked, {self.pages} mapped")
        self._target = pages
        self._withdraw_surplus()
        missing = pages - (self.pages - self._withdrawn)
        if missing > 0:
            self.free(self._restore(missing))

    def transfer(self, giver: Lease, taker: Owner, count: int) -> Lease:
        """Move the first `count` pages of a live lease to a new lease of `taker`.

        Raises:
            InvariantBroken: The giver has ended or has fewer pages.
        """
        if not giver.live or count > len(giver.pages):
            raise InvariantBroken("lease", f"lease {giver.id} cannot give {count} pages")
        pages, rest = giver.pages[:count], giver.pages[count:]
        lease = Lease(LeaseId(self._next_lease), taker, pages, giver.generations[:count])
        lease.fence = giver.fence
        self._next_lease += 1
        giver.pages, giver.generations = rest, giver.generations[count:]
        self.lease[pages] = lease.id
        self.leases[lease.id] = lease
        return lease

    def span(self, pages: Pages) -> PageSpan:
        """Name pages together with their present generation."""
        return PageSpan(self.incarnation, pages, self.generation[pages])

    def stale(self, span: PageSpan, stages: frozenset[PageStage]) -> Pages:
        """Return the pages of `span` that are no longer what it named, shape (stale,).

        Args:
            span: Pages with their generations.
            stages: The stages in which they may be read.
        """
        if span.incarnation != self.incarnation:
            return span.pages
        allowed = np.zeros(len(PageStage), dtype=np.bool_)
        allowed[list(stages)] = True
        current = self.generation[span.pages] == span.generations
        good = current & allowed[self.stage[span.pages]]
        found: Pages = span.pages[~good]
        return found

    def count(self) -> dict[PageStage, int]:
        """Return how many pages are in each stage."""
        counts = np.bincount(self.stage, minlength=len(PageStage))
        return {stage: int(counts[stage]) for stage in PageStage}

    def _withdraw_surplus(self) -> None:
        """Take what is free and surplus off the free list, the longest free first."""
        count = min(self.pages_surplus, self._free_count)
        if not count:
            return
        self._apply(Verb.WITHDRAW, self._free[:count])
        self._free_count -= count
        self._free[: self._free_count] = self._free[count : count + self._free_count].copy()
        self._withdrawn += count

    def _restore(self, count: int) -> Scrubbed:
        """Take withdrawn pages back; they were free when they were withdrawn, so nobody's."""
        withdrawn = np.flatnonzero(self.stage == PageStage.WITHDRAWN)
        pages = withdrawn[:count].astype(np.int32)
        self._apply(Verb.RESTORE, pages)
        self._withdrawn -= count
        return Scrubbed(pages)

    def _apply(self, verb: Verb, pages: Pages) -> None:
        after = LOOKUP[self.stage[pages], verb]
        if np.any(after == REFUSED):
            page = int(pages[np.argmax(after == REFUSED)])
            stage = PageStage(int(self.stage[page])).name
            raise InvariantBroken("page_life", f"{verb.name} on page {page} in {stage}")
        self.stage[pages] = after
