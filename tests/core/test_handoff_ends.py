"""Every stage of a request meets every way to end, and all comes back; the first end wins."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kvairlock.core.ends import End
from kvairlock.core.errors import Reason, Stage
from kvairlock.core.messages import Receipt
from kvairlock.core.terms import (
    Fence,
    LandingPolicy,
)
from tests.core.ends import World
from tests.core.ends_parts import (
    DECODE_LIMITS,
    Kept,
    Setup,
)
from tests.core.ends_stages import STAGES, happen, reach

COPY, SEAL, DIRECT = LandingPolicy.COPY, LandingPolicy.SEAL, LandingPolicy.DIRECT


STAGES_GRID = """
                cancel     gateway_lost  link_lost  killed     timeout
queued          cancelled  cancelled     lost       lost       full
granted         cancelled  cancelled     lost       lost       late
prefill_queued  cancelled  cancelled     lost       lost       late
computing       cancelled  cancelled     lost       lost       late
digesting       cancelled  cancelled     lost       lost       late
writing         cancelled  cancelled     lost       lost       late
written         cancelled  cancelled     lost       lost       late
released        cancelled  cancelled     lost       lost       late
landing         cancelled  cancelled     completed  completed  late
running         cancelled  cancelled     completed  completed  slow
stepping        cancelled  cancelled     completed  completed  slow
"""
OUTCOMES: dict[str, tuple[End, Reason | None, Stage | None]] = {
    "cancelled": (End.CANCELLED, Reason.CANCELLED, Stage.GATEWAY),
    "lost": (End.FAILED, Reason.PEER_LOST, Stage.TRANSFER),
    "full": (End.REJECTED, Reason.CAPACITY, Stage.DECODE_ADMISSION),
    "late": (End.TIMED_OUT, Reason.TIMEOUT, Stage.TRANSFER),
    "slow": (End.TIMED_OUT, Reason.TIMEOUT, Stage.DECODE),
    "completed": (End.COMPLETED, None, None),
}
HEAD, *ROWS = [line.split() for line in STAGES_GRID.strip().splitlines()]
assert tuple(row[0] for row in ROWS) == STAGES
CELLS = [(row[0], event, end) for row in ROWS for event, end in zip(HEAD, row[1:], strict=True)]


@pytest.mark.parametrize("policy", LandingPolicy)
@pytest.mark.parametrize(("stage", "event", "end"), CELLS, ids=["-".join(c[:2]) for c in CELLS])
def test_every_stage_meets_every_end(
    policy: LandingPolicy, stage: str, event: str, end: str
) -> None:
    world, request = reach(stage, policy)
    happen(world, request, stage, event)
    if event == "link_lost":
        world.write_all()
        world.run("digest")
        if len(world.decode.machine.windows) and policy is DIRECT:
            world.kill("p")
    world.heal()
    ended = world.ended(request)
    refusal = ended.refusal
    found = (ended.end, refusal.reason if refusal else None, refusal.stage if refusal else None)
    assert found == OUTCOMES[end]
    assert not world.leaks
    assert not world.corruptions
    assert world.decode.counters[f"ended.{ended.end}"] >= 1
    world.assert_baseline()


@pytest.mark.parametrize("policy", LandingPolicy)
def test_a_request_that_nothing_happens_to_completes(policy: LandingPolicy) -> None:
    world = World(Setup(policy=policy))
    kept = Kept()
    world.tamper[Receipt] = kept
    request = world.ask("alice", "a", 6, max_tokens=3)
    world.settle()
    for _ in range(3):
        world.decode.step()
    world.decode.finish(request)
    ended = world.ended(request)
    assert (ended.end, ended.refusal) == (End.COMPLETED, None)
    assert (ended.computed_tokens, ended.generated_tokens) == (6, 3)
    receipt = kept.messages[0]
    assert (receipt.start, receipt.stop, receipt.pages) == (0, 6, (0, 1))
    assert [read.missing for read in world.reads[:1]] == [()]
    assert world.decode.counters["verdict.admitted"] == 1
    assert world.prefill.counters["ended.completed"] == 1
    drain = world.decode.machine.books.drain
    fences = drain.fences + drain.window_fences
    assert fences[Fence.ACKNOWLEDGED] >= 1
    assert fences[Fence.UNPROVEN] == 0
    world.assert_baseline()


@pytest.mark.parametrize("first", ["cancel", "finish", "timeout"])
def test_the_first_end_wins_and_later_ones_are_recorded(first: str) -> None:
    world, request = reach("running", COPY)
    ends: dict[str, Callable[[], None]] = {
        "cancel": lambda: world.cancel(request),
        "finish": lambda: world.decode.finish(request),
        "timeout": lambda: world.advance(DECODE_LIMITS.decode_ms),
    }
    ends[first]()
    expected = {"cancel": End.CANCELLED, "finish": End.COMPLETED, "timeout": End.TIMED_OUT}[first]
    for name, later in ends.items():
        if name != first:
            later()
    world.settle()
    assert world.ended(request).end is expected
    counters = world.decode.counters
    assert sum(n for name, n in counters.items() if name.startswith("ended.")) == 1
    ended = [r for r in world.decode.records if r.event == "request_ended"]
    late = [r for r in world.decode.records if r.event == "end_came_later"]
    assert len(ended) == 1
    assert len(late) == len({"cancel", "finish"} - {first})
    world.heal()
    world.assert_baseline()
