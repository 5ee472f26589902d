"""The second path: the same invariants, asked of the evidence that a run leaves.

    allocated -> (granted, computed, offered) -> admitted -> read -> drained -> allocated again

The first path looks at pages while they are read. This one looks at nothing but records, as an
audit does: nobody reads a page that is not allocated to him in the life that he names, no page is
allocated again before its drain has ended, and no request ends twice. Every turn is judged against
the book of its site, and whole runs once more from their beginning.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import cast

from kvairlock.core.effects import Record
from kvairlock.core.terms import Owner, Role
from kvairlock.sim.outcome import Fault, Violation


@dataclass(slots=True)
class Book:
    """What the records of one life of one node say so far.

    Args:
        name: The life, for messages.
        held: For each page that is allocated: whose it is, and its generation.
        reads: Owners that read now, and their pages.
        fetches: Claims under which is read from elsewhere now, and the pages that are read into.
        reused: For each owner the pages of its scope's prefixes that it was given.
        confirmed: Owners whose prompt was admitted, or computed here.
        admitted: Owners that were let in.
        ended: Owners whose request has ended.
        windows: Names of windows that were granted.
    """

    name: str
    held: dict[int, tuple[Owner, int]] = field(default_factory=dict)
    reads: dict[Owner, tuple[int, ...]] = field(default_factory=dict)
    fetches: dict[str, tuple[int, ...]] = field(default_factory=dict)
    reused: dict[Owner, tuple[int, ...]] = field(default_factory=dict)
    confirmed: set[Owner] = field(default_factory=set)
    admitted: set[Owner] = field(default_factory=set)
    ended: set[Owner] = field(default_factory=set)
    windows: set[str] = field(default_factory=set)

    def copy(self) -> Book:
        """Return a book that says the same, to go on in."""
        return Book(
            self.name,
            self.held.copy(),
            self.reads.copy(),
            self.fetches.copy(),
            self.reused.copy(),
            self.confirmed.copy(),
            self.admitted.copy(),
            self.ended.copy(),
            self.windows.copy(),
        )

    def says_as(self, other: Book) -> bool:
        """Whether two books say the same about what is now; pasts may differ."""
        mine, others = self.admitted - self.ended, other.admitted - other.ended
        return (self.held, self.reads, self.fetches, mine) == (
            other.held,
            other.reads,
            other.fetches,
            others,
        )

    def take(self, record: Record) -> Iterator[str]:
        """Take the next record, and say what in it cannot be."""
        owner = record.owner
        if owner is None:
            return
        match record.event:
            case "pages_allocated":
                yield from self._allocated(record, owner)
            case "prefix_reused":
                self.reused[owner] = self.reused.get(owner, ()) + _numbers(record, "pages")
            case "drain_ended":
                yield from self._drained(record)
            case "request_admitted":
                self.admitted.add(owner)
            case "window_granted" | "write_ended" | "pages_offered" | "range_computed":
                yield from self._worked(record, owner)
            case "remote_read_started" | "remote_read_ended":
                yield from self._fetched(record, owner)
            case "verdict" if record.fields["outcome"] == "admitted":
                yield from self._confirmed(record, owner)
            case "read_started" | "read_ended":
                yield from self._read(record, owner)
            case "request_ended":
                yield from self._ended(owner)

    def close(self, role: Role) -> Iterator[str]:
        """Say what is left open at the end of a run that this life has seen."""
        for owner in sorted(self.admitted - self.ended, key=str):
            yield f"{owner.transfer} was admitted and never ended"
        for owner in self.reads:
            yield f"{owner.transfer} began to read and never stopped"
        if role is Role.DECODE and self.held:
            yield f"pages {sorted(self.held)} were allocated and never drained"

    def _allocated(self, record: Record, owner: Owner) -> Iterator[str]:
        generations = _numbers(record, "generations")
        for page, generation in zip(_numbers(record, "pages"), generations, strict=True):
            if page in self.held:
                yield f"page {page} was allocated to {owner.transfer} before its drain had ended"
            self.held[page] = (owner, generation)

    def _drained(self, record: Record) -> Iterator[str]:
        for page in _numbers(record, "pages"):
            if self.held.pop(page, None) is None:
                yield f"page {page} was drained and not allocated"
            if any(page in pages for pages in (*self.reads.values(), *self.fetches.values())):
                yield f"page {page} was drained while it was read or read into"

    def _worked(self, record: Record, owner: Owner) -> Iterator[str]:
        """Granted, written, offered or computed: the pages are the owner's at that moment."""
        for page in _numbers(record, "pages"):
            held = self.held.get(page)
            if held is None or (held[0] != owner and page not in self.reused.get(owner, ())):
                yield f"{record.event}: page {page} is not allocated to {owner.transfer}"
        if record.event == "window_granted":
            window = str(record.fields["window"])
            if window in self.windows:
                yield f"{window} was granted twice"
            self.windows.add(window)
        elif record.event == "range_computed":
            self.confirmed.add(owner)

    def _fetched(self, record: Record, owner: Owner) -> Iterator[str]:
        claim, pages = str(record.fields["claim"]), _numbers(record, "pages")
        if record.event == "remote_read_ended":
            self.fetches.pop(claim, None)
            return
        self.fetches[claim] = pages
        yield from self._not_of(owner, pages, None, "is read into for")

    def _confirmed(self, record: Record, owner: Owner) -> Iterator[str]:
        self.confirmed.add(owner)
        fields = record.fields
        if (fields["start"], fields["stop"]) != (0, fields["expected_tokens"]):
            yield f"{owner.transfer} was admitted for another range than was expected"
        pages, generations = _numbers(record, "pages"), _numbers(record, "generations")
        yield from self._not_of(owner, pages, generations, "was admitted for")

    def _read(self, record: Record, owner: Owner) -> Iterator[str]:
        pages = _numbers(record, "pages")
        if record.event == "read_ended":
            self.reads.pop(owner, None)
            return
        self.reads[owner] = pages
        if owner not in self.confirmed:
            yield f"{owner.transfer} reads, and nothing was admitted for it"
        if owner in self.ended:
            yield f"{owner.transfer} reads after its end"
        yield from self._not_of(owner, pages, _numbers(record, "generations"), "is read by")

    def _not_of(
        self,
        owner: Owner,
        pages: tuple[int, ...],
        generations: tuple[int, ...] | None,
        what: str,
    ) -> Iterator[str]:
        """Say which pages are not an owner's, in the generations that it names."""
        for row, page in enumerate(pages):
            held = self.held.get(page)
            if held is None or held[0] != owner:
                yield f"page {page} {what} {owner.transfer}, and is not its own"
            elif generations is not None and held[1] != generations[row]:
                yield f"page {page} {what} {owner.transfer} in another life of it"

    def _ended(self, owner: Owner) -> Iterator[str]:
        if owner in self.ended:
            yield f"{owner.transfer} ended twice"
        self.ended.add(owner)


def judge(
    records: Iterable[tuple[int, int, Record]], roles: list[Role], lives: tuple[int, ...]
) -> list[Violation]:
    """Judge a run by its records.

    Args:
        records: Place and life of the node that recorded, and the record, in order.
        roles: Role of each place.
        lives: The life in which each place is at the end: what began in it has ended.
    """
    books: dict[tuple[int, int], Book] = {}
    found = []
    for place, life, record in records:
        book = books.setdefault((place, life), Book(f"{roles[place]} {life}"))
        found += [f"{book.name}: {what}" for what in book.take(record)]
    for (place, life), book in books.items():
        if lives[place] == life:
            found += [f"{book.name}: {what}" for what in book.close(roles[place])]
    return [Violation(Fault.EVIDENCE, what) for what in found]


def _numbers(record: Record, name: str) -> tuple[int, ...]:
    return cast("tuple[int, ...]", record.fields[name])
