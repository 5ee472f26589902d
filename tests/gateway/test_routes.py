"""The live table of routes: what is promised, and which route takes a request."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvairlock.core.errors import Reason, Refusal, Stage
from kvairlock.core.guards import ALL_GUARDS, Guard, GuardSet
from kvairlock.core.promise.capacity import Demand
from kvairlock.core.promise.commitment import Commitment
from kvairlock.core.terms import Instant, NodeName, Role, Route
from kvairlock.gateway.reports import NodeState
from kvairlock.gateway.routes import Routes

from .fake_nodes import report, status

P0, P1, D0, D1 = (NodeName(n) for n in ("prefill-0", "prefill-1", "decode-0", "decode-1"))
NODES = {P0: Role.PREFILL, P1: Role.PREFILL, D0: Role.DECODE, D1: Role.DECODE}
UNCONTRACTED = GuardSet(frozenset({Guard.CONTRACT}))
NOW = Instant(1)


def table(
    tokens: dict[NodeName, int], guards: GuardSet = ALL_GUARDS, configured: int = 0
) -> Routes:
    """Routes over the named nodes, all of which are up and hear each other."""
    roles = {name: NODES[name] for name in tokens}
    routes = Routes(roles, guards, Commitment(configured), now=lambda: NOW)
    for name, role in roles.items():
        hear(routes, name, role, tokens[name], list(tokens))
    return routes


def pair() -> Routes:
    """Routes over one node of each role, of which nobody has heard."""
    nodes = {P0: Role.PREFILL, D0: Role.DECODE}
    return Routes(nodes, ALL_GUARDS, Commitment(), now=lambda: NOW)


def hear(routes: Routes, name: NodeName, role: Role, tokens: int, links: list[NodeName]) -> None:
    routes.heard(name, status(report(name, role, tokens), tuple(links)), NOW)


def test_a_route_is_up_when_both_ends_are_heard_and_hear_each_other() -> None:
    routes = pair()
    route = Route(P0, D0)
    assert routes.all == (route,)
    hear(routes, D0, Role.DECODE, 512, [P0])
    assert not routes.is_up(route)
    hear(routes, P0, Role.PREFILL, 256, [])
    assert routes.up() == (route,)
    hear(routes, D0, Role.DECODE, 512, [])
    assert routes.up() == ()
    hear(routes, D0, Role.DECODE, 512, [P0])
    routes.lost(P0)
    assert routes.up() == ()
    assert routes.nodes[P0].state is NodeState.LOST
    assert routes.nodes[P0].status is not None


def test_the_promise_is_what_the_largest_route_holds_whole() -> None:
    assert table({P0: 256, P1: 1024, D0: 512}).promise() == 512
    assert table({P0: 256, D0: 512, D1: 2048}).promise() == 256
    assert table({P0: 20_000, D0: 20_000}).promise() == 8192  # the model's own


def test_the_promise_counts_landing_memory() -> None:
    routes = table({P0: 256})
    routes = pair()
    hear(routes, P0, Role.PREFILL, 256, [])
    small = report(D0, Role.DECODE, 512)
    landing = replace(small, landing_pages=5)
    routes.heard(D0, status(landing, (P0,)), NOW)
    assert routes.promise() == 80
    refusal = routes.choose(Demand(81, 1), {})
    assert isinstance(refusal, Refusal)
    assert (refusal.asked, refusal.limit, refusal.limit_name) == (81, 80, "route_landing_tokens")


@pytest.mark.parametrize(
    ("prompt", "choices", "room"),
    [
        (200, 1, 56),  # 256 of prefill
        (255, 1, 1),
        (256, 1, 0),
        (300, 1, 0),
        # 512 of decode in 32 pages: 12 full ones are shared, 20 are left for four.
        (200, 4, 72 - 16),
        (200, 8, 24),  # two pages each, and 8 of their slots hold the prompt's end
        (16, 32, 0),  # the prompt's page is each choice's own
    ],
)
def test_room_is_the_longest_answer_that_is_not_refused(
    prompt: int, choices: int, room: int
) -> None:
    routes = table({P0: 256, D0: 512})
    assert routes.room_tokens(Demand(prompt, 999, choices)) == room
    if room:
        assert isinstance(routes.choose(Demand(prompt, room, choices), {}), Route)
    assert isinstance(routes.choose(Demand(prompt, room + 1, choices), {}), Refusal)


def test_there_is_no_room_without_a_route() -> None:
    assert pair().room_tokens(Demand(1, 1)) == 0


def test_the_promise_falls_when_a_route_is_lost() -> None:
    routes = table({P0: 256, P1: 1024, D0: 1024})
    assert routes.promise() == 1024
    routes.lost(P1)
    assert routes.promise() == 256
    routes.lost(P0)
    assert routes.promise() == 0


@pytest.mark.parametrize(
    ("configured", "guards", "promised"),
    [
        (100, ALL_GUARDS, 100),
        (4096, ALL_GUARDS, 256),
        (4096, UNCONTRACTED, 4096),
        (0, UNCONTRACTED, 256),
    ],
)
def test_configuration_lowers_the_promise_and_never_raises_it(
    configured: int, guards: GuardSet, promised: int
) -> None:
    assert table({P0: 256, D0: 512}, guards, configured).promise() == promised


def test_requests_are_routed_by_length() -> None:
    routes = table({P0: 256, P1: 1024, D0: 1024})
    assert routes.choose(Demand(257, 1), {}) == Route(P1, D0)
    assert routes.choose(Demand(200, 1), {P1: 0, P0: 5}) == Route(P1, D0)
    assert routes.choose(Demand(200, 1), {P1: 5, P0: 0}) == Route(P0, D0)


def test_the_least_loaded_route_comes_first_and_ties_go_by_name() -> None:
    routes = table({P0: 256, P1: 256, D0: 256, D1: 256})
    demand = Demand(10, 10)
    assert routes.choose(demand, {}) == Route(P0, D0)
    assert routes.choose(demand, {D0: 1}) == Route(P0, D1)
    assert routes.choose(demand, {P0: 1, D0: 1}) == Route(P1, D1)
    assert routes.choose(demand, {P0: 1, D0: 1, P1: 1, D1: 1}) == Route(P0, D0)


@pytest.mark.parametrize(
    ("demand", "refused"),
    [
        (Demand(256, 256), None),
        (Demand(512, 1), (513, 512, "context_window")),
        (Demand(513, 1), (513, 512, "route_prefill_tokens")),
        (Demand(1024, 1), (1024, 512, "route_prefill_tokens")),
        (Demand(10, 503), (513, 512, "context_window")),
        (Demand(10, 1015), (1025, 512, "context_window")),
        (Demand(16, 496, 2), None),  # 32 + 32 of 64 pages: no page is shared
        (Demand(16, 497, 2), (513, 512, "context_window")),
        (Demand(17, 495, 2), None),  # 32 + 31: one is shared
    ],
)
def test_sizes_are_refused_with_the_largest_limit_there_is(
    demand: Demand, refused: tuple[int, int, str] | None
) -> None:
    routes = table({P0: 256, P1: 512, D0: 1024})
    answer = routes.choose(demand, {})
    if refused is None:
        assert isinstance(answer, Route)
        return
    assert isinstance(answer, Refusal)
    assert (answer.reason, answer.stage) == (Reason.CONTEXT_LENGTH, Stage.GATEWAY)
    assert (answer.asked, answer.limit, answer.limit_name) == refused
    assert all(str(figure) in answer.message for figure in refused)


def test_no_route_up_is_route_closed() -> None:
    routes = pair()
    for forced in (None, Route(P0, D0)):
        answer = routes.choose(Demand(1, 1), {}, forced)
        assert isinstance(answer, Refusal)
        assert answer.reason is Reason.ROUTE_CLOSED


def test_a_forced_route_is_taken_or_none() -> None:
    routes = table({P0: 256, P1: 512, D0: 1024})
    assert routes.choose(Demand(10, 1), {P1: 99}, Route(P1, D0)) == Route(P1, D0)
    small = routes.choose(Demand(300, 1), {}, Route(P0, D0))
    assert isinstance(small, Refusal)
    assert (small.limit, small.limit_name) == (256, "route_prefill_tokens")
    routes.lost(P1)
    closed = routes.choose(Demand(10, 1), {}, Route(P1, D0))
    assert isinstance(closed, Refusal)
    assert closed.reason is Reason.ROUTE_CLOSED
    assert "prefill-1/decode-0" in closed.message


def test_without_the_contract_no_size_is_judged() -> None:
    routes = table({P0: 256, D0: 512}, UNCONTRACTED, 4096)
    assert routes.choose(Demand(4000, 1000), {}) == Route(P0, D0)
