"""A run in scenes: stretches of time in which pages were held, each small enough for one picture.

    pages held   ####  ######   ##        ###### #      blocks: somebody holds or reaches a page
    scenes      |--------------------|   |---------|    blocks together, while few edges

A scene ends where nobody holds anything but kept prefixes, so that no request is cut in two; only a
block that is too large for any picture is. Everything has a bound, and what is left out is counted.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

from kvairlock.core.memory.page import PageStage
from kvairlock.pictures.accounts import Account, accounts_of
from kvairlock.pictures.book import keep_books
from kvairlock.pictures.edges import Clock, Edge, Life, read_edges
from kvairlock.pictures.finders import Histories, find
from kvairlock.pictures.findings import Finding
from kvairlock.pictures.history import Stay
from kvairlock.pictures.names import Names, names_of
from kvairlock.pictures.shelves import Shelf, shelves_of

TIMES_WANTED = 120
"""Different times in one scene: blocks are put together up to here."""
TIMES_MAX = 320
"""A block with more of them is cut."""
SCENES_MAX = 12


@dataclass(frozen=True, slots=True)
class Scene:
    """A stretch of time.

    Args:
        began_ns: Its first edge.
        ended_ns: Its last edge.
        shelves: The nodes that held pages.
        edges: All edges since the scene before.
        times_ns: Every time at which something changes in a row, in order.
    """

    began_ns: int
    ended_ns: int
    shelves: tuple[Shelf, ...]
    edges: tuple[Edge, ...]
    times_ns: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Picture:
    """A run, drawn from its evidence.

    Args:
        names: How its owners are called.
        accounts: What each life says about itself.
        findings: What must not be, in order of time.
        scenes: Its parts.
        scenes_left_out: Parts that are not in it.
        clock: What its times count.
        misfits: Records that do not fit the schema.
        repeated: Records whose number was there before.
        unmatched: Records about pages that nobody is known to hold.
    """

    names: Names
    accounts: tuple[Account, ...]
    findings: tuple[Finding, ...]
    scenes: tuple[Scene, ...]
    scenes_left_out: int
    clock: Clock
    misfits: int
    repeated: int
    unmatched: int


def picture(records: Iterable[Mapping[str, object]], about: str = "") -> Picture:
    """Make the picture of one run, or of the pages of one request in it.

    Args:
        records: The evidence of all its processes, in any order; about one request, that of the
            requests which had its pages as well is enough.
        about: The pseudonym of the request, of whose pages and findings the picture is.
    """
    log = read_edges(records, of_requests=bool(about))
    books = keep_books(log.edges)
    until_ns = log.edges[-1].at_ns if log.edges else 0
    histories: Histories = {life: book.histories(until_ns) for life, book in books.items()}
    if about:
        histories = _with_pages_of(about, histories, log.edges)
    findings = find(histories, log.edges)
    if about:
        findings = tuple(found for found in findings if about in (w.request for w in found.whos))
    stretches = _stretches(histories) or [(0, until_ns)]
    return Picture(
        names=names_of(log.edges),
        accounts=accounts_of(log.edges),
        findings=findings,
        scenes=tuple(islice(_scenes(stretches, histories, log.edges, findings), SCENES_MAX)),
        scenes_left_out=len(stretches[SCENES_MAX:]),
        clock=log.clock,
        misfits=log.misfits,
        repeated=log.repeated,
        unmatched=sum(book.unmatched for book in books.values()),
    )


def _with_pages_of(request: str, histories: Histories, edges: Iterable[Edge]) -> Histories:
    """Leave out the pages that no record of a request names."""
    named: defaultdict[Life, set[int]] = defaultdict(set)
    for edge in edges:
        if edge.who is not None and edge.who.request == request and "pages" in edge.fields:
            named[edge.life].update(edge.pages)
    return {
        life: {page: history for page, history in pages.items() if page in named[life]}
        for life, pages in histories.items()
    }


def _stretches(histories: Histories) -> list[tuple[int, int]]:
    """Return from when until when each scene lasts."""
    times = sorted(
        {t for pages in histories.values() for h in pages.values() for t in h.times_ns()}
    )
    together: list[tuple[int, int]] = []
    for block in _blocks(histories):
        for began_ns, ended_ns in _cut(*block, times):
            if together and _count(times, together[-1][0], ended_ns) <= TIMES_WANTED:
                together[-1] = (together[-1][0], ended_ns)
            else:
                together.append((began_ns, ended_ns))
    return together


def _blocks(histories: Histories) -> Iterator[tuple[int, int]]:
    """Yield the times in which somebody holds or reaches a page, kept prefixes aside."""
    every = [history for pages in histories.values() for history in pages.values()]
    busy = {part for history in every for stay in history.stays for part in _busy(stay)}
    busy |= {(touch.began_ns, touch.ended_ns) for history in every for touch in history.touches}
    since_ns = until_ns = None
    for began_ns, ended_ns in sorted(busy):
        if since_ns is None or until_ns is None or began_ns > until_ns:
            if since_ns is not None and until_ns is not None:
                yield since_ns, until_ns
            since_ns, until_ns = began_ns, ended_ns
        until_ns = max(until_ns, ended_ns)
    if since_ns is not None and until_ns is not None:
        yield since_ns, until_ns


def _busy(stay: Stay) -> Iterator[tuple[int, int]]:
    for stage, began_ns, ended_ns in stay.stages():
        if stage is not PageStage.SHARED:
            yield began_ns, ended_ns


def _cut(began_ns: int, ended_ns: int, times: list[int]) -> Iterator[tuple[int, int]]:
    """Cut a block that has more different times than a picture can show."""
    within = times[bisect_left(times, began_ns) : bisect_right(times, ended_ns)]
    for first in range(0, max(len(within) - 1, 1), TIMES_MAX):
        part = within[first : first + TIMES_MAX + 1]
        yield part[0], part[-1]


def _count(times: list[int], began_ns: int, ended_ns: int) -> int:
    return bisect_right(times, ended_ns) - bisect_left(times, began_ns)


def _scenes(
    stretches: list[tuple[int, int]],
    histories: Histories,
    edges: tuple[Edge, ...],
    findings: tuple[Finding, ...],
) -> Iterator[Scene]:
    """Yield the scenes; what happened between two of them is told with the later one."""
    told = _of_requests(edges)
    for number, (began_ns, ended_ns) in enumerate(stretches, start=1):
        last = number == len(stretches)
        stop = len(told) if last else bisect_right(told, ended_ns, key=lambda edge: edge.at_ns)
        shelves = shelves_of(histories, began_ns, ended_ns, findings)
        times = {at for s in shelves for row in s.rows for at in row.history.times_ns()}
        within = tuple(sorted(at for at in times if began_ns <= at <= ended_ns))
        yield Scene(began_ns, ended_ns, shelves, told[:stop], within)
        told = told[stop:]


def _of_requests(edges: tuple[Edge, ...]) -> tuple[Edge, ...]:
    """Leave out how the processes came up, and how they were taken down."""
    about = [i for i, e in enumerate(edges) if e.who is not None or e.event == "failpoint"]
    return edges[about[0] : about[-1] + 1] if about else edges
