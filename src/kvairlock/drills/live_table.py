"""The mutants of the simulator, live: for each guard a schedule that real processes carry out.

`kvairlock explore --mutants` finds for each guard the shortest schedule that breaks an invariant
without it. Here each is said to real processes, held at failpoints, with the flaw that it needs in
the process that has it. `shadows` stop the same fault as well and are off both times.
"""

from __future__ import annotations

from dataclasses import replace

from kvairlock.core.errors import Reason
from kvairlock.core.guards import Guard
from kvairlock.core.terms import LandingPolicy
from kvairlock.drills.live import Live, Sight, Topology
from kvairlock.drills.live_schedules import (
    FORGED,
    FORMER,
    HOG,
    IDLE,
    LATE,
    OVER_LONG,
    PADDED,
    QUEUE_MS,
    SAME_BEGINNING,
    STALE,
    STOLEN,
    USED_TWICE,
    A,
    flawed,
    mixed_up,
)
from kvairlock.runtime.failpoints import Flaw

DIRECT = Topology(prefills=2, landing=LandingPolicy.DIRECT)
PAIRS = Topology(prefills=2, decodes=2, prefix_share=0.5)
SMALL = Topology(pages=16, landing_pages=64, queue_ms=QUEUE_MS)
BY_RECEIPT = frozenset({Guard.IDENTITY, Guard.INPUT, Guard.INTEGRITY})

LIVE: tuple[Live, ...] = (
    Live(
        Guard.STRIP,
        STOLEN,
        Sight.OWN,
        Sight.SHARED,
        who="m",
        record="parameters_stripped",
        shadows=frozenset({Guard.TICKET}),
        topology=PAIRS,
        differs="the stolen ticket was used on another decode node, since none is shown unused",
    ),
    Live(
        Guard.CONTRACT,
        OVER_LONG,
        Sight.OWN,
        Sight.DENIED,
        who="b",
        record="request_refused",
        shadows=frozenset({Guard.CAPACITY}),
        topology=SMALL,
    ),
    Live(Guard.FRAME, FORGED, Sight.OWN, Sight.WRONG, record="frame_refused"),
    Live(
        Guard.TICKET,
        STOLEN,
        Sight.REFUSED,
        Sight.SHARED,
        who="m",
        reason=Reason.TENANT,
        shadows=frozenset({Guard.STRIP}),
        topology=PAIRS,
        differs="the gateway is the router, so `strip` is off; the ticket was used elsewhere",
    ),
    Live(
        Guard.CLAIMANT,
        USED_TWICE,
        Sight.REFUSED,
        Sight.UNVOUCHED,
        who="m",
        reason=Reason.REPLAYED,
        shadows=frozenset({Guard.STRIP, Guard.MAPPING}),
        differs="the gateway is the router, so `strip` is off; it comes in alice's name",
    ),
    Live(
        Guard.CAPACITY,
        OVER_LONG,
        Sight.OWN,
        Sight.DENIED,
        who="b",
        record="request_refused",
        shadows=frozenset({Guard.CONTRACT}),
        topology=SMALL,
    ),
    Live(
        Guard.SHARE,
        HOG,
        Sight.OWN,
        Sight.DENIED,
        who="b",
        topology=Topology(prefills=2, landing_pages=20, tenant_share=0.5, queue_ms=QUEUE_MS),
        differs="bob comes by another prefill node: one has one writer, and it is held",
    ),
    Live(
        Guard.SCOPE,
        SAME_BEGINNING,
        Sight.OWN,
        Sight.SHARED,
        who="b",
        topology=Topology(prefix_share=0.5),
    ),
    Live(Guard.TAIL, PADDED, Sight.OWN, Sight.TAIL, topology=DIRECT),
    Live(
        Guard.OUTCOME,
        flawed(Flaw.REJECTED),
        Sight.REFUSED,
        Sight.WRONG,
        reason=Reason.PEER_REJECTED,
    ),
    Live(
        Guard.IDENTITY,
        mixed_up(Flaw.OTHERS_REQUEST),
        Sight.REFUSED,
        Sight.FOREIGN,
        reason=Reason.IDENTITY,
    ),
    Live(
        Guard.INPUT,
        mixed_up(Flaw.OTHERS_INPUT),
        Sight.REFUSED,
        Sight.FOREIGN,
        reason=Reason.COMPUTED_INPUT,
    ),
    Live(
        Guard.LAYOUT,
        flawed(Flaw.LAYOUT),
        Sight.REFUSED,
        Sight.WRONG,
        reason=Reason.MODEL_LAYOUT,
    ),
    Live(
        Guard.PAGE_INDEX,
        # Nothing but the canary and the question, so that their order matters to the answer.
        flawed(Flaw.ORDER, replace(A, characters=34)),
        Sight.REFUSED,
        Sight.WRONG,
        reason=Reason.PAGE_INDEX,
    ),
    Live(
        Guard.RANGE,
        flawed(Flaw.SHORT),
        Sight.REFUSED,
        Sight.WRONG,
        reason=Reason.RANGE,
        differs="16 tokens are left out, not one: decode runs the last one again in any case",
    ),
    Live(
        Guard.GENERATION,
        FORMER,
        Sight.REFUSED,
        Sight.FOREIGN,
        reason=Reason.GENERATION,
        shadows=BY_RECEIPT | {Guard.DRAIN, Guard.SCRUB},
        topology=Topology(landing=LandingPolicy.DIRECT, verdict_ms=2_000),
        differs="a former receipt in push: no process reads in the direction of the mutant, pull",
    ),
    Live(
        Guard.INTEGRITY,
        mixed_up(Flaw.TORN),
        Sight.REFUSED,
        Sight.FOREIGN,
        reason=Reason.INTEGRITY,
        differs="all pages but the first are foreign, so that the answer is as well",
    ),
    Live(
        Guard.MAPPING,
        STALE,
        Sight.OWN,
        Sight.WRONG,
        who="b",
        record="mapping_refused",
        differs="the stale table's next token goes into bob's pages, and bob's answer shows it: "
        "what is read by it goes to a client who has left",
    ),
    Live(
        Guard.DRAIN,
        LATE,
        Sight.OWN,
        Sight.FOREIGN,
        who="b",
        topology=DIRECT,
        differs="what goes on is the write, and what it reads is mallory's by then: a prefill "
        "process computes one chunk at a time, so that none goes on beside another's",
    ),
    # No check can know that an engine computed nothing: with the guard on it has read zeros.
    Live(Guard.SCRUB, IDLE, Sight.WRONG, Sight.FOREIGN),
)
"""One row for each guard, in the order of the guards."""
