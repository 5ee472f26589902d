"""Refusals cross as refusals, with their figures; each lie of a receipt has its own reason."""

from __future__ import annotations

import pytest

from kvairlock.core.ends import End, end_for
from kvairlock.core.errors import Fault, Reason, Refusal, Stage
from kvairlock.core.events import EngineFailed
from kvairlock.core.memory.page import PageStage
from kvairlock.core.messages import Receipt, Ruling
from kvairlock.core.terms import (
    LandingPolicy,
)
from tests.core.ends import World
from tests.core.ends_parts import (
    OTHER_LAYOUT,
    Kept,
    Setup,
    changed,
)
from tests.core.ends_stages import reach

COPY, SEAL, DIRECT = LandingPolicy.COPY, LandingPolicy.SEAL, LandingPolicy.DIRECT


def test_a_refusal_of_prefill_crosses_with_its_figures_and_is_answered() -> None:
    world = World(Setup(prefill_pages=4))
    rulings, receipts = Kept(), Kept()
    world.tamper[Ruling], world.tamper[Receipt] = rulings, receipts
    request = world.ask("alice", "a", 17)
    world.settle()
    assert receipts.messages[0].outcome is End.REJECTED
    assert (receipts.messages[0].start, receipts.messages[0].stop) == (0, 0)
    assert receipts.messages[0].digests == ()
    refusal = world.refusal(request)
    assert (refusal.reason, refusal.stage) == (Reason.CONTEXT_LENGTH, Stage.PREFILL_ADMISSION)
    assert (refusal.asked, refusal.limit, refusal.limit_name) == (17, 16, "prefill_pool_tokens")
    assert [(r.admitted, r.refusal) for r in rulings.messages] == [(False, refusal)]
    assert not world.reads
    assert not world.files["w1"].array.any()  # type: ignore[index]
    world.assert_baseline()


@pytest.mark.parametrize(("prompt", "refused"), [(15, False), (16, False), (17, True), (32, True)])
def test_the_prefill_pool_at_its_limit_by_what_was_computed(prompt: int, refused: bool) -> None:
    world = World(Setup(prefill_pages=4))
    request = world.ask("alice", "a", prompt)
    world.settle()
    computed = [r for r in world.prefill.records if r.event == "range_computed"]
    assert [r.fields["stop"] for r in computed] == ([] if refused else [prompt])
    if refused:
        assert world.refusal(request).asked == prompt
        assert world.ended(request).computed_tokens == 0
    else:
        world.complete(request)
        assert world.ended(request).computed_tokens == prompt
    assert not world.corruptions
    world.assert_baseline()


@pytest.mark.parametrize(
    ("prompt", "max_tokens", "refused"),
    [(8, 7, False), (8, 8, False), (8, 9, True), (16, 16, True), (1, 15, False), (1, 16, True)],
)
def test_the_decode_pool_at_its_limit(prompt: int, max_tokens: int, refused: bool) -> None:
    world = World(Setup(decode_pages=4))
    request = world.ask("alice", "a", prompt, max_tokens=max_tokens)
    world.settle()
    if refused:
        refusal = world.refusal(request)
        assert (refusal.reason, refusal.stage) == (Reason.CONTEXT_LENGTH, Stage.DECODE_ADMISSION)
        assert (refusal.asked, refusal.limit) == (prompt + max_tokens, 16)
        assert refusal.limit_name == "decode_pool_tokens"
        assert not world.files
    else:
        world.complete(request)
    world.assert_baseline()


@pytest.mark.parametrize(("prompt", "refused"), [(31, False), (32, False), (33, True), (64, True)])
def test_the_landing_memory_of_a_tenant_at_its_limit(prompt: int, refused: bool) -> None:
    world = World(Setup(decode_pages=20, tenant_pages=8))
    request = world.ask("alice", "a", prompt)
    world.settle()
    if refused:
        refusal = world.refusal(request)
        assert (refusal.reason, refusal.limit_name) == (Reason.CONTEXT_LENGTH, "landing_tokens")
        assert (refusal.asked, refusal.limit) == (prompt, 32)
    else:
        world.complete(request)
    world.assert_baseline()


@pytest.mark.parametrize(("prompt", "refused"), [(9, False), (10, False), (11, True), (20, True)])
def test_the_context_of_the_model_at_its_limit(prompt: int, refused: bool) -> None:
    world = World(Setup(context_tokens=12))
    request = world.ask("alice", "a", prompt, max_tokens=2)
    world.settle()
    if refused:
        refusal = world.refusal(request)
        assert (refusal.asked, refusal.limit) == (prompt + 2, 12)
        assert refusal.limit_name == "model_context_tokens"
    else:
        world.complete(request)
    world.assert_baseline()


def test_refused_receipts_confirm_no_tokens() -> None:
    """Usage comes from what was confirmed, not from what a refused receipt states."""
    world = World()
    world.tamper[Receipt] = changed(input_digest=b"another")
    request = world.ask("alice", "a", 6)
    world.settle()
    ended = world.ended(request)
    assert ended.refusal is not None
    assert ended.refusal.reason is Reason.COMPUTED_INPUT
    assert ended.computed_tokens == 0
    world.assert_baseline()


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"outcome": End.FAILED}, Reason.PEER_REJECTED),
        ({"outcome": End.CANCELLED}, Reason.PEER_REJECTED),
        ({"outcome": End.TIMED_OUT}, Reason.PEER_REJECTED),
        ({"window": "w9"}, Reason.IDENTITY),
        ({"input_digest": b""}, Reason.COMPUTED_INPUT),
        ({"layout": ""}, Reason.MODEL_LAYOUT),
        ({"pages": (0, 0)}, Reason.PAGE_INDEX),
        ({"pages": (0,)}, Reason.PAGE_INDEX),
        ({"pages": (0, 1, 2)}, Reason.PAGE_INDEX),
        ({"pages": (-2, -1)}, Reason.PAGE_INDEX),
        ({"start": 1}, Reason.RANGE),
        ({"start": -1}, Reason.RANGE),
        ({"stop": 5}, Reason.RANGE),
        ({"stop": 7}, Reason.RANGE),
        ({"stop": 8}, Reason.RANGE),
        ({"generations": (0,)}, Reason.GENERATION),
        ({"generations": (1, 0)}, Reason.GENERATION),
        ({"digests": ()}, Reason.MISSING_EVIDENCE),
        ({"digests": (1,)}, Reason.MISSING_EVIDENCE),
        ({"digests": (1, 2)}, Reason.INTEGRITY),
        ({"digests": (1, 2, 3)}, Reason.INTEGRITY),
    ],
)
@pytest.mark.parametrize("policy", LandingPolicy)
def test_each_lie_of_a_receipt_has_its_own_reason(
    policy: LandingPolicy, fields: dict[str, object], reason: Reason
) -> None:
    world = World(Setup(policy=policy))
    rulings = Kept()
    world.tamper[Receipt], world.tamper[Ruling] = changed(**fields), rulings
    request = world.ask("alice", "a", 6)
    world.settle()
    refusal = world.refusal(request)
    assert (refusal.reason, refusal.stage) == (reason, Stage.VERDICT)
    assert [r.admitted for r in rulings.messages] == [False]
    assert world.decode.counters[f"verdict.{reason}"] == 1
    assert not world.reads
    world.heal()
    world.assert_baseline()


def test_a_receipt_that_completed_and_refuses_is_no_completion() -> None:
    world = World()
    refusal = Refusal(Reason.INVARIANT, Stage.PREFILL, "it went wrong")
    world.tamper[Receipt] = changed(refusal=refusal)
    request = world.ask("alice", "a", 6)
    world.settle()
    assert not world.is_running(request)
    assert world.ended(request).end is not End.COMPLETED
    world.heal()
    world.assert_baseline()


def test_pages_of_a_violation_are_quarantined() -> None:
    world = World()
    world.manual.add("scrub")
    world.tamper[Receipt] = changed(digests=(1, 2))
    world.decode.step_begin()
    request = world.ask("alice", "a", 6)
    seen: list[int] = []
    pool = world.decode.machine.books.pool
    end = pool.end

    def note(lease: object, verb: int) -> None:
        end(lease, verb)  # type: ignore[arg-type]
        seen.append(pool.count()[PageStage.QUARANTINED])

    pool.end = note  # type: ignore[method-assign]
    world.settle()
    assert seen == [2]
    assert pool.count()[PageStage.FENCED] == 2
    assert world.refusal(request).reason is Reason.INTEGRITY
    world.decode.step_end()
    world.heal()
    world.assert_baseline()


@pytest.mark.parametrize("answer", ["engine", "write"])
def test_a_failure_of_prefill_crosses_as_a_failure(answer: str) -> None:
    stage = {"engine": "computing", "write": "writing"}[answer]
    world, request = reach(stage, COPY)
    if answer == "engine":
        world.prefill.tell(EngineFailed(request.transfer, "out of memory"))
        world.prefill.computing.clear()
    else:
        world.prefill.write_fails(request.transfer)
    world.settle()
    ended = world.ended(request)
    expected = {"engine": Reason.ENGINE, "write": Reason.PEER_LOST}[answer]
    assert ended.refusal is not None
    assert (ended.end, ended.refusal.reason) == (End.FAILED, expected)
    assert not world.reads
    world.heal()
    world.assert_baseline()


def test_an_engine_that_fails_in_a_step_ends_that_request_after_the_step() -> None:
    world, request = reach("stepping", COPY)
    other = world.ask("bob", "b", 6)
    world.decode.tell(EngineFailed(request.transfer, "it raised"))
    assert world.pages_free() < 14
    world.decode.step_end()
    assert world.refusal(request).reason is Reason.ENGINE
    world.manual.clear()
    world.complete(other)
    world.assert_baseline()


def test_a_prefill_node_of_another_layout_is_refused_as_that() -> None:
    world = World(Setup(prefill_layout=OTHER_LAYOUT))
    request = world.ask("alice", "a", 6)
    world.settle()
    refusal = world.refusal(request)
    assert (refusal.reason, refusal.stage) == (Reason.MODEL_LAYOUT, Stage.PREFILL_ADMISSION)
    world.heal()
    world.assert_baseline()


MINE, PREFILL = Stage.PREFILL_ADMISSION, Stage.PREFILL
BELIEVED = {
    (MINE, Reason.CONTEXT_LENGTH),
    (MINE, Reason.MODEL_LAYOUT),
    (MINE, Reason.TIMEOUT),
    (MINE, Reason.PEER_LOST),
    (PREFILL, Reason.TIMEOUT),
    (PREFILL, Reason.ENGINE),
    (PREFILL, Reason.INVARIANT),
    (Stage.TRANSFER, Reason.PEER_LOST),
    (Stage.DECODE, Reason.INVARIANT),
}
"""What a prefill node can know, and decode cannot."""


@pytest.mark.parametrize("stage", Stage)
@pytest.mark.parametrize("reason", Reason)
def test_what_prefill_states_is_believed_only_about_itself(reason: Reason, stage: Stage) -> None:
    """Else a node could have a client, or the load, pay for what it did."""
    stated = Refusal(reason, stage, "so it says", 4, 1, "z" * 100)
    world = World()
    world.tamper[Receipt] = changed(outcome=end_for(reason), refusal=stated)
    request = world.ask("alice", "a", 6)
    world.settle()
    refusal = world.refusal(request)
    if (stage, reason) in BELIEVED:
        assert refusal == stated
    else:
        assert (refusal.reason, refusal.stage) == (Reason.PEER_REJECTED, Stage.VERDICT)
        assert refusal.row.fault is Fault.PEER
        assert f"{reason} at {stage}" in refusal.message
        assert (refusal.asked, refusal.limit, refusal.limit_name) == (None, None, None)
    world.heal()
    world.assert_baseline()
