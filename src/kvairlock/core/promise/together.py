"""How many requests of several lengths the routes hold at one time, all of them together.

Routes share nodes, so what each holds alone can't be added up. A class of requests is placed as a
flow: each of its requests takes pages of one prefill node and of one decode node that make a route.

    prefill-0 (2) ----> decode-0 (3)      room for 2 and 4 at one end, for 3 and 1 at the other:
                   /                      4 requests at one time, though the three routes
    prefill-1 (4) ----> decode-1 (1)      alone hold 2 and 3 and 1

The longest class is placed first, the next in what is left. Room that it finds is there; where it
finds none a cleverer packing might, which nobody may rely on.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence

from kvairlock.core.promise.capacity import CapacityReport
from kvairlock.core.promise.commitment import LengthClass, RouteReports
from kvairlock.core.terms import NodeName, Route, pages_for


class Room:
    """What is left of one node while requests are placed in it.

    Args:
        report: What the node holds when it is empty.
    """

    def __init__(self, report: CapacityReport) -> None:
        self._report = report
        self._pages = report.pages
        self._windows = report.windows
        self._group_pages = [group.pages for group in report.groups]

    def fits(self, tokens: int) -> int:
        """Return how many more requests of a length fit."""
        if not self._report.concurrency(tokens):
            return 0
        most = self._pages // pages_for(tokens, self._report.page_tokens)
        for group, pages in zip(self._report.groups, self._group_pages, strict=True):
            most = min(most, pages // group.pages_of(tokens))
        return min(most, self._windows) if self._report.windows else most

    def take(self, tokens: int, requests: int) -> None:
        """Place requests of a length, of which at least so many fit."""
        self._pages -= requests * pages_for(tokens, self._report.page_tokens)
        self._windows -= requests
        for index, group in enumerate(self._report.groups):
            self._group_pages[index] -= requests * group.pages_of(tokens)


def held_together(classes: Iterable[LengthClass], routes: Sequence[RouteReports]) -> dict[str, int]:
    """Return how many requests of each class there is room for beside all others, by its name.

    Args:
        classes: The classes; none gets room for more than its concurrency.
        routes: The routes that serve; both nodes of each report.
    """
    rooms = {report.node: Room(report) for route in routes for report in route.reports}
    held = {}
    for each in sorted(classes, key=lambda c: c.context_tokens, reverse=True):
        tokens = each.context_tokens
        fits = {node: room.fits(tokens) for node, room in rooms.items()}
        placed = flow([r.route for r in routes], fits, each.concurrency)
        for route, requests in placed.items():
            rooms[route.prefill].take(tokens, requests)
            rooms[route.decode].take(tokens, requests)
        held[each.name] = placed.total()
    return held


def flow(routes: Sequence[Route], fits: Mapping[NodeName, int], wanted: int) -> Counter[Route]:
    """Return how many requests take each route, as many as can be or as are wanted.

    Args:
        routes: The routes.
        fits: How many requests each node has room for.
        wanted: How many to place at most.
    """
    left = dict(fits)
    placed: Counter[Route] = Counter()
    while wanted > 0 and (path := _path(routes, left, placed)):
        forth, back = path[::2], path[1::2]
        ends = (forth[0].prefill, forth[-1].decode)
        most = min(wanted, *(left[node] for node in ends), *(placed[route] for route in back))
        placed.update(dict.fromkeys(forth, most))
        placed.subtract(dict.fromkeys(back, most))
        for node in ends:
            left[node] -= most
        wanted -= most
    return +placed


def _path(
    routes: Sequence[Route], left: Mapping[NodeName, int], placed: Mapping[Route, int]
) -> list[Route]:
    """Return routes on which more can be placed, or nothing if there are none.

    The first is taken by more requests, the second by fewer, and so on: who is moved away from a
    decode node makes room there, and finds room on another. It begins at a prefill node with room
    and ends at a decode node with room; the search is in breadth, so none is met twice.
    """
    paths = deque([route] for route in routes if left[route.prefill])
    seen = {route.prefill for route in routes if left[route.prefill]}
    while paths:
        path = paths.popleft()
        decode = path[-1].decode
        if left[decode]:
            return path
        for back in routes:
            if back.decode != decode or not placed[back] or back.prefill in seen:
                continue
            seen.add(back.prefill)
            paths += [[*path, back, forth] for forth in routes if forth.prefill == back.prefill]
    return []
