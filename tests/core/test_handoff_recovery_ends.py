"""Every phase of a recovery meets every end and every late word of the first try.

What is computed when the end comes is computed to the chunk's end: its pages wait for that.
"""

from __future__ import annotations

import pytest

from kvairlock.core.ends import End
from kvairlock.core.errors import Reason, Stage
from kvairlock.core.events import (
    ComputeBegan,
    Computed,
    EngineFailed,
    Event,
    Landed,
    PeerGone,
    PeerLost,
    WindowFailed,
)
from kvairlock.core.memory.page import PageStage
from kvairlock.core.memory.pool import Hold
from kvairlock.core.messages import Receipt, Released, Ruling, Withdraw
from kvairlock.core.protocol.decode.reception import Reception
from kvairlock.core.protocol.handoff import HandoffStage
from kvairlock.core.terms import LandingPolicy
from tests.core.ends import World
from tests.core.ends_parts import GATEWAY, Request, Setup, dropped
from tests.core.ends_recovery import (
    CHUNKS,
    LIMITS,
    PHASES,
    TOKENS,
    begin_to_compute,
    finish_all,
    reception_of,
    recomputed,
    recover,
    stage_of,
)
from tests.core.ends_stages import DECODE, reach

COPY, SEAL, DIRECT = LandingPolicy.COPY, LandingPolicy.SEAL, LandingPolicy.DIRECT
POLICIES = pytest.mark.parametrize("policy", LandingPolicy)

PHASES_GRID = """
             cancel     gateway_lost  timeout  engine
waiting      cancelled  cancelled     full     -
granted      cancelled  cancelled     late     -
first_chunk  cancelled  cancelled     late     broken
between      cancelled  cancelled     late     -
last_chunk   cancelled  cancelled     late     broken
"""
OUTCOMES = {
    "cancelled": (End.CANCELLED, Reason.CANCELLED, Stage.GATEWAY),
    "full": (End.REJECTED, Reason.CAPACITY, Stage.DECODE),
    "late": (End.TIMED_OUT, Reason.TIMEOUT, Stage.DECODE),
    "broken": (End.FAILED, Reason.ENGINE, Stage.DECODE),
}
HEAD, *ROWS = [line.split() for line in PHASES_GRID.strip().splitlines()]
assert tuple(row[0] for row in ROWS) == PHASES
CELLS = [
    (row[0], event, end)
    for row in ROWS
    for event, end in zip(HEAD, row[1:], strict=True)
    if end != "-"
]


def happen(world: World, request: Request, phase: str, event: str) -> None:
    match event:
        case "cancel":
            world.cancel(request)
        case "gateway_lost":
            world.decode.tell(PeerLost(GATEWAY))
        case "timeout":
            world.advance((LIMITS.queue_ms if phase == "waiting" else LIMITS.prefill_ms) - 1)
            assert stage_of(world, request) is HandoffStage.RECOVERING
            world.advance(1)
        case "engine":
            world.decode.compute_fails(request.transfer)


def pages_in_use(world: World) -> set[int]:
    """Pages that are neither free nor on their way there from a fence."""
    stage = world.decode.machine.books.pool.stage
    gone = (PageStage.FREE, PageStage.FENCED, PageStage.SCRUBBED)
    return {page for page in range(len(stage)) if stage[page] not in gone}


@POLICIES
@pytest.mark.parametrize(("phase", "event", "end"), CELLS, ids=["-".join(c[:2]) for c in CELLS])
def test_every_phase_of_a_recovery_meets_every_end(
    policy: LandingPolicy, phase: str, event: str, end: str
) -> None:
    world, request = recover(phase, policy)
    decode, name = world.decode, request.transfer
    reserved = reception_of(world, request).reserved
    pages = set(reserved.lease.pages.tolist()) if reserved else set()
    happen(world, request, phase, event)
    ended = world.ended(request)
    assert ended.refusal is not None
    assert (ended.end, ended.refusal.reason, ended.refusal.stage) == OUTCOMES[end]
    assert (ended.computed_tokens, ended.generated_tokens) == (0, 0)
    if phase in CHUNKS and event != "engine":
        assert pages_in_use(world) >= pages, "a chunk is computed into them"
        world.advance(60_000)
        assert pages_in_use(world) >= pages, "time frees nothing"
        decode.compute_end(name, 1)
    assert pages_in_use(world).isdisjoint(pages)
    assert not decode.computing, "no further chunk"
    assert not decode.machine.holding
    assert not world.reads
    finish_all(world)


@POLICIES
def test_the_next_owner_gets_the_pages_when_the_chunk_has_ended(policy: LandingPolicy) -> None:
    world, request = recover("first_chunk", policy)
    world.start_prefill("q")
    world.cancel(request)
    owner = world.ask("bob", "b", TOKENS, prefill="q")
    world.run("scrub")
    assert stage_of(world, owner) is HandoffStage.OFFERED
    world.decode.compute_end(request.transfer)
    world.run("scrub")
    assert stage_of(world, owner) is HandoffStage.GRANTED
    world.manual.clear()
    world.complete(owner)
    assert len(world.reads) == 1
    finish_all(world)


@pytest.mark.parametrize("phase", CHUNKS)
def test_one_chunk_has_one_hold(phase: str) -> None:
    world, request = recover(phase, COPY)
    lease = reception_of(world, request).granted.lease
    assert lease.holds == {Hold.FILL: 1}
    world.decode.compute_end(request.transfer)
    assert lease.holds == {}
    assert stage_of(world, request) is HandoffStage.CONFIRMED
    finish_all(world)


def test_a_chunk_that_is_asked_for_after_the_end_is_refused_and_holds_nothing() -> None:
    world, request = recover("between", COPY)
    pages = pages_in_use(world)
    world.cancel(request)
    world.decode.tell(ComputeBegan(request.transfer))
    assert pages_in_use(world).isdisjoint(pages)
    world.decode.tell(Computed(request.transfer, 4))
    assert world.decode.counters["ended.cancelled"] == 1
    finish_all(world)


@POLICIES
@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("event", ["lost", "gone"])
def test_the_loss_of_the_former_prefill_node_is_no_end_of_a_recovery(
    policy: LandingPolicy, phase: str, event: str
) -> None:
    """It was late first; that it is lost as well, or again, has nothing to do with it."""
    world, request = recover(phase, policy, "late")
    peer = world.prefill.peer
    world.decode.tell(PeerLost(peer) if event == "lost" else PeerGone(peer))
    assert stage_of(world, request) is HandoffStage.RECOVERING
    world.deliver_all()
    end_well(world, request, phase)


def end_well(world: World, request: Request, phase: str) -> None:
    """Go on from a phase to the end of the answer."""
    decode, name = world.decode, request.transfer
    if phase == "waiting":
        begin_to_compute(world, request, "granted")
    if decode.computing[name].begun:
        decode.compute_end(name, 4)
    while name in decode.computing:
        decode.compute(name, 1)
    decode.step()
    decode.finish(request)
    ended = world.ended(request)
    assert (ended.end, ended.computed_tokens) == (End.COMPLETED, TOKENS)
    assert [(read.foreign, read.missing) for read in world.reads] == [(frozenset(), ())]
    finish_all(world)


# Late words of the first try

Snapshot = tuple[object, ...]


def snapshot(reception: Reception) -> Snapshot:
    """All that a late word must not change."""
    lease = reception.reserved.lease if reception.reserved else None
    return (
        reception.stage,
        reception.deadline,
        lease.id if lease else None,
        dict(lease.holds) if lease else {},
        reception.receipt,
        reception.reland_at,
        reception.checks,
        reception.computed_tokens,
    )


@POLICIES
@pytest.mark.parametrize("phase", PHASES)
def test_the_last_words_of_the_first_try_change_nothing(policy: LandingPolicy, phase: str) -> None:
    """A receipt that would have admitted it, and the word of release, twice each."""
    world, request = recover(phase, policy, "late")
    sender = world.prefill.peer
    name, window = request.transfer, reception_of(world, request).asked.window
    receipts = world.in_flight(Receipt)
    assert [(r.transfer, r.outcome) for r in receipts] == [(name, End.COMPLETED)]
    released = Released(name, window, 2)
    before = snapshot(reception_of(world, request))
    computing = list(world.decode.computing)
    for _ in range(2):
        for word in (receipts[0], released):
            world.repeat(word, sender, DECODE)
            assert snapshot(reception_of(world, request)) == before
            assert list(world.decode.computing) == computing
    world.deliver_all()
    assert snapshot(reception_of(world, request)) == before
    assert world.decode.counters.get("verdict.admitted", 0) == 0
    end_well(world, request, phase)


@pytest.mark.parametrize("policy", [COPY, SEAL])
@pytest.mark.parametrize("phase", ["waiting", "granted", "first_chunk", "running"])
@pytest.mark.parametrize("landed", [True, False], ids=["landed", "busy"])
def test_a_landing_that_ends_late_changes_nothing(
    policy: LandingPolicy, phase: str, landed: bool
) -> None:
    """Its thread had the former pages; they are free only when it has ended."""
    world, request = reach("landing", policy, LIMITS)
    decode, name = world.decode, request.transfer
    former = set(reception_of(world, request).granted.lease.pages.tolist())
    world.advance(LIMITS.landing_ms - 1_000)
    if phase == "waiting":
        world.ask("bob", "b", 32, max_tokens=20)
        assert world.pages_free() == 1
    world.advance(1_000)
    assert recomputed(world, request) == [(Reason.TIMEOUT, TOKENS)]
    assert pages_in_use(world) >= former
    assert (name in decode.computing) is (phase != "waiting")
    if phase in {"first_chunk", "running"}:
        decode.compute_begin(name)
    if phase == "running":
        decode.compute_end(name)
    before = snapshot(reception_of(world, request))
    world.manual.add("scrub")
    if landed:
        world.run("land")
    else:
        decode.tasks.clear()
        decode.tell(Landed(name, None))
    assert snapshot(reception_of(world, request)) == before
    assert pages_in_use(world).isdisjoint(former)
    world.manual.clear()
    world.work()
    world.complete(request)
    assert [(r.foreign, r.missing) for r in world.reads if r.reader == name] == [(frozenset(), ())]
    finish_all(world)


def test_what_is_told_twice_of_the_engine_changes_nothing() -> None:
    """A chunk's end, and a failure, after the request has gone on or ended."""
    world, request = recover("last_chunk", COPY)
    decode, name = world.decode, request.transfer
    decode.compute_end(name)
    before = snapshot(reception_of(world, request))
    decode.tell(Computed(name, 4))
    assert snapshot(reception_of(world, request)) == before
    decode.finish(request)
    for event in (Computed(name, TOKENS), ComputeBegan(name), EngineFailed(name, "late")):
        decode.tell(event)
    assert world.ended(request).end is End.COMPLETED
    finish_all(world)


def test_a_late_ruling_of_the_first_try_changes_nothing_at_prefill() -> None:
    world, request = recover("granted", COPY, "late")
    world.deliver_all()
    assert not world.prefill.machine.jobs
    counters = world.prefill.counters
    for word in (Ruling(request.transfer, False, None), Withdraw(request.transfer, End.FAILED)):
        world.repeat(word, world.decode.peer, world.prefill.peer.node)
    later = world.prefill.counters
    assert {n: c for n, c in later.items() if n != "ignored"} == {
        n: c for n, c in counters.items() if n != "ignored"
    }
    end_well(world, request, "granted")


@POLICIES
def test_a_window_that_fails_late_is_no_end_of_a_recovery(policy: LandingPolicy) -> None:
    """Its prefill was lost before the host could say that there was no room for the window."""
    world = World(Setup(policy=policy, decode_limits=LIMITS))
    world.decode.fails_windows = True
    world.manual.add("window failed")
    world.tamper[Withdraw] = dropped
    request = world.ask("alice", "a", TOKENS)
    world.lose("p")
    assert stage_of(world, request) is HandoffStage.RECOVERING
    world.run("window failed")
    assert len(world.decode.machine.windows) == 0, "nobody was ever granted it"
    assert stage_of(world, request) is HandoffStage.RECOVERING
    world.compute_all()
    assert world.is_running(request)


def test_events_of_a_recovery_have_no_other_meaning_for_a_request_that_waits_for_prefill() -> None:
    world, request = reach("computing", COPY, LIMITS)
    events: tuple[Event, ...] = (
        ComputeBegan(request.transfer),
        WindowFailed(world.make("x", "x").transfer, "of nobody"),
    )
    before = snapshot(reception_of(world, request))
    for event in events:
        world.decode.tell(event)
    assert snapshot(reception_of(world, request)) == before
    world.manual.clear()
    world.complete(request)
    finish_all(world)
