"""A guard that only observes lets the fault through and says so; on other routes it enforces.

The faults are those of `test_guards_off`: each guard that compares is told its story once more,
observing in place of off.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kvairlock.core.checks import FULL, CheckPolicy, Checks, Cover
from kvairlock.core.effects import Effect, Land
from kvairlock.core.ends import End
from kvairlock.core.errors import InvariantBroken, Reason, Stage
from kvairlock.core.events import GuardsChanged
from kvairlock.core.guards import GUARDS, Guard, GuardMode, GuardSet, Nature, Relaxed
from kvairlock.core.messages import Receipt
from kvairlock.core.terms import NodeName, Role, Route, WindowId
from tests.core.ends import World
from tests.core.ends_engine import Host
from tests.core.ends_parts import (
    PAGE_TOKENS,
    SAMPLE_SEED,
    GrantParcel,
    Kept,
    Request,
    Setup,
    changed,
)
from tests.core.test_guards_off import (
    CASES,
    ORDINARY,
    Case,
    a_router_repeats_a_ticket_with_all_that_came_with_it,
    harms,
    the_engine_steps_with_a_table_of_an_ended_request,
)

P, Q = (Route(NodeName(name), NodeName("d")) for name in ("p", "q"))
OBSERVING = [c for c in CASES if GUARDS[c.guard].can_observe and c.guard is not Guard.MAPPING]
(NEVER_FITS,) = [c for c in OBSERVING if (c.role, c.guard) == (Role.DECODE, Guard.CAPACITY)]
"""Of this fault there is nothing to let pass: what never fits is let in, and waits alone."""
IDS = [f"{case.guard}-{case.role}" for case in OBSERVING]
TWO = Setup(prefills=("p", "q"))


def observing(guard: Guard, *routes: Route) -> tuple[Relaxed, ...]:
    return tuple(Relaxed(route, guard, GuardMode.OBSERVING, FULL, "w") for route in routes)


def reduced(checks: Checks, route: Route = P) -> tuple[Relaxed, ...]:
    return (Relaxed(route, Guard.INTEGRITY, GuardMode.ENFORCING, checks, "w"),)


def told(host: Host, event: str) -> list[dict[str, Any]]:
    return [dict(record.fields) for record in host.records if record.event == event]


def world_of(case: Case, relaxed: tuple[Relaxed, ...]) -> World:
    away = case.shadows | case.carriers
    setup = replace(
        case.setup,
        off_decode=frozenset(guard for role, guard in away if role is Role.DECODE),
        off_prefill=frozenset(guard for role, guard in away if role is Role.PREFILL),
        relaxed=relaxed,
    )
    return World(setup)


def serve(world: World, request: Request) -> None:
    world.settle()
    if world.is_running(request):
        world.decode.step()
        world.decode.finish(request)
        world.settle()


def mixed_up_by(world: World, prefill: str, name: str) -> Request:
    """One prefill node computes another prompt, and states what it did."""
    other, request = world.make("bob", f"not {name}", 8), world.make("alice", name, 8)
    world.prefills[prefill].computes_as[request.transfer] = other
    world.tamper[Receipt] = changed(input_digest=other.digest)
    world.submit(request, prefill=prefill)
    serve(world, request)
    return request


# Which can observe


def test_what_compares_can_observe_and_every_other_guard_says_why_not() -> None:
    assert {guard for guard, row in GUARDS.items() if not row.can_observe} == {
        Guard.STRIP,
        Guard.FRAME,
        Guard.SCOPE,
        Guard.TAIL,
        Guard.DRAIN,
        Guard.SCRUB,
    }
    assert all(row.observing for row in GUARDS.values())
    assert GUARDS[Guard.FRAME].nature is Nature.AUTHENTICATION


def test_every_guard_of_a_node_that_can_observe_is_told_here() -> None:
    """`mapping` has its own stories below, `contract` is the gateway's."""
    can = {guard for guard, row in GUARDS.items() if row.can_observe}
    assert {case.guard for case in OBSERVING} == can - {Guard.MAPPING, Guard.CONTRACT}


@pytest.mark.parametrize("case", OBSERVING, ids=IDS)
def test_observing_the_fault_goes_through_and_is_recorded(case: Case) -> None:
    routes = tuple(Route(NodeName(name), NodeName("d")) for name in case.setup.prefills)
    world = world_of(case, observing(case.guard, *routes))
    found = case.story(world)
    assert harms(found, case) is (case is not NEVER_FITS), found
    host = world.decode if case.role is Role.DECODE else world.prefill
    seen = [r for r in told(host, "would_refuse") if r["guard"] is case.guard]
    assert seen, "what a guard finds that only observes is on record"
    assert (seen[0]["reason"], seen[0]["stage"]) == (case.reason, case.stage)
    assert seen[0]["route"] in {str(route) for route in routes}
    assert host.counters[f"would_refuse.{case.guard}.{case.reason}"] == len(seen)


@pytest.mark.parametrize("case", OBSERVING, ids=IDS)
def test_observing_on_another_route_changes_nothing(case: Case) -> None:
    elsewhere = Route(NodeName("elsewhere"), NodeName("d"))
    world = world_of(replace(case, carriers=frozenset()), observing(case.guard, elsewhere))
    found = case.story(world)
    assert not harms(found, case)
    assert found.refusal is not None
    assert (found.refusal.reason, found.refusal.stage) == case.refused_as
    assert not [r for host in world.hosts for r in told(host, "would_refuse")]


def test_figures_of_what_would_be_refused_are_recorded() -> None:
    world = World(replace(ORDINARY, context_tokens=1_000, relaxed=observing(Guard.CAPACITY, P)))
    world.ask("greedy", "never", 8, max_tokens=200)
    (seen,) = told(world.decode, "would_refuse")
    assert (seen["asked"], seen["limit"], seen["limit_name"]) == (208, 64, "decode_pool_tokens")


@pytest.mark.parametrize("tenant", ["greedy", "alice"])
def test_what_an_observing_guard_lets_in_and_never_fits_keeps_nobody_waiting(tenant: str) -> None:
    """Neither others nor its own tenant, on a route where the guard enforces; it waits alone."""
    world = World(replace(TWO, relaxed=observing(Guard.CAPACITY, P)))
    never = world.ask("greedy", "never", 4, max_tokens=100)
    behind = world.ask(tenant, "behind", 4, prefill="q")
    world.settle()
    assert world.is_running(behind)
    world.complete(behind)
    world.advance(world.setup.decode_limits.queue_ms)
    refusal = world.refusal(never)
    assert (refusal.reason, refusal.stage) == (Reason.CAPACITY, Stage.DECODE_ADMISSION)
    world.assert_baseline()


def test_nor_does_it_when_the_guard_enforces_again_while_it_waits() -> None:
    world = World(replace(TWO, relaxed=observing(Guard.CAPACITY, P)))
    never = world.ask("greedy", "never", 4, max_tokens=100)
    world.decode.tell(GuardsChanged(GuardSet()))
    behind = world.ask("alice", "behind", 4)
    world.complete(behind)
    world.heal()
    assert world.refusal(never).reason is Reason.CAPACITY
    world.assert_baseline()


def test_what_is_over_a_limit_and_fits_all_the_same_is_served_where_the_guard_observes() -> None:
    world = World(replace(TWO, context_tokens=8, relaxed=observing(Guard.CAPACITY, P)))
    world.complete(world.ask("alice", "a", 8, max_tokens=8))
    (seen,) = [r for r in told(world.decode, "would_refuse") if r["guard"] is Guard.CAPACITY]
    assert (seen["asked"], seen["limit"], seen["limit_name"]) == (16, 8, "model_context_tokens")


def test_one_node_observes_on_one_route_and_enforces_on_the_other() -> None:
    world = World(replace(TWO, relaxed=observing(Guard.INPUT, P)))
    passed, refused = mixed_up_by(world, "p", "a"), mixed_up_by(world, "q", "b")
    assert {reader for reader, _ in world.leaks} == {passed.transfer}
    assert world.refusal(refused).reason is Reason.COMPUTED_INPUT
    assert [r["route"] for r in told(world.decode, "would_refuse")] == ["p/d"]


# The verdict says what only was observed


def test_a_failed_check_that_observes_is_listed_apart_and_verifies_nothing() -> None:
    world = World(replace(ORDINARY, relaxed=observing(Guard.INTEGRITY, P)))
    torn(world, page=1)
    (verdict,) = told(world.decode, "verdict")
    assert verdict["outcome"] == "admitted"
    assert verdict["observed"] == ("integrity",)
    assert "integrity" not in verdict["checks"]
    assert verdict["verified"] == ()


def test_a_check_that_observes_and_passes_is_one_that_passed() -> None:
    world = World(replace(ORDINARY, relaxed=observing(Guard.INTEGRITY, P)))
    serve(world, world.ask("alice", "a", 8))
    (verdict,) = told(world.decode, "verdict")
    assert verdict["observed"] == ()
    assert verdict["checks"][-1] == "integrity"
    assert verdict["verified"] == verdict["pages"]


def test_a_check_after_an_observed_one_still_refuses() -> None:
    world = World(replace(ORDINARY, relaxed=observing(Guard.INPUT, P)))
    world.tamper[Receipt] = changed(input_digest=b"another", layout="another")
    request = world.ask("alice", "a", 8)
    world.settle()
    assert world.refusal(request).reason is Reason.MODEL_LAYOUT
    (verdict,) = told(world.decode, "verdict")
    assert (verdict["outcome"], verdict["observed"]) == ("model_layout", ("input",))
    assert verdict["policy"] == "", "nothing has landed"


# Reading


def test_a_stale_table_of_an_open_request_is_read_and_recorded() -> None:
    setup = replace(
        ORDINARY, off_decode=frozenset({Guard.CLAIMANT}), relaxed=observing(Guard.MAPPING, P)
    )
    world = World(setup)
    assert a_router_repeats_a_ticket_with_all_that_came_with_it(world).foreign
    seen = told(world.decode, "would_refuse")
    assert [(r["guard"], r["reason"], r["stage"]) for r in seen] == [
        (Guard.MAPPING, Reason.GENERATION, Stage.DECODE)
    ]


def test_a_table_of_an_ended_request_has_no_route_and_is_refused_all_the_same() -> None:
    world = World(replace(ORDINARY, relaxed=observing(Guard.MAPPING, P)))
    assert not the_engine_steps_with_a_table_of_an_ended_request(world).foreign
    assert len(told(world.decode, "mapping_refused")) == 1


# Which pages are digested


def torn(world: World, page: int, pages: int = 2) -> Request:
    """One page changes between the write and its landing."""
    request, other = world.make("alice", "a", pages * PAGE_TOKENS), world.make("bob", "b", 8)
    world.manual.add("land")
    world.submit(request)
    world.settle()
    file = world.files[WindowId("w1")]
    file.array[file.rows[page], :1] = other.tag
    world.manual.clear()
    serve(world, request)
    return request


SAMPLED = Checks(CheckPolicy.SAMPLED, 0.25)
TEN = replace(ORDINARY, decode_pages=16, prefill_pages=16, tenant_pages=16)
DRAWN = SAMPLED.sample(10, SAMPLE_SEED + 1).digested
LEFT_OUT = tuple(page for page in range(10) if page not in DRAWN)


def test_a_torn_page_of_the_sample_is_refused() -> None:
    for page in DRAWN:
        world = World(replace(TEN, relaxed=reduced(SAMPLED)))
        request = torn(world, page, pages=10)
        assert world.refusal(request).reason is Reason.INTEGRITY
        (verdict,) = told(world.decode, "verdict")
        assert (verdict["policy"], verdict["verified"]) == ("sampled 0.25", ())


def test_a_torn_page_that_was_sampled_out_is_admitted_and_never_reported_as_verified() -> None:
    world = World(replace(TEN, relaxed=reduced(SAMPLED)))
    request = torn(world, LEFT_OUT[0], pages=10)
    assert world.ended(request).end is End.COMPLETED
    assert world.leaks
    (verdict,) = told(world.decode, "verdict")
    assert verdict["verified"] == tuple(verdict["pages"][page] for page in DRAWN)
    assert verdict["pages"][LEFT_OUT[0]] not in verdict["verified"]
    assert "integrity" not in verdict["checks"]


def test_what_prefill_is_told_does_not_draw_the_sample() -> None:
    """It is told the seed of the digests before it writes; the pages to be looked at it is not."""
    world, grants = World(replace(TEN, relaxed=reduced(SAMPLED))), Kept()
    world.tamper[GrantParcel] = grants
    serve(world, world.ask("alice", "a", 40))
    (parcel,) = grants.messages
    (verdict,) = told(world.decode, "verdict")
    digested = tuple(verdict["pages"].index(page) for page in verdict["verified"])
    assert digested == DRAWN
    assert SAMPLED.sample(10, parcel.granted.seed).digested != digested


def test_by_generation_no_page_is_digested_and_prefill_still_vouches_for_all() -> None:
    world = World(replace(TEN, relaxed=reduced(Checks(CheckPolicy.GENERATION, 1.0))))
    request = torn(world, page=0)
    assert world.ended(request).end is End.COMPLETED
    (verdict,) = told(world.decode, "verdict")
    assert (verdict["policy"], verdict["verified"]) == ("generation", ())
    world.tamper[Receipt] = lambda r: [replace(r, digests=r.digests[:1])]
    short = world.ask("alice", "b", 8)
    world.settle()
    assert world.refusal(short).reason is Reason.MISSING_EVIDENCE


@pytest.mark.parametrize(
    ("checks", "digested"),
    [(FULL, tuple(range(10))), (SAMPLED, DRAWN), (Checks(CheckPolicy.GENERATION, 1.0), ())],
    ids=str,
)
def test_only_what_the_policy_has_is_digested_after_landing(
    checks: Checks, digested: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(replace(TEN, relaxed=reduced(checks)))
    done, do = list[Effect](), world.decode.do

    def spied(effect: Effect) -> None:
        done.append(effect)
        do(effect)

    monkeypatch.setattr(world.decode, "do", spied)
    serve(world, world.ask("alice", "a", 40))
    (land,) = [effect for effect in done if isinstance(effect, Land)]
    assert land.digested.tolist() == [land.pages[page] for page in digested]


# Coverage


def reads(world: World, route: Route = P) -> dict[Cover, int]:
    counted = world.decode.machine.books.reads
    return {cover: counted[route, cover] for cover in Cover if counted[route, cover]}


@pytest.mark.parametrize(
    ("relaxed", "off_decode", "expected"),
    [
        ((), frozenset(), {Cover.VERIFIED: 30}),
        (reduced(SAMPLED), frozenset(), {Cover.VERIFIED: 12, Cover.BY_GENERATION: 18}),
        (
            reduced(Checks(CheckPolicy.GENERATION, 1.0)),
            frozenset(),
            {Cover.BY_GENERATION: 30},
        ),
        (observing(Guard.RANGE, P), frozenset(), {Cover.OBSERVED: 30}),
        (observing(Guard.RANGE, Q), frozenset(), {Cover.VERIFIED: 30}),
        ((), frozenset({Guard.INTEGRITY}), {Cover.UNCOVERED: 30}),
        (observing(Guard.RANGE, P), frozenset({Guard.SCRUB}), {Cover.UNCOVERED: 30}),
    ],
    ids=["full", "sampled", "generation", "observing", "other-route", "disabled", "both"],
)
def test_each_read_of_a_prompt_page_is_counted_once_by_what_vouches_for_it(
    relaxed: tuple[Relaxed, ...], off_decode: frozenset[Guard], expected: dict[Cover, int]
) -> None:
    """Ten pages of a prompt, read in each of three steps."""
    world = World(replace(TEN, relaxed=relaxed, off_decode=off_decode))
    request = world.ask("alice", "a", 40, max_tokens=4)
    world.settle()
    for _ in range(3):
        world.decode.step()
    assert world.is_running(request)
    assert reads(world) == expected


def test_what_was_admitted_while_a_guard_observed_stays_observed() -> None:
    world = World(replace(ORDINARY, relaxed=observing(Guard.RANGE, P)))
    before = world.ask("alice", "a", 8, max_tokens=4)
    world.settle()
    world.decode.step()
    world.decode.tell(GuardsChanged(GuardSet()))
    world.decode.step()
    assert reads(world) == {Cover.OBSERVED: 4}
    world.decode.finish(before)
    world.ask("alice", "b", 8, max_tokens=4)
    world.settle()
    world.decode.step()
    assert reads(world) == {Cover.OBSERVED: 4, Cover.VERIFIED: 2}


def test_what_was_admitted_before_a_guard_observes_is_observed_from_then_on() -> None:
    world = World()
    world.ask("alice", "a", 8, max_tokens=4)
    world.settle()
    world.decode.step()
    world.decode.tell(GuardsChanged(GuardSet(relaxed=observing(Guard.MAPPING, P))))
    world.decode.step()
    assert reads(world) == {Cover.VERIFIED: 2, Cover.OBSERVED: 2}


def test_what_came_in_while_a_guard_observed_is_observed_when_it_is_read() -> None:
    """The ticket was let pass; by the time that its pages are there every guard enforces."""
    world = World(replace(ORDINARY, relaxed=observing(Guard.TICKET, P)))
    world.ask("alice", "a", 8, max_tokens=4)
    world.decode.tell(GuardsChanged(GuardSet()))
    world.settle()
    world.decode.step()
    assert reads(world) == {Cover.OBSERVED: 2}


def test_a_prompt_that_decode_computed_itself_is_local() -> None:
    limits = replace(ORDINARY.decode_limits, recompute_tokens_per_min=1_000)
    world = World(replace(ORDINARY, decode_limits=limits))
    world.ask("alice", "a", 8, max_tokens=4)
    world.lose("p")
    world.settle()
    world.decode.step()
    assert reads(world) == {Cover.LOCAL: 2}


# Change at run-time


def test_guards_enforce_from_the_event_on_that_says_so() -> None:
    world = World(replace(ORDINARY, relaxed=observing(Guard.INPUT, P)))
    passed = mixed_up_by(world, "p", "a")
    assert world.ended(passed).end is End.COMPLETED
    world.decode.tell(GuardsChanged(GuardSet()))
    refused = mixed_up_by(world, "p", "b")
    assert world.refusal(refused).reason is Reason.COMPUTED_INPUT


def test_what_was_let_pass_is_refused_if_its_guard_enforces_before_the_verdict() -> None:
    world = World(replace(ORDINARY, relaxed=observing(Guard.INPUT, P)))
    world.manual.add("land")
    request = mixed_up_by(world, "p", "a")
    assert len(told(world.decode, "would_refuse")) == 1
    world.decode.tell(GuardsChanged(GuardSet()))
    world.run("land")
    world.settle()
    assert world.refusal(request).reason is Reason.COMPUTED_INPUT
    (verdict,) = told(world.decode, "verdict")
    assert (verdict["outcome"], verdict["observed"]) == ("computed_input", ("input",))
    world.manual.clear()
    world.heal()
    world.assert_baseline()


def test_prefill_takes_new_guards_as_well() -> None:
    world = World(replace(ORDINARY, prefill_pages=4, relaxed=observing(Guard.CAPACITY, P)))
    world.prefill.tell(GuardsChanged(GuardSet()))
    assert world.prefill.machine.books.guards == GuardSet()


def test_what_is_disabled_never_changes_in_the_life_of_a_node() -> None:
    world = World(replace(ORDINARY, off_decode=frozenset({Guard.SCRUB})))
    with pytest.raises(InvariantBroken, match="what is disabled"):
        world.decode.machine.books.set_guards(GuardSet())
    world.decode.tell(GuardsChanged(GuardSet()))
    assert world.decode.counters["invariant_broken"] == 1
    assert not world.decode.machine.books.guards.on(Guard.SCRUB)


# The set itself


def test_a_guard_is_disabled_before_it_observes() -> None:
    guards = GuardSet(frozenset({Guard.INPUT}), observing(Guard.INPUT, P))
    assert guards.mode(Guard.INPUT, P) is GuardMode.DISABLED
    assert guards.mode(Guard.RANGE, P) is GuardMode.ENFORCING
    assert guards.weakest(Q) is GuardMode.DISABLED


def test_of_two_reductions_the_weaker_counts() -> None:
    half = Checks(CheckPolicy.SAMPLED, 0.5)
    both = GuardSet(relaxed=(*reduced(half), *reduced(SAMPLED)))
    assert both.checks(P) == SAMPLED
    least = GuardSet(relaxed=(*both.relaxed, *reduced(Checks(CheckPolicy.GENERATION, 1.0))))
    assert least.checks(P).policy is CheckPolicy.GENERATION
    assert least.checks(Q) is FULL
    assert both.weakest(P) is GuardMode.ENFORCING


def test_what_does_not_enforce_is_stated_route_by_route() -> None:
    guards = GuardSet(frozenset({Guard.TAIL}), observing(Guard.INPUT, P, Q))
    stated = [str(one) for one in guards.not_enforcing((P,))]
    assert stated == ["p/d tail disabled: drill", "p/d input observing: w"]
    assert [str(one) for one in reduced(SAMPLED)] == ["p/d integrity enforcing sampled 0.25: w"]
    assert GuardSet().not_enforcing((P, Q)) == ()
