"""Brings one request to a named moment of its life, and lets something happen to it there."""

from __future__ import annotations

from dataclasses import replace

from kvairlock.core.events import PeerLost
from kvairlock.core.protocol.decode import DecodeLimits
from kvairlock.core.terms import (
    Incarnation,
    LandingPolicy,
    NodeName,
    Peer,
    Role,
)
from tests.core.ends import World
from tests.core.ends_parts import (
    DECODE_LIMITS,
    GATEWAY,
    Request,
    Setup,
)

STRANGER = Peer(NodeName("x"), Role.PREFILL, Incarnation("x-1"))
DECODE, PREFILL = NodeName("d"), NodeName("p")


STAGES = (
    "queued",
    "granted",
    "prefill_queued",
    "computing",
    "digesting",
    "writing",
    "written",
    "released",
    "landing",
    "running",
    "stepping",
)
"""The moments in the life of one request, in their order."""


def reach(
    stage: str, policy: LandingPolicy, limits: DecodeLimits = DECODE_LIMITS
) -> tuple[World, Request]:
    """Bring one request to a named moment of its life."""
    setup = Setup(policy=policy, decode_limits=limits)
    small = {
        "queued": replace(setup, decode_pages=4),
        "prefill_queued": replace(setup, prefill_pages=3),
    }
    world = World(small.get(stage, setup))
    world.manual |= {"digest", "land"}
    if stage in small:
        world.ask("blocker", "blocker", 8)
        world.deliver_all()
    if stage == "queued":
        world.manual.clear()
        world.settle()
        world.manual |= {"digest", "land"}
    request = world.ask("alice", "a", 6)
    if stage not in {"queued", "granted"}:
        world.deliver_all()
    for step in STAGES[STAGES.index("computing") : STAGES.index(stage) + 1]:
        take(world, request, step)
    return world, request


def take(world: World, request: Request, step: str) -> None:
    """Go on to the next moment."""
    prefill, name = world.prefill, request.transfer
    match step:
        case "computing":
            prefill.compute_begin(name)
        case "digesting":
            prefill.compute_end(name)
        case "writing":
            world.run("digest")
            prefill.write_piece(name)
        case "written":
            prefill.write_all(name)
        case "released":
            world.deliver("p", "d")
        case "landing":
            world.deliver("p", "d")
        case "running":
            world.run("land")
        case "stepping":
            world.decode.step_begin()


WAITS = {
    "queued": DECODE_LIMITS.queue_ms,
    "landing": DECODE_LIMITS.landing_ms,
    "running": DECODE_LIMITS.decode_ms,
    "stepping": DECODE_LIMITS.decode_ms,
}


def happen(world: World, request: Request, stage: str, event: str) -> None:
    """Let something happen to a request in a stage: a timeout is that of the stage."""
    match event:
        case "cancel":
            world.cancel(request)
        case "gateway_lost":
            world.decode.tell(PeerLost(GATEWAY))
        case "link_lost":
            world.lose("p")
        case "killed":
            world.kill("p")
        case "timeout":
            world.advance(WAITS.get(stage, DECODE_LIMITS.prefill_ms))
