"""Missing evidence within the budget is computed here; a violation or a refusal never is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvairlock.core.ends import End
from kvairlock.core.errors import Reason, Refusal, Stage
from kvairlock.core.events import EngineFailed
from kvairlock.core.memory.page import PageStage
from kvairlock.core.messages import Receipt, Ruling, Withdraw
from kvairlock.core.protocol.handoff import HandoffStage
from kvairlock.core.terms import Fence, LandingPolicy, TransferId
from tests.core.ends import World
from tests.core.ends_parts import Kept, Request, Setup, changed
from tests.core.ends_recovery import (
    BUDGET_TOKENS,
    LIMITS,
    NO_BUDGET,
    TOKENS,
    finish_all,
    reception_of,
    recomputed,
    recover,
    stage_of,
)
from tests.core.ends_stages import STAGES, happen, reach

COPY, SEAL, DIRECT = LandingPolicy.COPY, LandingPolicy.SEAL, LandingPolicy.DIRECT
BLOCKER = TransferId("blocker/1")

AWAITED = STAGES[STAGES.index("granted") : STAGES.index("landing")]
LOST = [(stage, event, Reason.PEER_LOST) for stage in AWAITED for event in ("link_lost", "killed")]
LATE = [(stage, "timeout", Reason.TIMEOUT) for stage in AWAITED]
UNLANDED = [("landing", "timeout", Reason.TIMEOUT)]
QUEUED = [("queued", event, Reason.PEER_LOST) for event in ("link_lost", "killed")]
MISSING = [*QUEUED, *LOST, *LATE, *UNLANDED]
GRID = pytest.mark.parametrize(
    ("stage", "event", "reason"), MISSING, ids=["-".join(cell[:2]) for cell in MISSING]
)
POLICIES = pytest.mark.parametrize("policy", LandingPolicy)


def miss(world: World, request: Request, stage: str, event: str) -> None:
    """Let the evidence of prefill be missing; who queues learns of it when it has pages."""
    happen(world, request, stage, event)
    if stage == "queued":
        world.decode.finish(world.requests[BLOCKER])


def serve(world: World, request: Request) -> None:
    """Compute a recovering request chunk by chunk, read it in one step and end it."""
    decode, name = world.decode, request.transfer
    while name in decode.computing:
        assert not world.is_running(request)
        decode.compute(name, 2)
    assert world.is_running(request)
    before = len(world.reads)
    decode.step()
    reads = [read for read in world.reads[before:] if read.reader == name]
    assert [(read.foreign, read.missing) for read in reads] == [(frozenset(), ())]
    decode.finish(request)
    ended = world.ended(request)
    assert (ended.end, ended.refusal) == (End.COMPLETED, None)
    assert (ended.computed_tokens, ended.generated_tokens) == (len(request.tokens), 1)


@POLICIES
@GRID
def test_missing_evidence_is_computed_here(
    policy: LandingPolicy, stage: str, event: str, reason: Reason
) -> None:
    world, request = reach(stage, policy, LIMITS)
    miss(world, request, stage, event)
    assert recomputed(world, request) == [(reason, TOKENS)]
    assert stage_of(world, request) is HandoffStage.RECOVERING
    serve(world, request)
    finish_all(world)
    ended = world.ended(request)
    first = ended.recovered_from
    assert first is not None, "or whoever counts failures would never hear of it"
    assert (first.reason, first.stage) == (reason, Stage.TRANSFER)
    assert (ended.end, ended.refusal) == (End.COMPLETED, None)


@POLICIES
@GRID
@pytest.mark.parametrize("tokens_per_min", [0, TOKENS - 1])
def test_missing_evidence_without_a_budget_is_refused_with_its_reason(
    policy: LandingPolicy, stage: str, event: str, reason: Reason, tokens_per_min: int
) -> None:
    limits = replace(LIMITS, recompute_tokens_per_min=tokens_per_min)
    world, request = reach(stage, policy, limits)
    miss(world, request, stage, event)
    refusal = world.refusal(request)
    assert (refusal.reason, refusal.stage) == (reason, Stage.TRANSFER)
    assert world.ended(request).recovered_from is None, "there was one way, and it is told"
    assert world.ended(request).computed_tokens == 0
    assert not world.decode.computing
    assert recomputed(world, request) == []
    finish_all(world)


def test_recovery_uses_a_new_lease_and_says_what_it_computed() -> None:
    world, request = reach("writing", COPY, LIMITS)
    former = reception_of(world, request).granted.lease
    world.kill("p")
    lease = reception_of(world, request).granted.lease
    assert (former.live, lease.live) == (False, True)
    assert lease.id > former.id
    again = dict(zip(former.pages.tolist(), former.generations.tolist(), strict=True))
    for page, generation in zip(lease.pages.tolist(), lease.generations.tolist(), strict=True):
        assert generation > again.get(page, -1), "a page that is used again has another content"
    world.compute_all()
    records = [r for r in world.decode.records if r.event == "range_computed"]
    assert [(r.fields["start"], r.fields["stop"]) for r in records] == [(0, TOKENS)]
    assert records[0].fields["pages"] == tuple(lease.pages[:2].tolist())
    assert records[0].fields["generations"] == tuple(lease.generations[:2].tolist())
    assert not [r for r in world.decode.records if r.event == "verdict"]
    finish_all(world)


@POLICIES
def test_what_is_left_of_the_first_try_drains_as_after_an_end(policy: LandingPolicy) -> None:
    world, request = reach("writing", policy, LIMITS)
    pages = set(reception_of(world, request).granted.prompt.tolist())
    world.lose("p")
    windows, pool = world.decode.machine.windows, world.decode.machine.books.pool
    assert (windows.pages_draining("alice"), windows.pages("alice")) == (2, 2)
    draining = {int(page) for page in (pool.stage == PageStage.DRAINING).nonzero()[0]}
    assert draining == (pages if policy is DIRECT else set()), "only direct writes reach the pool"
    serve(world, request)
    assert len(windows) == 1, "the writer still has it mapped"
    world.kill("p")
    assert len(windows) == 0
    fenced = [r for r in world.decode.records if r.event == "window_fenced"]
    assert [r.fields["fence"] for r in fenced] == [Fence.PROCESS_GONE]
    finish_all(world)


@POLICIES
@pytest.mark.parametrize("moment", ["before", "between", "after"])
def test_late_writes_of_the_first_try_do_not_reach_the_recovery(
    policy: LandingPolicy, moment: str
) -> None:
    """The lost node writes what it should not: another tenant's prompt."""
    world = World(Setup(policy=policy, decode_limits=LIMITS))
    other = world.make("mallory", "m", TOKENS)
    request = world.ask("alice", "a", TOKENS)
    world.deliver_all()
    prefill, decode, name = world.prefill, world.decode, request.transfer
    prefill.computes_as[name] = other
    prefill.compute(name)
    prefill.write_piece(name)
    world.lose("p")
    if moment == "before":
        prefill.write_all(name)
    decode.compute(name, 4)
    if moment == "between":
        prefill.write_all(name)
    decode.compute(name)
    if moment == "after":
        prefill.write_all(name)
    decode.step()
    assert len(world.reads) == 1
    decode.finish(request)
    assert world.ended(request).end is End.COMPLETED
    finish_all(world)


@POLICIES
@pytest.mark.parametrize("prompt", [1, 3, 4, 5, 8, 9])
def test_choices_after_recovery_share_full_pages_and_own_their_last(
    prompt: int, policy: LandingPolicy
) -> None:
    world = World(Setup(policy=policy, decode_pages=32, decode_limits=LIMITS))
    request = world.ask("alice", "a", prompt, max_tokens=6, choices=3)
    name, decode = request.transfer, world.decode
    world.lose("p")
    while name in decode.computing:
        decode.compute(name, 3)
    tables = [table.tolist() for table in decode.running[name].tables]
    shared = (prompt - 1) // 4
    assert all(table[:shared] == tables[0][:shared] for table in tables)
    own = [page for table in tables for page in table[shared:]]
    assert len(set(own)) == len(own) == 3 * (-(-(prompt + 6) // 4) - shared)
    assert set(own).isdisjoint(tables[0][:shared])
    for _ in range(6):
        decode.step()
    slots = [decode.generated_slots(name, choice) for choice in range(3)]
    assert slots == [[100] * 6, [101] * 6, [102] * 6]
    assert len(world.reads) == 18
    decode.finish(request)
    assert world.ended(request).computed_tokens == prompt
    finish_all(world)


# The verdict, and what prefill says of itself


def test_a_window_that_its_writer_keeps_is_missing_evidence() -> None:
    """Reported, and never landable: sealing fails as long as somebody has it mapped."""
    world, request = reach("landing", SEAL, LIMITS)
    file = next(iter(world.decode.windows.values()))
    file.mapped = True
    world.manual.clear()
    world.work()
    for _ in range(LIMITS.landing_ms // 10):
        assert recomputed(world, request) == []
        world.advance(10)
    assert recomputed(world, request) == [(Reason.MISSING_EVIDENCE, TOKENS)]
    serve(world, request)
    file.mapped = False
    finish_all(world)


@POLICIES
@pytest.mark.parametrize("digests", [(), (1,)])
def test_a_receipt_that_vouches_for_too_little_is_missing_evidence(
    policy: LandingPolicy, digests: tuple[int, ...]
) -> None:
    world = World(Setup(policy=policy, decode_limits=LIMITS))
    world.tamper[Receipt] = changed(digests=digests)
    rulings = Kept()
    world.tamper[Ruling] = rulings
    request = world.ask("alice", "a", TOKENS)
    world.settle()
    assert recomputed(world, request) == [(Reason.MISSING_EVIDENCE, TOKENS)]
    assert [r.admitted for r in rulings.messages] == [False], "prefill is told"
    assert world.decode.counters[f"verdict.{Reason.MISSING_EVIDENCE}"] == 1
    serve(world, request)
    finish_all(world)


def test_a_receipt_before_the_word_of_release_is_missing_evidence() -> None:
    world, request = reach("written", DIRECT, LIMITS)
    world.manual.clear()
    world.wires[(world.prefill.peer.node, world.decode.peer.node)].reverse()
    world.settle()
    assert recomputed(world, request) == [(Reason.MISSING_EVIDENCE, TOKENS)]
    serve(world, request)
    finish_all(world)


def test_a_write_that_failed_is_missing_evidence() -> None:
    world, request = reach("writing", COPY, LIMITS)
    world.prefill.write_fails(request.transfer)
    world.deliver_all()
    assert recomputed(world, request) == [(Reason.PEER_LOST, TOKENS)]
    serve(world, request)
    finish_all(world)


def test_prefill_is_told_that_nobody_waits_for_it_any_more() -> None:
    world = World(Setup(decode_limits=LIMITS))
    withdrawals = Kept()
    world.tamper[Withdraw] = withdrawals
    request = world.ask("alice", "a", TOKENS)
    world.advance(1)
    world.deliver_all()
    world.advance(LIMITS.prefill_ms - 1)
    assert recomputed(world, request) == [(Reason.TIMEOUT, TOKENS)]
    assert [(w.transfer, w.end) for w in withdrawals.messages] == [(request.transfer, End.FAILED)]
    world.deliver_all()
    assert not world.prefill.machine.jobs
    serve(world, request)
    finish_all(world)
    assert len(withdrawals.messages) == 1


REFUSED = [
    ({"outcome": End.REJECTED}, Reason.PEER_REJECTED),
    ({"outcome": End.FAILED}, Reason.PEER_REJECTED),
    ({"window": "w9"}, Reason.IDENTITY),
    ({"input_digest": b""}, Reason.COMPUTED_INPUT),
    ({"layout": ""}, Reason.MODEL_LAYOUT),
    ({"pages": (0,)}, Reason.PAGE_INDEX),
    ({"stop": 5}, Reason.RANGE),
    ({"generations": (0,)}, Reason.GENERATION),
    ({"digests": (1, 2)}, Reason.INTEGRITY),
    (
        {"refusal": Refusal(Reason.CONTEXT_LENGTH, Stage.PREFILL_ADMISSION, "too long", 6, 4)},
        Reason.CONTEXT_LENGTH,
    ),
    (
        {"refusal": Refusal(Reason.MISSING_EVIDENCE, Stage.PREFILL, "as if it were decode")},
        Reason.PEER_REJECTED,
    ),
]


@POLICIES
@pytest.mark.parametrize(("fields", "reason"), REFUSED, ids=[str(reason) for _, reason in REFUSED])
def test_violations_and_refusals_never_recover(
    policy: LandingPolicy, fields: dict[str, object], reason: Reason
) -> None:
    world = World(Setup(policy=policy, decode_limits=LIMITS))
    world.tamper[Receipt] = changed(**fields)
    request = world.ask("alice", "a", TOKENS)
    world.settle()
    assert world.refusal(request).reason is reason
    assert world.ended(request).computed_tokens == 0
    assert_nothing_spent(world)
    assert not world.reads
    finish_all(world)


def assert_nothing_spent(world: World) -> None:
    machine = world.decode.machine
    assert "recomputed" not in world.decode.counters
    assert machine.budget.spend(BUDGET_TOKENS, world.now) == BUDGET_TOKENS


def test_a_refusal_of_prefill_never_recovers() -> None:
    world = World(Setup(prefill_pages=4, decode_limits=LIMITS))
    request = world.ask("alice", "a", 17)
    world.settle()
    refusal = world.refusal(request)
    assert (refusal.reason, refusal.asked, refusal.limit) == (Reason.CONTEXT_LENGTH, 17, 16)
    assert_nothing_spent(world)
    finish_all(world)


def test_an_engine_that_failed_at_prefill_never_recovers() -> None:
    world, request = reach("computing", COPY, LIMITS)
    world.prefill.compute_fails(request.transfer)
    world.deliver_all()
    assert world.refusal(request).reason is Reason.ENGINE
    assert_nothing_spent(world)
    finish_all(world)


@pytest.mark.parametrize("stage", ["running", "stepping"])
def test_what_is_read_never_recovers(stage: str) -> None:
    world, slow = reach(stage, COPY, LIMITS)
    world.advance(LIMITS.decode_ms)
    assert world.refusal(slow).reason is Reason.TIMEOUT
    world, broken = reach(stage, COPY, LIMITS)
    world.decode.tell(EngineFailed(broken.transfer, "it raised"))
    assert world.refusal(broken).reason is Reason.ENGINE
    assert_nothing_spent(world)


def test_who_waited_in_vain_for_pages_never_recovers() -> None:
    world, request = reach("queued", COPY, LIMITS)
    world.lose("p")
    world.advance(LIMITS.queue_ms)
    assert world.refusal(request).reason is Reason.CAPACITY
    assert_nothing_spent(world)


def test_what_has_no_prefill_node_at_its_arrival_is_refused() -> None:
    world = World(Setup(decode_limits=LIMITS))
    world.lose("p")
    request = world.ask("alice", "a", TOKENS)
    refusal = world.refusal(request)
    assert (refusal.reason, refusal.stage) == (Reason.PEER_LOST, Stage.DECODE_ADMISSION)
    assert_nothing_spent(world)


# The budget


def test_a_spent_budget_refuses_and_fills_again() -> None:
    limits = replace(LIMITS, recompute_tokens_per_min=2 * TOKENS - 1)
    world = World(Setup(decode_limits=limits))
    first, second = (world.ask(tenant, tenant, TOKENS) for tenant in ("alice", "bob"))
    world.deliver_all()
    world.kill("p")
    assert recomputed(world, first) == [(Reason.PEER_LOST, TOKENS)]
    assert world.refusal(second).reason is Reason.PEER_LOST
    serve(world, first)
    for wait_ms, recovers in ((5_400, False), (100, True), (0, False)):
        world.advance(wait_ms)
        world.start_prefill("p")
        request = world.ask("carol", f"c{wait_ms}", TOKENS)
        world.kill("p")
        if recovers:
            serve(world, request)
        else:
            assert world.refusal(request).reason is Reason.PEER_LOST
    assert world.decode.counters["recomputed"] == 2
    finish_all(world)


def test_a_recovery_that_ends_early_is_not_paid_back() -> None:
    world = World(Setup(decode_limits=replace(LIMITS, recompute_tokens_per_min=TOKENS)))
    first, second = world.ask("alice", "a", TOKENS), world.ask("bob", "b", TOKENS)
    world.deliver_all()
    world.lose("p")
    world.cancel(first)
    assert world.refusal(second).reason is Reason.PEER_LOST
    assert not world.decode.computing
    finish_all(world)


# Memory


@pytest.mark.parametrize("limit", ["landing", "tenant"])
def test_recovery_needs_no_landing_memory(limit: str) -> None:
    """All of it is the window of the node that was lost: others wait, the recovery does not."""
    limits = replace(LIMITS, landing_pages=2) if limit == "landing" else LIMITS
    tenant_pages = 2 if limit == "tenant" else 8
    world = World(Setup(decode_limits=limits, tenant_pages=tenant_pages, prefills=("p", "q")))
    world.manual |= {"digest"}
    request = world.ask("alice", "a", TOKENS)
    world.deliver_all()
    waiting = world.ask("alice", "b", TOKENS, prefill="q")
    assert world.decode.machine.queue.heads() == [waiting.transfer]
    world.lose("p")
    windows = world.decode.machine.windows
    assert (windows.pages("alice"), windows.pages_draining("alice")) == (2, 2)
    serve(world, request)
    assert stage_of(world, waiting) is HandoffStage.OFFERED
    world.kill("p")
    assert stage_of(world, waiting) is HandoffStage.GRANTED
    world.manual.clear()
    world.complete(waiting)
    finish_all(world)


def test_recovery_goes_before_those_that_wait_for_pages() -> None:
    world, request = recover("waiting", COPY)
    world.start_prefill("q")
    later = world.ask("bob", "b", TOKENS, prefill="q")
    assert world.decode.machine.queue.heads() == [request.transfer, later.transfer]
    world.run("scrub")
    assert list(world.decode.computing) == [request.transfer]
    serve(world, request)
    world.manual.clear()
    world.work()
    world.complete(later)
    finish_all(world)


def test_without_a_budget_nothing_differs() -> None:
    assert NO_BUDGET.recompute_tokens_per_min == 0
    world, request = reach("writing", COPY, NO_BUDGET)
    world.lose("p")
    assert world.refusal(request).reason is Reason.PEER_LOST
    finish_all(world)
