"""Brings one request to a named moment of its recovery: its prefill was lost in mid-transfer."""

from __future__ import annotations

from dataclasses import replace

from kvairlock.core.protocol.decode.reception import Reception
from kvairlock.core.protocol.handoff import HandoffStage
from kvairlock.core.terms import LandingPolicy
from tests.core.ends import World
from tests.core.ends_parts import DECODE_LIMITS, PAGE_TOKENS, Request, Setup
from tests.core.ends_stages import take

BUDGET_TOKENS = 60
LIMITS = replace(DECODE_LIMITS, recompute_tokens_per_min=BUDGET_TOKENS)
NO_BUDGET = replace(DECODE_LIMITS, recompute_tokens_per_min=0)
TOKENS = 6
"""Two pages for the prompt, and as many with the answer."""

PHASES = ("waiting", "granted", "first_chunk", "between", "last_chunk")
"""The moments of a recovery, in their order: for pages, for its turn, in a chunk, and so on."""
CHUNKS = ("first_chunk", "last_chunk")


def recover(phase: str, policy: LandingPolicy, word: str = "lost") -> tuple[World, Request]:
    """Bring one request to a phase of its recovery.

    Args:
        phase: One of `PHASES`.
        policy: How windows land.
        word: `lost` breaks the link in mid-transfer; `late` lets the deadline pass when all was
            written, with the prefill node's last words still on the wire.
    """
    world = World(Setup(policy=policy, decode_pages=3, decode_limits=LIMITS))
    world.manual |= {"digest", "land", "scrub"}
    request = world.ask("alice", "a", TOKENS)
    world.deliver_all()
    for step in ("computing", "digesting", "writing"):
        take(world, request, step)
    if word == "lost":
        world.lose("p")
    else:
        take(world, request, "written")
        world.advance(LIMITS.prefill_ms)
    assert stage_of(world, request) is HandoffStage.RECOVERING
    assert not world.decode.computing, "its former pages are not free, and there is one more"
    if phase != "waiting":
        begin_to_compute(world, request, phase)
    return world, request


def begin_to_compute(world: World, request: Request, phase: str) -> None:
    """Give a waiting request its pages and go on to a phase."""
    if world.decode.machine.policy is LandingPolicy.DIRECT:
        free_the_window(world)
    world.run("scrub")
    decode, name = world.decode, request.transfer
    assert list(decode.computing) == [name]
    if phase != "granted":
        decode.compute_begin(name)
    if phase in {"between", "last_chunk"}:
        decode.compute_end(name, PAGE_TOKENS)
    if phase == "last_chunk":
        decode.compute_begin(name)


def free_the_window(world: World) -> None:
    """Directly written pages are the window: they come back with the end of their writer."""
    if "p" in world.cut:
        world.kill("p")
    else:
        world.deliver("p", "d")


def stage_of(world: World, request: Request) -> HandoffStage:
    return reception_of(world, request).stage


def reception_of(world: World, request: Request) -> Reception:
    return world.decode.machine.receptions[request.transfer]


def finish_all(world: World) -> None:
    """Heal; what is written directly by a lost node needs the end of its process."""
    world.write_all()
    if "p" in world.cut and "p" in world.prefills:
        world.kill("p")
    world.heal()
    assert not world.leaks
    assert not world.corruptions
    world.assert_baseline()


def recomputed(world: World, request: Request) -> list[tuple[object, object]]:
    """Why, and for how many tokens, decode computed the prompt of a request itself."""
    records = [r for r in world.decode.records if r.event == "request_recomputed"]
    mine = [r for r in records if r.owner == request.ticket.owner]
    return [(r.fields["reason"], r.fields["tokens"]) for r in mine]
