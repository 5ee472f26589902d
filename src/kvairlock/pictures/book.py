"""The book of one life: its edges, one after another, become histories of its pages.

    pages_allocated ... drain_began, drain_ended          stays
    window_granted ... window_fenced, and other pairs     touches
    range_computed, write_ended, verdict, prefix_reused   marks, and the stage of the page

The book believes what is recorded and nothing else. A page that is allocated while it is held is
held twice from then on; a record about pages that its owner is not known to hold is counted, and
changes nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from kvairlock.core.memory.page import PageStage
from kvairlock.core.terms import LandingPolicy, Reader, Role
from kvairlock.pictures.edges import Edge, Life, Who
from kvairlock.pictures.history import (
    Ending,
    History,
    Mark,
    MarkKind,
    Part,
    Reach,
    Stay,
    Touch,
)

ADMITTED = "admitted"
"""The outcome of a verdict that lets decode read."""

BESIDE_THE_POOL = frozenset({LandingPolicy.COPY, LandingPolicy.SEAL})
"""Landing policies under which a window is no way to a page; else it counts as one."""


@dataclass(slots=True)
class _Stay:
    """A stay that goes on."""

    who: Who
    parts: list[Part]
    ended_ns: int | None = None
    fence: str = ""
    end_sequence: int = 0
    generation: int | None = None

    def enter(self, stage: PageStage, at_ns: int) -> None:
        if self.parts[-1].stage is not stage:
            self.parts.append(Part(at_ns, stage))

    def closed(self, until_ns: int, unended: Ending) -> Stay:
        drained = self.ended_ns is not None
        ended_ns = until_ns if self.ended_ns is None else self.ended_ns
        ending = Ending.DRAINED if drained else unended
        began_ns = self.parts[0].began_ns
        parts = tuple(self.parts)
        return Stay(self.who, began_ns, ended_ns, ending, self.fence, parts, self.generation)


@dataclass(slots=True)
class _Touch:
    """A touch that goes on; its pages share it."""

    reach: Reach
    who: Who
    under: Who
    began_ns: int
    name: str
    scopes: tuple[str, str]
    ended_ns: int | None = None

    def closed(self, until_ns: int) -> Touch:
        ended_ns = until_ns if self.ended_ns is None else self.ended_ns
        begun = (self.reach, self.who, self.under, self.began_ns)
        return Touch(*begun, ended_ns, self.name, self.scopes)


@dataclass(slots=True)
class Book:
    """What the edges of one life say so far.

    Args:
        life: Whose edges they are.
        landing: How remote writes become pages here, empty as long as no record says.
        closed_ns: When the process closed its books in order, or None.
        unmatched: Edges about pages that their owner is not known to hold.
    """

    life: Life
    landing: str = ""
    closed_ns: int | None = None
    unmatched: int = 0
    _stays: defaultdict[int, list[_Stay]] = field(default_factory=lambda: defaultdict(list))
    _open: defaultdict[int, list[_Stay]] = field(default_factory=lambda: defaultdict(list))
    _touches: defaultdict[int, list[_Touch]] = field(default_factory=lambda: defaultdict(list))
    _marks: defaultdict[int, list[Mark]] = field(default_factory=lambda: defaultdict(list))
    _named: defaultdict[tuple[Reach, str], list[_Touch]] = field(
        default_factory=lambda: defaultdict(list)
    )
    _computed_ns: dict[Who, int] = field(default_factory=dict)
    _prefix_of: dict[tuple[Who, int], Who] = field(default_factory=dict)

    def take(self, edge: Edge) -> None:
        """Take the next edge of this life."""
        match edge.event:
            case "node_started":
                self.landing = str(edge.fields["landing"] or "")
            case "node_closed":
                self.closed_ns = edge.at_ns
            case "window_fenced":
                self._let_go(Reach.WINDOW, edge, "window")
                self._let_go(Reach.WINDOW_FILE, edge, "window")
            case "remote_read_ended":
                self._let_go(Reach.FETCH, edge, "claim")
            case "pages_returned":
                self._let_go(Reach.LOAN, edge, "claim")
            case "pages_revoked" if edge.fields["reader"] == Reader.VALIDATING:
                self._let_go(Reach.LOAN, edge, "claim")
            case _ if edge.who is not None:
                self._take_owned(edge, edge.who)

    def histories(self, until_ns: int) -> Mapping[int, History]:
        """Return what is known of every page that was ever named.

        Args:
            until_ns: The last record of the run: until then counts what has no recorded end.
        """
        unended = Ending.NOT_RECORDED if self.closed_ns is None else Ending.PROCESS_CLOSED
        last_ns = until_ns if self.closed_ns is None else self.closed_ns
        return {
            page: History(
                tuple(stay.closed(last_ns, unended) for stay in self._stays[page]),
                tuple(touch.closed(last_ns) for touch in self._touches[page]),
                tuple(self._marks[page]),
            )
            for page in sorted({*self._stays, *self._touches, *self._marks})
        }

    def _take_owned(self, edge: Edge, who: Who) -> None:
        match edge.event:
            case "pages_allocated":
                self._allocate(edge, who)
            case "prefix_reused":
                self._reuse(edge, who)
            case "window_granted":
                self._enter(edge, who, PageStage.LANDING)
                self._touch(edge, who, self._window(), "window")
            case "pages_claimed":
                self._touch(edge, who, Reach.LOAN, "claim")
            case "remote_read_started":
                self._enter(edge, who, PageStage.LANDING)
                self._touch(edge, who, Reach.FETCH, "claim")
            case "range_computed":
                self._computed(edge, who)
            case "write_ended":
                self._written(edge, who)
            case "verdict":
                self._judged(edge, who)
            case "read_started":
                self._touch(edge, who, Reach.READ, "request")
            case "read_ended":
                self._let_go(Reach.READ, edge, "request")
            case "prefix_kept":
                self._enter(edge, who, PageStage.SHARED)
            case "request_ended":
                self._request_ended(edge, who)
            case "drain_began":
                self._drain(edge, who)
            case "drain_ended":
                self._drained(edge, who)

    def _allocate(self, edge: Edge, who: Who) -> None:
        for page, generation in zip(edge.pages, _generations(edge), strict=True):
            stay = _Stay(who, [Part(edge.at_ns, PageStage.RESERVED)], generation=generation)
            self._stays[page].append(stay)
            self._open[page].append(stay)

    def _reuse(self, edge: Edge, who: Who) -> None:
        """The pages stay whose they are; this request may read them as long as it lives."""
        for page in edge.pages:
            holders = [stay.who for stay in self._open[page]]
            self._prefix_of[who, page] = holders[-1] if holders else who
        self._touch(edge, who, Reach.PREFIX, "request")
        self._mark(edge, who, MarkKind.REUSED)

    def _window(self) -> Reach:
        return Reach.WINDOW_FILE if self.landing in BESIDE_THE_POOL else Reach.WINDOW

    def _computed(self, edge: Edge, who: Who) -> None:
        decode = self.life.role is Role.DECODE
        self._enter(edge, who, PageStage.READABLE if decode else PageStage.SEALED)
        self._computed_ns[who] = edge.at_ns
        self._mark(edge, who, MarkKind.COMPUTED)

    def _written(self, edge: Edge, who: Who) -> None:
        """A write began when its pages were sealed: of its beginning there is no record."""
        began_ns = self._computed_ns.get(who, edge.at_ns)
        self._touch(edge, who, Reach.SOURCE, "window", began_ns)
        self._let_go(Reach.SOURCE, edge, "window")
        self._let_go(Reach.PREFIX, edge, "request")
        self._mark(edge, who, MarkKind.WRITTEN)

    def _judged(self, edge: Edge, who: Who) -> None:
        if edge.fields["outcome"] == ADMITTED:
            self._enter(edge, who, PageStage.READABLE)
            self._mark(edge, who, MarkKind.ADMITTED)
        else:
            self._mark(edge, who, MarkKind.REFUSED)

    def _request_ended(self, edge: Edge, who: Who) -> None:
        """What prefill does not drain in the same turn, it keeps as a prefix."""
        self._let_go(Reach.READ, edge, "request")
        self._let_go(Reach.PREFIX, edge, "request")
        if self.life.role is not Role.PREFILL:
            return
        for stay in self._open_of(who):
            stay.enter(PageStage.SHARED, edge.at_ns)
            stay.end_sequence = edge.sequence

    def _drain(self, edge: Edge, who: Who) -> None:
        for stay in self._own(edge, who):
            same_turn = stay.end_sequence and stay.end_sequence + 1 == edge.sequence
            if same_turn and stay.parts[-1].stage is PageStage.SHARED:
                stay.parts.pop()
            stay.enter(PageStage.DRAINING, edge.at_ns)

    def _drained(self, edge: Edge, who: Who) -> None:
        for stay in self._own(edge, who):
            stay.ended_ns, stay.fence = edge.at_ns, str(edge.fields["fence"] or "not recorded")
        for page in edge.pages:
            self._open[page] = [stay for stay in self._open[page] if stay.ended_ns is None]

    def _enter(self, edge: Edge, who: Who, stage: PageStage) -> None:
        for stay in self._own(edge, who):
            stay.enter(stage, edge.at_ns)

    def _own(self, edge: Edge, who: Who) -> list[_Stay]:
        """Return an owner's open stays on the pages that an edge names."""
        found = [
            next((stay for stay in reversed(self._open[page]) if stay.who == who), None)
            for page in edge.pages
        ]
        self.unmatched += None in found
        return [stay for stay in found if stay is not None]

    def _open_of(self, who: Who) -> Iterator[_Stay]:
        return (stay for stays in self._open.values() for stay in stays if stay.who == who)

    def _touch(
        self, edge: Edge, who: Who, reach: Reach, name: str, began_ns: int | None = None
    ) -> None:
        """Let an owner reach pages, from now or from an earlier time on."""
        since_ns = edge.at_ns if began_ns is None else began_ns
        made: dict[Who, _Touch] = {}
        for page in edge.pages:
            under = self._prefix_of.get((who, page), who)
            if under not in made:
                named = str(edge.fields[name])
                made[under] = _Touch(reach, who, under, since_ns, named, _scopes(edge))
            self._touches[page].append(made[under])
        self._named[reach, str(edge.fields[name])] += made.values()

    def _let_go(self, reach: Reach, edge: Edge, name: str) -> None:
        """End touches by name; a prefix is let go by whatever needs it last."""
        for touch in self._named[reach, str(edge.fields[name])]:
            if touch.ended_ns is None or reach is Reach.PREFIX:
                touch.ended_ns = edge.at_ns

    def _mark(self, edge: Edge, who: Who, kind: MarkKind) -> None:
        for page in edge.pages:
            self._marks[page].append(Mark(edge.at_ns, kind, who))


def _generations(edge: Edge) -> Sequence[int | None]:
    """Return the generation of each page, None where the record has not one for each."""
    stated = edge.fields["generations"] or ()
    return stated if len(stated) == len(edge.pages) else [None] * len(edge.pages)


def _scopes(edge: Edge) -> tuple[str, str]:
    mine, creators = (edge.fields.get(name) or "" for name in ("scope", "creator_scope"))
    return str(mine), str(creators)


def keep_books(edges: Iterable[Edge]) -> Mapping[Life, Book]:
    """Keep the books of all lives that recorded anything.

    Args:
        edges: In order.
    """
    books: dict[Life, Book] = {}
    for edge in edges:
        books.setdefault(edge.life, Book(edge.life)).take(edge)
    return books
