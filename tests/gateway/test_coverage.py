"""What the gateway says is covered: what nodes state, and nothing of it that was only observed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from kvairlock.core.checks import FULL, CheckPolicy, Checks, Cover, Coverage
from kvairlock.core.errors import Reason, Refusal
from kvairlock.core.guards import ALL_GUARDS, Guard, GuardMode, GuardSet, Relaxed
from kvairlock.core.messages import Submit
from kvairlock.core.promise.capacity import Demand
from kvairlock.core.promise.commitment import Commitment
from kvairlock.core.terms import Instant, NodeName, Role, Route
from kvairlock.gateway import figures
from kvairlock.gateway.coverage import RouteCoverage, coverage, waivers
from kvairlock.gateway.routes import Routes
from kvairlock.metrics.families import Gathering
from kvairlock.runtime.guarding import Guarding
from kvairlock.runtime.settings import parse

from .fake_nodes import PREFILL_TOKENS, report, status
from .stacks import Stack, stack, until

P0, P1, D0 = (NodeName(name) for name in ("prefill-0", "prefill-1", "decode-0"))
FIRST, SECOND = Route(P0, D0), Route(P1, D0)
NOW = Instant(1)
SAMPLED = Checks(CheckPolicy.SAMPLED, 0.25)
EXPIRES = datetime(2026, 12, 31, tzinfo=UTC)
PILOT = """
[[waiver]]
name = "pilot"
guards = ["contract"]
mode = "observing"
routes = ["prefill-0/decode-0"]
conditions = "pilot tenants only"
owner = "serving"
expires = {expires}
evidence = "30 days without a would-be refusal"
"""


def observing(guard: Guard, route: Route = FIRST) -> Relaxed:
    return Relaxed(route, guard, GuardMode.OBSERVING, FULL, "pilot")


def table(
    decode: tuple[Relaxed, ...] | None = (),
    reads: tuple[Coverage, ...] | None = (
        Coverage(FIRST, 6, 3, 0, 1, 0),
        Coverage(SECOND, 0, 0, 0, 0, 0),
    ),
    guards: GuardSet = ALL_GUARDS,
) -> Routes:
    """Two prefill nodes and a decode node, of which all are heard."""
    roles = {P0: Role.PREFILL, P1: Role.PREFILL, D0: Role.DECODE}
    routes = Routes(roles, guards, Commitment(), now=lambda: NOW)
    for name in (P0, P1):
        routes.heard(name, status(report(name, Role.PREFILL, 256)), NOW)
    said = status(report(D0, Role.DECODE, 512), (P0, P1))
    routes.heard(D0, replace(said, relaxed=decode, coverage=reads), NOW)
    return routes


def first(routes: Routes, guards: GuardSet = ALL_GUARDS) -> RouteCoverage:
    return next(one for one in coverage(routes, guards) if one.route == str(FIRST))


def test_reads_are_those_of_the_route_and_add_up() -> None:
    found = first(table())
    assert found.pages_read == 10
    assert found.reads == {
        Cover.VERIFIED: 6,
        Cover.BY_GENERATION: 3,
        Cover.LOCAL: 0,
        Cover.OBSERVED: 1,
        Cover.UNCOVERED: 0,
    }
    assert (found.relaxed, found.unstated) == ((), ())


def test_a_node_that_speaks_version_1_states_nothing_and_that_is_not_full_coverage() -> None:
    found = first(table(decode=None, reads=None))
    assert (found.pages_read, found.reads) == (None, {})
    assert found.unstated == (D0,)


def test_a_node_that_is_lost_states_nothing_any_more() -> None:
    routes = table()
    routes.lost(D0)
    routes.lost(P0)
    found = first(routes)
    assert (found.pages_read, found.unstated) == (None, (P0, D0))


def test_a_route_that_the_node_does_not_count_is_not_stated() -> None:
    found = first(table(reads=(Coverage(SECOND, 1, 0, 0, 0, 0),)))
    assert found.pages_read is None


def test_each_process_states_its_own_guards_and_only_of_the_route() -> None:
    relaxed = (
        observing(Guard.INTEGRITY),
        observing(Guard.CONTRACT),
        observing(Guard.RANGE, SECOND),
        Relaxed(FIRST, Guard.INTEGRITY, GuardMode.ENFORCING, SAMPLED, "sampling"),
    )
    found = first(table(decode=relaxed), GuardSet(relaxed=relaxed))
    assert [(r.node, r.guard, r.mode, r.checks, r.waiver) for r in found.relaxed] == [
        ("gateway", "contract", "observing", "full", "pilot"),
        ("decode-0", "integrity", "observing", "full", "pilot"),
        ("decode-0", "integrity", "enforcing", "sampled 0.25", "sampling"),
    ]


def test_metrics_say_the_same_and_name_no_tenant() -> None:
    guarding = Guarding(parse(PILOT.format(expires="2026-12-31T00:00:00Z")), 0)
    into = Gathering()
    figures.show_guards(table(), guarding, into)
    families = {f.name: f.samples for f in into.collect()}
    (relaxed,) = families["kvairlock_relaxed"]
    assert relaxed.labels == {
        "route": "prefill-0/decode-0",
        "node": "gateway",
        "guard": "contract",
        "mode": "observing",
        "checks": "full",
        "waiver": "pilot",
    }
    assert {s.value for s in families["kvairlock_guards_unstated"]} == {0.0}
    (expiry,) = families["kvairlock_waiver_expiry_timestamp_seconds"]
    assert (expiry.labels, expiry.value) == ({"waiver": "pilot"}, EXPIRES.timestamp())


@pytest.mark.parametrize(
    ("now", "state", "seconds_left"),
    [(-60, "in_force", 60), (0, "expired", 0), (60, "expired", 0)],
)
def test_a_waiver_is_shown_with_what_is_left_of_it(now: int, state: str, seconds_left: int) -> None:
    second = int(EXPIRES.timestamp()) + now
    guarding = Guarding(parse(PILOT.format(expires="2026-12-31T00:00:00Z")), second)
    (shown,) = waivers(guarding, second)
    assert (shown.state, shown.seconds_left) == (state, seconds_left)
    assert (shown.owner, shown.conditions) == ("serving", "pilot tenants only")
    assert shown.evidence == "30 days without a would-be refusal"
    assert shown.relaxes == ("prefill-0/decode-0 contract observing: pilot",)


# The contract


def test_a_route_whose_contract_only_observes_takes_what_the_contract_refuses() -> None:
    guards = GuardSet(relaxed=(observing(Guard.CONTRACT),))
    routes = table(guards=guards)
    refused = routes.choose(Demand(300, 1), {})
    assert isinstance(refused, Refusal)
    assert refused.reason is Reason.CONTEXT_LENGTH
    assert routes.choose_observing({}) == FIRST
    assert routes.choose_observing({}, without=(FIRST,)) is None
    assert routes.choose_observing({}, forced=SECOND) is None
    assert routes.promise() == 256, "what is advertised is still held"


def test_where_all_routes_enforce_none_takes_it() -> None:
    assert table().choose_observing({}) is None


def ends_at(moment: datetime) -> str:
    return PILOT.format(expires=moment.isoformat(timespec="milliseconds"))


@pytest.fixture(scope="module")
def lenient() -> Iterator[Stack]:
    """A gateway whose contract observes for an hour."""
    until_then = ends_at(datetime.now(UTC) + timedelta(hours=1))
    with stack("[gateway]\nport = 0\n" + until_then) as running:
        yield running


def test_what_the_contract_would_refuse_is_sent_recorded_and_counted(lenient: Stack) -> None:
    prompt = "x" * (PREFILL_TOKENS + 1)
    assert lenient.complete(prompt=prompt, max_tokens=1).status_code == 200
    assert isinstance(lenient.decode.next(Submit), Submit)
    until(lambda: bool(lenient.evidence("would_refuse")))
    (seen,) = lenient.evidence("would_refuse")
    assert (seen["guard"], seen["route"]) == ("contract", "prefill-0/decode-0")
    assert (seen["stage"], seen["reason"]) == ("gateway", "context_length")
    assert (seen["asked"], seen["limit"]) == (PREFILL_TOKENS + 1, PREFILL_TOKENS)
    assert lenient.evidence("request_refused") == []
    metrics = lenient.http.get("/metrics").text.splitlines()
    assert 'kvairlock_would_refuse_total{guard="contract",reason="context_length"} 1.0' in metrics


def test_status_shows_coverage_and_waivers_with_the_time_that_is_left(lenient: Stack) -> None:
    headers = lenient.headers(lenient.operator_key)
    told = lenient.http.get("/status", headers=headers).json()
    (shown,) = told["waivers"]
    assert (shown["name"], shown["state"], shown["owner"]) == ("pilot", "in_force", "serving")
    assert 0 < shown["seconds_left"] <= 3600
    (route,) = told["coverage"]
    assert [r["guard"] for r in route["relaxed"]] == ["contract"]
    (started,) = lenient.evidence("node_started")
    assert started["relaxed"] == ["prefill-0/decode-0 contract observing: pilot"]
    (began,) = lenient.evidence("waiver_began")
    assert began["owner"] == "serving"
