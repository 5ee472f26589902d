"""Brings a request to a phase of its life and holds it there, on the route that is to be struck.

queued      decode has no pages for it: another request has them, and is held in a step
computing   prefill has computed it, and is held in the middle of writing its pages
written     its receipt has come, and decode is held before it lands the window
decoding    its first tokens have been streamed, and decode is held in the next step
draining    its client has left, and prefill is held in the middle of writing its pages
"""

from __future__ import annotations

from dataclasses import dataclass

from kvairlock.drills.canaries import Marked
from kvairlock.drills.client import Call
from kvairlock.drills.faults.bench import D0, HOLDER, P0, P1, ROUTE, STRUCK, Bench
from kvairlock.drills.faults.table import Phase
from kvairlock.drills.stack import wait_for
from kvairlock.runtime.failpoints import Failpoint

PIECES = 2
"""Pages that are written before the write is held."""
TOKENS = 4
"""Tokens that are streamed before the generation is held."""
HOLDER_TOKENS = 100


@dataclass(frozen=True, slots=True)
class Place:
    """Where a thread of a node is held."""

    node: str
    point: Failpoint


PLACES: dict[Phase, Place] = {
    Phase.QUEUED: Place(D0, Failpoint.DECODE_STEP),
    Phase.COMPUTING: Place(P0, Failpoint.WRITE_PIECE),
    Phase.WRITTEN: Place(D0, Failpoint.LAND),
    Phase.DECODING: Place(D0, Failpoint.DECODE_STEP),
    Phase.DRAINING: Place(P0, Failpoint.WRITE_PIECE),
}
"""Who keeps a request in its phase."""

AFTER = {Phase.COMPUTING: PIECES, Phase.DECODING: TOKENS, Phase.DRAINING: PIECES}
"""How often a place is passed before, where that is not never."""


@dataclass(frozen=True, slots=True)
class Scene:
    """A request in its phase.

    Args:
        prompt: Its prompt.
        call: Its client.
        request: Its pseudonym.
        place: Where it is held.
    """

    prompt: Marked
    call: Call
    request: str
    place: Place


def set_scene(bench: Bench, phase: Phase) -> Scene:
    """Bring a request to a phase.

    Raises:
        DrillFailed: It does not come there.
    """
    place = PLACES[phase]
    bench.hold(place.node, place.point, AFTER.get(phase, 0))
    if phase is Phase.QUEUED:
        bench.ask(HOLDER, f"{P1}/{D0}", 300, HOLDER_TOKENS)
        bench.client.held(place.node, place.point)
    asked = bench.ask(STRUCK, ROUTE)
    scene = Scene(asked.prompt, asked.call, bench.request_of(STRUCK, D0), place)
    if phase is not Phase.QUEUED:
        bench.client.held(place.node, place.point)
    _complete(bench, scene, phase)
    return scene


def _complete(bench: Bench, scene: Scene, phase: Phase) -> None:
    """Let all that belongs to the phase have happened, on both nodes and at the client."""
    ended = "request_ended"
    if phase is Phase.DECODING:
        wait_for("its first tokens", lambda: len(scene.call.reply.text) == TOKENS or None)
        bench.journal.last(ended, request=scene.request, node=P0)
    if phase is Phase.DRAINING:
        scene.call.leave()
        bench.journal.last(ended, request=scene.request, node=D0)
        bench.journal.last(ended, request=scene.request, node=P0)
