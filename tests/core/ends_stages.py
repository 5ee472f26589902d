"""Brings one request to a named moment of its life."""

from __future__ import annotations

from kvairlock.core.terms import (
    Incarnation,
    LandingPolicy,
    NodeName,
    Peer,
    Role,
)
from tests.core.ends import World
from tests.core.ends_parts import (
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


def reach(stage: str, policy: LandingPolicy) -> tuple[World, Request]:
    """Bring one request to a named moment of its life."""
    small = {
        "queued": Setup(policy=policy, decode_pages=4),
        "prefill_queued": Setup(policy=policy, prefill_pages=3),
    }
    world = World(small.get(stage, Setup(policy=policy)))
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
