"""Mutants: for each guard a world in which its absence shows, and nothing else is in the way.

Guards are layers, and most faults meet several. `shadows` are the guards that would stop the same
fault before or behind; they are off in both explorations of a row. With the guard on, the world is
explored to its end and nothing breaks: the guard alone holds. With it off, the shortest schedule is
found that breaks an invariant.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from kvairlock.core.guards import Guard
from kvairlock.core.terms import LandingPolicy
from kvairlock.sim.outcome import Fault
from kvairlock.sim.setup import DECODE_LIMITS, Ask, Direction, Flaw, Setup, Theft
from kvairlock.sim.state import Budget

NONE: frozenset[Fault] = frozenset()
LEAK = frozenset({Fault.LEAK})
HARM = frozenset({Fault.LEAK, Fault.CORRUPTION, Fault.DENIED})
"""What a tenant would notice."""
NOTHING = Budget()
NOBODY: frozenset[Guard] = frozenset()


@dataclass(frozen=True, slots=True)
class Mutant:
    """A guard and the world in which it is missed.

    Args:
        guard: The guard.
        setup: The world.
        story: What goes wrong in it that this guard is there for.
        budget: Which faults may happen.
        shadows: Guards that stop the same fault; off, so that this one is alone.
        seeks: What is looked for without the guard.
        excused: What is passed over with it: what no guard could know.
    """

    guard: Guard
    setup: Setup
    story: str
    budget: Budget = NOTHING
    shadows: frozenset[Guard] = NOBODY
    seeks: frozenset[Fault] = HARM
    excused: frozenset[Fault] = NONE

    @property
    def alone(self) -> Setup:
        """The world with this guard alone in the way."""
        return replace(self.setup, guards_off=self.shadows)

    @property
    def without(self) -> Setup:
        """The same world without it."""
        return replace(self.setup, guards_off=self.shadows | {self.guard})


BOB = Ask("bob", "b", 2)


def _flawed(flaw: Flaw, tokens: int = 2) -> Setup:
    return Setup((Ask("alice", "a", tokens, flaw=flaw), BOB))


OVER_LONG = Setup((Ask("alice", "long", 8), BOB), tenant_pages=8)
SAME_BEGINNING = (
    Ask("alice", "a", 2, scope="alice", content=1),
    Ask("alice", "stolen", 2, scope="alice", content=1),
)
HOG = Setup(
    (
        Ask("hog", "h1", 2, flaw=Flaw.HANGS),
        Ask("hog", "h2", 2, flaw=Flaw.HANGS),
        Ask("bob", "b", 2),
    ),
    decode_pages=6,
    tenant_pages=1,
    decode_limits=replace(DECODE_LIMITS, landing_pages=2),
)

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        Guard.STRIP,
        Setup((*SAME_BEGINNING, Ask("mallory", "m", 2, content=1, stolen="stolen/1"))),
        "a client names a ticket of another tenant in its transfer parameters",
        shadows=frozenset({Guard.TICKET}),
        seeks=LEAK,
    ),
    Mutant(
        Guard.CONTRACT,
        OVER_LONG,
        "a prompt is asked for that no route can hold",
        shadows=frozenset({Guard.CAPACITY}),
    ),
    Mutant(
        Guard.FRAME,
        Setup((Ask("alice", "a", 2), BOB)),
        "somebody without the key sends a receipt of success",
        Budget(forgeries=1),
    ),
    Mutant(
        Guard.TICKET,
        Setup(
            (
                *SAME_BEGINNING,
                Ask("mallory", "m", 2, content=1, stolen="stolen/1", theft=Theft.BY_ROUTER),
            )
        ),
        "a router presents a tenant's ticket for another tenant's prompt",
        seeks=LEAK,
    ),
    Mutant(
        Guard.CLAIMANT,
        Setup(
            (
                Ask("alice", "a", 2),
                Ask("mallory", "m", 2, stolen="a/1", theft=Theft.WITH_ALL),
            )
        ),
        "a router repeats a ticket with all that came with it, while its request is read",
        shadows=frozenset({Guard.MAPPING}),
        seeks=LEAK,
    ),
    Mutant(
        Guard.CAPACITY,
        OVER_LONG,
        "a prompt reaches the nodes that they can never hold",
        shadows=frozenset({Guard.CONTRACT}),
    ),
    Mutant(
        Guard.SHARE,
        HOG,
        "a tenant asks for more than its share, and its writes do not end",
    ),
    Mutant(
        Guard.SCOPE,
        Setup(
            (
                Ask("alice", "a", 2, scope="alice", content=1),
                Ask("bob", "b", 2, scope="bob", content=1),
            )
        ),
        "two tenants ask with the same beginning",
    ),
    Mutant(
        Guard.TAIL,
        _flawed(Flaw.PADDED, tokens=1),
        "an engine fills the rest of a page with its batch neighbour's slots",
    ),
    Mutant(Guard.OUTCOME, _flawed(Flaw.REJECTED), "a rejected prompt is reported all the same"),
    Mutant(
        Guard.IDENTITY,
        _flawed(Flaw.OTHERS_REQUEST),
        "prefill serves another request in this window, and says so",
    ),
    Mutant(
        Guard.INPUT,
        _flawed(Flaw.OTHERS_INPUT),
        "prefill computes another prompt, and says so",
    ),
    Mutant(Guard.LAYOUT, _flawed(Flaw.LAYOUT), "prefill stores pages of another layout"),
    Mutant(
        Guard.PAGE_INDEX,
        _flawed(Flaw.ORDER, tokens=4),
        "prefill writes the pages in another order",
    ),
    Mutant(Guard.RANGE, _flawed(Flaw.SHORT), "prefill computes all but the last token"),
    Mutant(
        Guard.GENERATION,
        Setup((Ask("alice", "a", 4), Ask("bob", "b", 4)), direction=Direction.PULL),
        "the lender's time is up during a read, and the next prompt gets its pages",
        Budget(timeouts=1),
        shadows=frozenset({Guard.INTEGRITY}),
        seeks=LEAK,
    ),
    Mutant(Guard.INTEGRITY, _flawed(Flaw.TORN), "foreign bytes land with the last page"),
    Mutant(
        Guard.MAPPING,
        Setup((Ask("alice", "a", 2), BOB), deaf_engine=True),
        "an engine goes on with a request that has ended",
        Budget(cancels=1),
        seeks=LEAK,
    ),
    Mutant(
        Guard.DRAIN,
        Setup((Ask("alice", "a", 2), BOB), policy=LandingPolicy.DIRECT),
        "a chunk goes on when its client has left, and stores into pages of the next prompt",
        Budget(cancels=1),
        seeks=LEAK,
    ),
    Mutant(
        Guard.SCRUB,
        _flawed(Flaw.IDLE),
        "an engine computes nothing and reports success: no check can know, only zeros help",
        seeks=LEAK,
        excused=frozenset({Fault.CORRUPTION}),
    ),
)
