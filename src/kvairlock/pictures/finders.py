"""Looks for what must not be, in the histories of pages and in the edges of a run.

history of a page --> two stays at once, a touch beyond the stay that allows it
edges of a run    --> admitted against a statement, read without confirmation, freed unproven
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import accumulate

from kvairlock.core.ends import ENDS
from kvairlock.core.terms import Fence
from kvairlock.pictures.book import ADMITTED, BESIDE_THE_POOL
from kvairlock.pictures.edges import Edge, Life, Who
from kvairlock.pictures.findings import Finding, FindingKind
from kvairlock.pictures.history import REACHES, History, Reach, Stay, Touch

DIFFERENT = "a prefix that was computed for another scope"
UNDECLARED = "a prefix of another tenant: right under a declared scope only, and none is recorded"

Histories = Mapping[Life, Mapping[int, History]]


def find(histories: Histories, edges: Iterable[Edge]) -> tuple[Finding, ...]:
    """Find what must not be, in order of time.

    Args:
        histories: Of every page, for each life.
        edges: Of the same run, in order.
    """
    pages: defaultdict[Finding, set[int]] = defaultdict(set)
    for life, of_page in histories.items():
        alike: defaultdict[History, list[int]] = defaultdict(list)
        for page, history in of_page.items():
            alike[history].append(page)
        for history, on in alike.items():
            for found in _of_page(life, history):
                pages[found].update(on)
    of_pages = [replace(found, pages=tuple(sorted(on))) for found, on in pages.items()]
    return tuple(sorted([*of_pages, *_of_run(tuple(edges))], key=_order))


def _order(found: Finding) -> tuple[object, ...]:
    return found.began_ns, found.ended_ns, found.kind, found.life, found.whos, found.pages


def _of_page(life: Life, history: History) -> Iterator[Finding]:
    stays = sorted(history.stays, key=lambda stay: stay.began_ns)
    began_ns = [stay.began_ns for stay in stays]
    latest_ns = list(accumulate((stay.ended_ns for stay in stays), max))
    for number, stay in enumerate(stays):
        for later in stays[number + 1 : bisect_left(began_ns, stay.ended_ns)]:
            yield from _held_twice(life, stay, later)
    for touch in history.touches:
        first, stop = bisect_right(latest_ns, touch.began_ns), bisect_left(began_ns, touch.ended_ns)
        if touch.reach is not Reach.WINDOW_FILE:
            yield from _touched(life, touch, stays[first:stop])


def _held_twice(life: Life, first: Stay, second: Stay) -> Iterator[Finding]:
    began_ns, ended_ns = _common(first, second)
    if began_ns < ended_ns:
        whos = (second.who, first.who)
        detail = "allocated before the drain of the owner before it had ended"
        yield Finding(FindingKind.HELD_TWICE, life, (), whos, began_ns, ended_ns, detail)


def _touched(life: Life, touch: Touch, stays: list[Stay]) -> Iterator[Finding]:
    """A touch is allowed as long as the stay that it is under goes on, and by no other stay."""
    does = REACHES[touch.reach].does
    across = touch.reach is Reach.PREFIX and touch.who.tenant != touch.under.tenant
    if across and not touch.is_declared:
        kind, whos = FindingKind.ACROSS_TENANTS, (touch.who, touch.under)
        detail = DIFFERENT if all(touch.scopes) else UNDECLARED
        yield Finding(kind, life, (), whos, touch.began_ns, touch.ended_ns, detail)
    for stay in stays:
        began_ns, ended_ns = _common(touch, stay)
        if stay.who != touch.under and began_ns < ended_ns:
            whos = (touch.who, stay.who)
            yield Finding(FindingKind.FOREIGN, life, (), whos, began_ns, ended_ns, does)
    for began_ns, ended_ns in _uncovered(touch, stays):
        yield Finding(FindingKind.UNHELD, life, (), (touch.who,), began_ns, ended_ns, does)


def _common(first: Stay | Touch, second: Stay | Touch) -> tuple[int, int]:
    return max(first.began_ns, second.began_ns), min(first.ended_ns, second.ended_ns)


def _uncovered(touch: Touch, stays: list[Stay]) -> Iterator[tuple[int, int]]:
    """Yield the parts of a touch in which nobody held the page."""
    since_ns = touch.began_ns
    for stay in stays:
        if since_ns < min(stay.began_ns, touch.ended_ns):
            yield since_ns, min(stay.began_ns, touch.ended_ns)
        since_ns = max(since_ns, stay.ended_ns)
    if since_ns < touch.ended_ns:
        yield since_ns, touch.ended_ns


def _of_run(edges: tuple[Edge, ...]) -> Iterator[Finding]:
    yield from _unconfirmed(edges)
    yield from _against_statements(edges)
    yield from _late_writes(edges)
    for edge in edges:
        if edge.event == "drain_ended" and edge.fields["fence"] == Fence.UNPROVEN:
            detail = "the pages went back while somebody could still reach them"
            yield _moment(FindingKind.UNPROVEN, edge, edge.pages, detail)
        if edge.event == "invariant_broken":
            yield _moment(FindingKind.INVARIANT, edge, (), str(edge.fields["invariant"]))


def _moment(kind: FindingKind, edge: Edge, pages: tuple[int, ...], detail: str) -> Finding:
    whos = () if edge.who is None else (edge.who,)
    return Finding(kind, edge.life, tuple(sorted(pages)), whos, edge.at_ns, edge.at_ns, detail)


def _unconfirmed(edges: tuple[Edge, ...]) -> Iterator[Finding]:
    """Reads that no verdict and no computation of that node covers."""
    ended_ns = {
        (e.life, e.who): e.at_ns for e in edges if e.event in ("read_ended", "request_ended")
    }
    short: dict[tuple[Life, Who | None], str] = {}
    for edge in edges:
        key = (edge.life, edge.who)
        if edge.event == "range_computed":
            short[key] = ""
        elif edge.event == "verdict" and edge.fields["outcome"] == ADMITTED:
            short[key] = _short_of(edge)
        elif edge.event == "read_started":
            detail = short.get(key, "nothing was confirmed for this request")
            if detail:
                found = _moment(FindingKind.UNCONFIRMED, edge, edge.pages, detail)
                yield replace(found, ended_ns=ended_ns.get(key, edge.at_ns))


def _short_of(verdict: Edge) -> str:
    """Say what a verdict lacks of what decode expected by its own figures, empty if nothing."""
    start, stop = verdict.fields["start"], verdict.fields["stop"]
    expected = verdict.fields["expected_tokens"]
    if None not in (start, stop, expected) and (start, stop) == (0, expected):
        return ""
    return f"tokens [{start}, {stop}) were confirmed, of {expected}"


def _against_statements(edges: tuple[Edge, ...]) -> Iterator[Finding]:
    """Verdicts that admitted what prefill had not stated as completed."""
    stated: dict[Who | None, str] = {}
    for edge in edges:
        if edge.event == "receipt_sent":
            stated[edge.who] = str(edge.fields["outcome"])
        elif edge.event == "verdict" and edge.fields["outcome"] == ADMITTED:
            outcome = stated.get(edge.who)
            if outcome is not None and not _may_hand_over(outcome):
                detail = f"prefill stated {outcome}"
                yield _moment(FindingKind.AGAINST_STATEMENT, edge, edge.pages, detail)


def _may_hand_over(outcome: str) -> bool:
    return any(row.may_hand_over for end, row in ENDS.items() if end == outcome)


def _late_writes(edges: tuple[Edge, ...]) -> Iterator[Finding]:
    """Bytes that were stored through a window over the pool after its fence."""
    beside = {edge.life for edge in edges if edge.event == "node_started" and _is_beside(edge)}
    granted = {e.fields["window"]: e for e in edges if e.event == "window_granted"}
    fenced: set[str] = set()
    for edge in edges:
        if edge.event == "window_fenced":
            fenced.add(edge.fields["window"])
        elif edge.event in ("write_ended", "write_repeated") and edge.fields["window"] in fenced:
            grant = granted.get(edge.fields["window"])
            if grant is not None and grant.life not in beside:
                yield _late(grant, edge)


def _is_beside(started: Edge) -> bool:
    return started.fields["landing"] in BESIDE_THE_POOL


def _late(grant: Edge, write: Edge) -> Finding:
    detail = f"{write.life.node} stored {write.fields['bytes_written']} bytes through its window"
    found = _moment(FindingKind.LATE_WRITE, grant, grant.pages, detail)
    return replace(found, began_ns=write.at_ns, ended_ns=write.at_ns)
