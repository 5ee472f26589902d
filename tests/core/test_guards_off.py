"""A guard whose removal changes nothing is not a guard: each is switched off, and the bytes show.

A case is one story, told three times: with all guards on; with those guards off that would act
before it, which proves the guard alone; and with the guard off too, which shows what it keeps out.
The stories are faults: a peer that lies or mixes up, an engine that leaves stale pages, memory that
a writer reaches directly. `shadows` are the guards that the second and third telling do without.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from kvairlock.core.ends import End
from kvairlock.core.errors import Reason, Refusal, Stage
from kvairlock.core.guards import GUARDS, Guard
from kvairlock.core.messages import Ended, Receipt
from kvairlock.core.terms import LandingPolicy, Role, WindowId
from tests.core.ends import World
from tests.core.ends_parts import (
    DECODE_LIMITS,
    OTHER_LAYOUT,
    PAGE_TOKENS,
    GrantParcel,
    Request,
    Setup,
    changed,
    prompt_pages,
)

P, D = Role.PREFILL, Role.DECODE
DIRECT = LandingPolicy.DIRECT
Off = frozenset[tuple[Role, Guard]]
ORDINARY = Setup()


@dataclass(frozen=True, slots=True)
class Saw:
    """What a story brought to light.

    Args:
        foreign: Bytes of another request were where they must not be.
        corrupt: A reader did not find what its prompt is.
        refusal: Why the request of the story was refused, if it was.
        denied: A bystander was not served.
    """

    foreign: bool = False
    corrupt: bool = False
    refusal: Refusal | None = None
    denied: bool = False


@dataclass(frozen=True, slots=True)
class Case:
    """One guard in one role.

    Args:
        story: What happens; it returns what came to light.
        harm: What shows when the guard is off: `foreign`, `corrupt` or `denied`.
        reason: The typed refusal by which this guard stops it, or None if it acts without one.
        stage: Where that refusal is decided.
        told: That refusal as the gateway is told it, where decode does not take prefill's word.
        all_on: The refusal with all guards on, where an earlier guard answers instead.
        shadows: The guards that act before or behind it, off in the second and third telling.
        carriers: Guards that are off in the third telling only: they carry this guard's refusal.
    """

    role: Role
    guard: Guard
    story: Callable[[World], Saw]
    harm: str
    reason: Reason | None = None
    stage: Stage | None = None
    told: tuple[Reason, Stage] | None = None
    all_on: tuple[Reason, Stage] | None = None
    shadows: Off = frozenset()
    carriers: Off = frozenset()
    setup: Setup = ORDINARY

    @property
    def refused_as(self) -> tuple[Reason | None, Stage | None]:
        """The refusal by which this guard stops it, as the gateway is told it."""
        return self.told or (self.reason, self.stage)

    def world(self, off: Off) -> World:
        decode = frozenset(guard for role, guard in off if role is D)
        prefill = frozenset(guard for role, guard in off if role is P)
        return World(replace(self.setup, off_decode=decode, off_prefill=prefill))


def off(*guards: Guard, role: Role = D) -> Off:
    return frozenset((role, guard) for guard in guards)


def saw(world: World, request: Request) -> Saw:
    """Let a request that may be read be read, and collect what shows."""
    world.settle()
    if world.is_running(request):
        world.decode.step()
    ends = [a for a in world.answers if isinstance(a, Ended) and a.transfer == request.transfer]
    mine = [read for read in world.reads if read.reader == request.transfer]
    return Saw(
        foreign=any(read.foreign for read in mine),
        corrupt=any(read.missing for read in mine),
        refusal=ends[0].refusal if ends else None,
    )


def former(world: World, pages: int = 2) -> Request:
    """Serve another tenant to its end, so that its bytes lie where reuse finds them."""
    request = world.ask("former", "former", pages * PAGE_TOKENS, max_tokens=1)
    world.complete(request)
    return request


# The request: ticket, claimant, capacity, share


def a_thief_presents_a_stolen_ticket(world: World) -> Saw:
    victim = world.ask("alice", "a", 8, max_tokens=4)
    world.settle()
    thief = world.make("mallory", "stolen", 8, max_tokens=4)
    world.submit(thief, ticket=victim.ticket, nonce="thief")
    return saw(world, thief)


def a_router_repeats_a_ticket_with_all_that_came_with_it(world: World) -> Saw:
    victim = world.ask("alice", "a", 8, max_tokens=4)
    world.settle()
    thief = world.make("mallory", "stolen", 8, max_tokens=4)
    world.submit(thief, ticket=victim.ticket, tenant="alice", digest=victim.digest, nonce="another")
    return saw(world, thief)


def prefill_is_given_another_input_than_the_ticket_names(world: World) -> Saw:
    other = world.make("bob", "b", 8)

    def exchange(parcel: GrantParcel) -> list[GrantParcel]:
        presented = replace(parcel.granted.presented, input_digest=other.digest)
        return [replace(parcel, granted=replace(parcel.granted, presented=presented))]

    world.tamper[GrantParcel] = exchange
    return saw(world, world.ask("alice", "a", 8))


def the_incident(world: World) -> Saw:
    """More context is promised than the prefill pool holds."""
    former(world, pages=4)
    long = world.ask("alice", "long", 6 * PAGE_TOKENS, max_tokens=1)
    found = saw(world, long)
    assert not world.prefill.computing
    return found


def a_request_that_never_fits_comes_first(world: World) -> Saw:
    never = world.ask("greedy", "never", 8, max_tokens=200)
    patient = world.ask("alice", "a", 6)
    world.settle()
    served = world.is_running(patient)
    world.advance(DECODE_LIMITS.queue_ms)
    return replace(saw(world, never), denied=not served)


def a_tenant_cancels_again_and_again_and_its_writes_do_not_end(world: World) -> Saw:
    hogs = []
    for number in range(4):
        hog = world.ask("hog", f"h{number}", 8)
        hogs.append(hog)
        world.deliver_all()
        if hog.transfer in world.prefill.computing:
            world.prefill.compute(hog.transfer)
            world.prefill.write_piece(hog.transfer)
            world.cancel(hog)
    bystander = world.ask("alice", "a", 8)
    world.deliver_all()
    served = bystander.transfer in world.prefill.computing
    world.advance(DECODE_LIMITS.queue_ms)
    return Saw(refusal=world.ended(hogs[-1]).refusal, denied=not served)


# Prefill's own pages: scope, tail, drain, scrub


def another_scope_asks_with_the_same_beginning(world: World) -> Saw:
    beginning = tuple(range(8))
    world.complete(world.ask("alice", "a", (*beginning, 90), scope="alice"))
    return saw(world, world.ask("bob", "b", (*beginning, 91), scope="bob"))


def tail_tags(world: World, request: Request) -> set[int]:
    """Tags behind the prompt in the last prompt page, before anything is generated."""
    page = int(world.decode.running[request.transfer].tables[0][prompt_pages(request) - 1])
    used = len(request.tokens) % PAGE_TOKENS
    return {int(world.decode.slot(page, i)[0]) for i in range(used, PAGE_TOKENS)} - {0}


def a_short_prompt_comes_after_a_long_one(world: World) -> Saw:
    """The pages of the former owner are reused, and only the first slots are filled again."""
    former(world, pages=2)
    short = world.ask("alice", "short", 5)
    world.settle()
    tags = tail_tags(world, short)
    return Saw(foreign=bool(tags - {short.tag}))


def the_source_of_a_write_that_still_runs_goes_to_another_tenant(world: World) -> Saw:
    """The link breaks for prefill only; its write into the victim's window goes on."""
    victim = world.ask("alice", "a", 8)
    world.deliver_all()
    world.prefill.compute(victim.transfer)
    window = world.prefill.writing[0].file
    world.prefill.write_piece(victim.transfer)
    world.lose("p")
    world.join("p")
    next_owner = world.ask("bob", "b", 8)
    world.deliver_all()
    if next_owner.transfer in world.prefill.computing:
        world.prefill.compute(next_owner.transfer)
    world.prefill.write_piece(victim.transfer)
    tags = {int(tag) for tag in window.array[:, 0]} - {0}
    return Saw(foreign=bool(tags - {victim.tag}), refusal=world.refusal(victim))


# The receipt: outcome, identity, input, layout, page index, range, generation, integrity


def prefill_fails_and_reports_all_the_same(world: World) -> Saw:
    former(world)
    request = world.make("alice", "a", 8)
    world.prefill.computes_nothing.add(request.transfer)
    world.tamper[Receipt] = changed(outcome=End.REJECTED)
    return saw(world, world.submit(request))


def mixed_up(world: World, **stated: Callable[[Request], Any]) -> Saw:
    """Prefill computes another request's prompt into these pages, and states what it did."""
    other, request = world.make("bob", "b", 8), world.make("alice", "a", 8)
    world.prefill.computes_as[request.transfer] = other
    fields = {name: value(other) for name, value in stated.items()}
    world.tamper[Receipt] = changed(**fields)
    return saw(world, world.submit(request))


def prefill_serves_another_request_in_this_window(world: World) -> Saw:
    return mixed_up(world, owner=lambda other: other.ticket.owner)


def prefill_computes_another_prompt(world: World) -> Saw:
    return mixed_up(world, input_digest=lambda other: other.digest)


def prefill_has_another_layout(world: World) -> Saw:
    def relabel(parcel: GrantParcel) -> list[GrantParcel]:
        return [replace(parcel, granted=replace(parcel.granted, layout=OTHER_LAYOUT))]

    world.tamper[GrantParcel] = relabel
    return saw(world, world.ask("alice", "a", 8))


def prefill_writes_the_pages_in_another_order(world: World) -> Saw:
    request = world.make("alice", "a", 8)
    world.prefill.writes_pages[request.transfer] = (1, 0)
    world.tamper[Receipt] = lambda r: [replace(r, pages=(1, 0), digests=r.digests[::-1])]
    return saw(world, world.submit(request))


def prefill_computes_only_the_beginning(world: World) -> Saw:
    former(world)
    request = world.make("alice", "a", 8)
    world.prefill.writes_pages[request.transfer] = (0,)
    world.tamper[Receipt] = lambda r: [replace(r, stop=4, pages=r.pages[:1], digests=r.digests[:1])]
    return saw(world, world.submit(request))


def the_receipt_of_an_ended_window_comes_again(world: World) -> Saw:
    """The same pages are granted to the next tenant when the former receipt is told again."""
    old: list[Receipt] = []

    def keep(receipt: Receipt) -> list[Receipt]:
        old.append(receipt)
        return [receipt]

    world.tamper[Receipt] = keep
    former(world)
    request = world.ask("alice", "a", 8)
    stale = replace(old[0], transfer=request.transfer)
    world.repeat(stale, world.prefill.peer, world.decode.peer.node)
    if world.is_running(request):
        world.decode.step()
    return saw(world, request)


def bytes_change_between_write_and_landing(world: World) -> Saw:
    request, other = world.make("alice", "a", 8), world.make("bob", "b", 8)
    world.manual.add("land")
    world.submit(request)
    world.settle()
    if world.decode.tasks:
        file = world.files[WindowId("w1")]
        file.array[file.rows[1], :1] = other.tag
    world.run("land")
    return saw(world, request)


# Reading and giving back: mapping, drain, scrub


def the_engine_steps_with_a_table_of_an_ended_request(world: World) -> Saw:
    stale = world.ask("mallory", "m", 8)
    world.settle()
    world.decode.deaf = True
    world.cancel(stale)
    world.settle()
    owner = world.ask("alice", "a", 8)
    world.settle()
    assert world.is_running(owner)
    world.decode.step()
    found = [read for read in world.reads if read.reader == stale.transfer]
    return Saw(foreign=any(read.foreign for read in found))


def a_write_goes_on_after_the_client_has_left(world: World) -> Saw:
    """Another tenant, served by another prefill node, gets the pages in the meantime."""
    left = world.ask("mallory", "m", 8, prefill="p")
    world.deliver_all()
    world.prefill.compute(left.transfer)
    world.prefill.write_piece(left.transfer)
    world.cancel(left)
    owner = world.ask("alice", "a", 8, prefill="q")
    for _ in range(3):
        world.deliver_all()
        other = world.prefills["q"]
        if owner.transfer in other.computing:
            other.compute(owner.transfer)
        other.write_all(owner.transfer)
    world.prefill.write_all(left.transfer)
    return saw(world, owner)


VERDICT = (Guard.OUTCOME, Guard.INPUT, Guard.RANGE, Guard.PAGE_INDEX, Guard.INTEGRITY)
SMALL_PREFILL = Setup(policy=DIRECT, prefill_pages=4)
TWO_PAGES = Setup(policy=DIRECT, decode_pages=3, prefills=("p", "q"))

CASES = [
    Case(
        D,
        Guard.TICKET,
        a_thief_presents_a_stolen_ticket,
        "foreign",
        Reason.TENANT,
        Stage.DECODE_ADMISSION,
        shadows=off(Guard.CLAIMANT, Guard.MAPPING),
    ),
    Case(
        P,
        Guard.TICKET,
        prefill_is_given_another_input_than_the_ticket_names,
        "foreign",
        Reason.INPUT,
        Stage.PREFILL_ADMISSION,
        told=(Reason.PEER_REJECTED, Stage.VERDICT),
        shadows=off(Guard.INPUT),
    ),
    Case(
        D,
        Guard.CLAIMANT,
        a_router_repeats_a_ticket_with_all_that_came_with_it,
        "foreign",
        Reason.REPLAYED,
        Stage.DECODE_ADMISSION,
        shadows=off(Guard.MAPPING),
    ),
    Case(
        P,
        Guard.CAPACITY,
        the_incident,
        "foreign",
        Reason.CONTEXT_LENGTH,
        Stage.PREFILL_ADMISSION,
        shadows=off(Guard.INPUT, Guard.RANGE, Guard.PAGE_INDEX, Guard.INTEGRITY, Guard.SCRUB),
        carriers=off(Guard.OUTCOME),
        setup=SMALL_PREFILL,
    ),
    Case(
        D,
        Guard.CAPACITY,
        a_request_that_never_fits_comes_first,
        "denied",
        Reason.CONTEXT_LENGTH,
        Stage.DECODE_ADMISSION,
        setup=Setup(context_tokens=1_000),
    ),
    Case(
        D,
        Guard.SHARE,
        a_tenant_cancels_again_and_again_and_its_writes_do_not_end,
        "denied",
        Reason.TENANT_SHARE,
        Stage.DECODE_ADMISSION,
        setup=Setup(tenant_pages=4, decode_limits=replace(DECODE_LIMITS, landing_pages=8)),
    ),
    Case(P, Guard.SCOPE, another_scope_asks_with_the_same_beginning, "foreign"),
    Case(
        P,
        Guard.TAIL,
        a_short_prompt_comes_after_a_long_one,
        "foreign",
        shadows=off(Guard.SCRUB, role=P) | off(Guard.TAIL),
    ),
    Case(
        D,
        Guard.TAIL,
        a_short_prompt_comes_after_a_long_one,
        "foreign",
        shadows=off(Guard.SCRUB, Guard.TAIL, role=P),
    ),
    Case(
        D,
        Guard.OUTCOME,
        prefill_fails_and_reports_all_the_same,
        "foreign",
        Reason.PEER_REJECTED,
        Stage.VERDICT,
        shadows=off(Guard.SCRUB, role=P),
    ),
    Case(
        D,
        Guard.IDENTITY,
        prefill_serves_another_request_in_this_window,
        "foreign",
        Reason.IDENTITY,
        Stage.VERDICT,
    ),
    Case(
        D,
        Guard.INPUT,
        prefill_computes_another_prompt,
        "foreign",
        Reason.COMPUTED_INPUT,
        Stage.VERDICT,
    ),
    Case(
        D,
        Guard.LAYOUT,
        prefill_has_another_layout,
        "corrupt",
        Reason.MODEL_LAYOUT,
        Stage.VERDICT,
        setup=Setup(prefill_layout=OTHER_LAYOUT),
    ),
    Case(
        D,
        Guard.PAGE_INDEX,
        prefill_writes_the_pages_in_another_order,
        "corrupt",
        Reason.PAGE_INDEX,
        Stage.VERDICT,
    ),
    Case(
        D,
        Guard.RANGE,
        prefill_computes_only_the_beginning,
        "foreign",
        Reason.RANGE,
        Stage.VERDICT,
        shadows=off(Guard.PAGE_INDEX, Guard.INTEGRITY, Guard.SCRUB),
        setup=Setup(policy=DIRECT),
    ),
    Case(
        D,
        Guard.GENERATION,
        the_receipt_of_an_ended_window_comes_again,
        "foreign",
        Reason.GENERATION,
        Stage.VERDICT,
        all_on=(Reason.IDENTITY, Stage.VERDICT),
        shadows=off(Guard.IDENTITY, Guard.INPUT, Guard.INTEGRITY, Guard.DRAIN, Guard.SCRUB),
        setup=Setup(policy=DIRECT, decode_pages=3),
    ),
    Case(
        D,
        Guard.INTEGRITY,
        bytes_change_between_write_and_landing,
        "foreign",
        Reason.INTEGRITY,
        Stage.VERDICT,
    ),
    Case(D, Guard.MAPPING, the_engine_steps_with_a_table_of_an_ended_request, "foreign"),
    Case(
        P,
        Guard.DRAIN,
        the_source_of_a_write_that_still_runs_goes_to_another_tenant,
        "foreign",
        Reason.PEER_LOST,
        Stage.TRANSFER,
        setup=Setup(prefill_pages=2),
    ),
    Case(
        D,
        Guard.DRAIN,
        a_write_goes_on_after_the_client_has_left,
        "foreign",
        setup=TWO_PAGES,
    ),
    Case(
        P,
        Guard.SCRUB,
        a_short_prompt_comes_after_a_long_one,
        "foreign",
        shadows=off(Guard.TAIL) | off(Guard.TAIL, role=P),
    ),
    Case(
        D,
        Guard.SCRUB,
        the_incident,
        "foreign",
        all_on=(Reason.CONTEXT_LENGTH, Stage.PREFILL_ADMISSION),
        shadows=off(*VERDICT) | off(Guard.CAPACITY, role=P),
        setup=SMALL_PREFILL,
    ),
]
IDS = [f"{case.guard}-{case.role}" for case in CASES]
NOT_HERE = {Guard.FRAME}
"""Frames never reach the core: tests/wire/test_frames.py switches that guard off."""


def harms(found: Saw, case: Case) -> bool:
    value: bool = getattr(found, case.harm)
    return value


def test_every_guard_of_a_node_has_a_case_in_each_of_its_roles() -> None:
    rows = {guard: row for guard, row in GUARDS.items() if guard not in NOT_HERE}
    wanted = {(role, guard) for guard, row in rows.items() for role in row.roles} - {
        (Role.GATEWAY, guard) for guard in rows
    }
    assert {(case.role, case.guard) for case in CASES} == wanted


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_with_all_guards_on_it_is_refused_and_everything_comes_back(case: Case) -> None:
    world = case.world(frozenset())
    found = case.story(world)
    assert not found.foreign
    assert not found.corrupt
    assert not found.denied
    expected = case.all_on or case.refused_as
    if expected[0] is not None:
        assert found.refusal is not None
        assert (found.refusal.reason, found.refusal.stage) == expected
    world.heal()
    assert not world.leaks
    world.assert_baseline()


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_alone_without_those_that_shadow_it_it_still_holds(case: Case) -> None:
    world = case.world(case.shadows)
    found = case.story(world)
    assert not harms(found, case)
    if case.reason is not None:
        assert found.refusal is not None
        assert (found.refusal.reason, found.refusal.stage) == case.refused_as
    world.heal()
    assert not world.leaks
    world.assert_baseline(scrubbed=not {(D, Guard.SCRUB), (P, Guard.SCRUB)} & case.shadows)


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_switched_off_it_shows(case: Case) -> None:
    world = case.world(case.shadows | case.carriers | off(case.guard, role=case.role))
    found = case.story(world)
    assert harms(found, case), found
