"""The schedules of the mutants as steps that live processes can carry out.

Requests and tenants have the names that they have in the simulator. What is a flaw of prefill there
is one here; a message that is late there is a thread that is held here.
"""

from __future__ import annotations

from dataclasses import replace

from kvairlock.drills.live_steps import (
    Answered,
    Arm,
    Ask,
    Hold,
    Idle,
    Leave,
    Look,
    Pass,
    Recorded,
    Release,
    Resume,
    Step,
    Stop,
)
from kvairlock.runtime.failpoints import Failpoint, Flaw

ALICE, BOB, MALLORY = "alice", "bob", "mallory"
TENANTS = (ALICE, BOB, MALLORY)
P0, P1, D0, D1 = "prefill-0", "prefill-1", "decode-0", "decode-1"
SHARED = "the same beginning, long enough to fill more than four pages of 16 tokens; "
WRITE, LAND, STEP = Failpoint.WRITE_PIECE, Failpoint.LAND, Failpoint.DECODE_STEP
QUEUE_MS = 1_500
A, B = Ask("a", ALICE), Ask("b", BOB)


def flawed(flaw: Flaw, ask: Ask = A) -> tuple[Step, ...]:
    """Prefill does one prompt wrong."""
    return (Arm(P0, flaw), ask, Answered("a"), Release(P0, flaw))


def mixed_up(flaw: Flaw) -> tuple[Step, ...]:
    """Prefill mixes a prompt up with another tenant's, whose pages it still has."""
    return (
        Arm(D0, LAND),
        B,
        Hold(D0, LAND),
        Arm(P0, flaw),
        A,
        Recorded(("write_ended",), ALICE, P0),
        Release(P0, flaw),
        Release(D0, LAND),
        Answered("a"),
        Answered("b"),
    )


STOLEN = (
    Ask("a", ALICE, f"{P0}/{D0}", beginning=SHARED),
    Answered("a"),
    Idle(),
    Ask("stolen", ALICE, f"{P1}/{D1}", shows=True),
    Answered("stolen"),
    Ask("m", MALLORY, f"{P0}/{D0}", beginning=SHARED, ticket="stolen"),
    Answered("m"),
)
USED_TWICE = (
    Arm(D0, STEP, after=1),
    Ask("a", ALICE, shows=True),
    Hold(D0, STEP),
    Ask("m", ALICE, like="a", ticket="a"),
    Recorded(("request_refused", "read_started"), ALICE, D0),
    Release(D0, STEP),
    Answered("m"),
    Answered("a"),
)
OVER_LONG = (
    Ask("long", ALICE, characters=500),
    Recorded(("request_refused", "request_admitted"), ALICE),
    B,
    Recorded(("request_admitted",), BOB, D0),
    Stop(D0),
    Pass(QUEUE_MS + 200),
    Resume(D0),
    Answered("b"),
    Answered("long"),
)
FORGED = (
    Arm(P0, WRITE),
    Arm(P0, Flaw.FORGED),
    A,
    Recorded(("frame_refused", "verdict"), node=D0),
    Release(P0, WRITE),
    Answered("a"),
    Release(P0, Flaw.FORGED),
)
HOG = (
    Arm(P0, WRITE),
    Ask("h1", MALLORY, f"{P0}/{D0}"),
    Hold(P0, WRITE),
    Ask("h2", MALLORY, f"{P0}/{D0}"),
    Recorded(("request_admitted",), MALLORY, D0),
    Ask("b", BOB, f"{P1}/{D0}"),
    Answered("b"),
    Release(P0, WRITE),
    Answered("h1"),
    Answered("h2"),
)
SAME_BEGINNING = (
    replace(A, beginning=SHARED),
    Answered("a"),
    Idle(),
    replace(B, beginning=SHARED),
    Answered("b"),
)
PADDED = (
    Arm(D0, LAND),
    Ask("b", BOB, f"{P0}/{D0}"),
    Hold(D0, LAND),
    Arm(P0, Flaw.PADDED),
    Ask("a", ALICE, f"{P0}/{D0}"),
    Recorded(("write_ended",), ALICE, P0),
    Release(P0, Flaw.PADDED),
    Arm(D0, STEP),
    Release(D0, LAND),
    Hold(D0, STEP),
    Recorded(("read_started",), ALICE, D0),
    Look("a", "b", D0),
    Release(D0, STEP),
    Answered("a"),
    Answered("b"),
)
FORMER = (
    B,
    Answered("b"),
    Idle(),
    Arm(P0, WRITE),
    Arm(P0, Flaw.FORMER),
    A,
    Answered("a"),
    Release(P0, Flaw.FORMER),
    Release(P0, WRITE),
)
STALE = (
    Arm(D0, Flaw.DEAF),
    Ask("a", ALICE, characters=56, max_tokens=100),
    Hold(D0, Flaw.DEAF),
    Leave("a"),
    Recorded(("drain_ended",), ALICE, D0),
    B,
    Recorded(("read_started",), BOB, D0),
    Release(D0, Flaw.DEAF),
    Answered("b"),
)
LATE = (
    Arm(P0, WRITE, after=2),
    Ask("a", ALICE, f"{P0}/{D0}"),
    Hold(P0, WRITE),
    Leave("a"),
    Recorded(("request_ended",), ALICE, D0),
    Recorded(("request_ended",), ALICE, P0),
    Arm(D0, STEP),
    Ask("b", BOB, f"{P1}/{D0}"),
    Hold(D0, STEP),
    Ask("m", MALLORY, f"{P0}/{D0}"),
    Recorded(("range_computed",), MALLORY, P0),
    Release(P0, WRITE),
    Recorded(("write_ended",), ALICE, P0),
    Release(D0, STEP),
    Answered("b"),
    Answered("m"),
)
IDLE = (B, Answered("b"), Idle(), *flawed(Flaw.IDLE))
