"""How many requests routes hold at one time: never more than there is room for, and never fewer."""

from __future__ import annotations

from collections import Counter
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvairlock.core.promise.capacity import CapacityReport, KvGroup
from kvairlock.core.promise.commitment import LengthClass, RouteReports, RouteState, Stated
from kvairlock.core.promise.together import flow, held_together
from kvairlock.core.terms import Incarnation, NodeName, Role, Route

PREFILLS = tuple(NodeName(f"prefill-{i}") for i in range(3))
DECODES = tuple(NodeName(f"decode-{i}") for i in range(3))
ALL = [Route(p, d) for p, d in product(PREFILLS, DECODES)]


def most(routes: list[Route], fits: dict[NodeName, int]) -> int:
    """How many requests fit, by the narrowest cut: which prefill nodes are cut off themselves."""
    cuts = []
    for through in product((False, True), repeat=len(PREFILLS)):
        open_ones = {p for p, is_open in zip(PREFILLS, through, strict=True) if is_open}
        behind = {r.decode for r in routes if r.prefill in open_ones}
        shut = {r.prefill for r in routes} - open_ones
        cuts.append(sum(fits[node] for node in shut | behind))
    return min(cuts)


@given(
    st.lists(st.sampled_from(ALL), unique=True),
    st.fixed_dictionaries({node: st.integers(0, 6) for node in (*PREFILLS, *DECODES)}),
    st.integers(0, 20),
)
@settings(max_examples=500, deadline=None, derandomize=True)
def test_as_many_are_placed_as_there_is_room_for(
    routes: list[Route], fits: dict[NodeName, int], wanted: int
) -> None:
    placed = flow(routes, fits, wanted)
    assert placed.total() == min(wanted, most(routes, fits))
    taken: Counter[NodeName] = Counter()
    for route, requests in placed.items():
        assert route in routes
        assert requests > 0
        taken.update({route.prefill: requests, route.decode: requests})
    assert all(taken[node] <= fits[node] for node in fits)


def test_requests_move_to_another_node_to_make_room() -> None:
    p, d = PREFILLS, DECODES
    # The first route fills decode-0, where alone prefill-1 can go.
    routes = [Route(p[0], d[0]), Route(p[0], d[1]), Route(p[1], d[0])]
    fits = {p[0]: 2, p[1]: 2, d[0]: 2, d[1]: 2}
    assert flow(routes, fits, 9) == {Route(p[0], d[1]): 2, Route(p[1], d[0]): 2}


def report(name: str, pages: int, windows: int = 0, groups: tuple[KvGroup, ...] = ()) -> Stated:
    role = Role.PREFILL if name.startswith("prefill") else Role.DECODE
    landing = pages if role is Role.DECODE else 0
    life = Incarnation("1")
    node = NodeName(name)
    said = CapacityReport(node, role, life, 0, "f", None, 16, pages, landing, windows, 8192, groups)
    return Stated(node, said)


def pair(prefill: Stated, decode: Stated) -> RouteReports:
    return RouteReports(prefill, decode, RouteState.UP)


def test_a_node_that_two_routes_share_is_counted_once() -> None:
    decode = report("decode-0", 64)
    routes = [pair(report("prefill-0", 64), decode), pair(report("prefill-1", 64), decode)]
    assert [route.concurrency(256) for route in routes] == [4, 4]
    assert held_together([LengthClass("page", 256, 99)], routes) == {"page": 4}


@pytest.mark.parametrize(
    ("decode", "held"),
    [
        (report("decode-0", 64), {"long": 2, "short": 4}),
        (report("decode-0", 64, windows=3), {"long": 2, "short": 1}),
        (report("decode-0", 64, groups=(KvGroup("w", 16, 20, 1, 128),)), {"long": 2, "short": 1}),
        (report("decode-0", 31), {"long": 1, "short": 2}),
    ],
)
def test_shorter_classes_get_what_longer_ones_leave(decode: Stated, held: dict[str, int]) -> None:
    classes = [LengthClass("short", 48, 4), LengthClass("long", 400, 2)]
    assert held_together(classes, [pair(report("prefill-0", 512), decode)]) == held


def test_no_room_is_found_on_a_route_that_does_not_hold_the_length() -> None:
    decode = report("decode-0", 512)
    routes = [pair(report("prefill-0", 8), decode), pair(report("prefill-1", 64), decode)]
    assert held_together([LengthClass("page", 256, 9)], routes) == {"page": 4}
