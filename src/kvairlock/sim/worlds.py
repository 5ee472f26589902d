"""The named worlds of the family `small`, each explored to its end, and one that takes minutes.

All have two tenants, a prefill and a decode node, and pools of three pages, so that two requests
meet in memory whatever they do. With all faults at one time none would come to an end; each has
some of them, one has four, and the family has all.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from kvairlock.core.terms import LandingPolicy, Reader
from kvairlock.sim.setup import DECODE_LIMITS, Ask, Direction, Flaw, Setup
from kvairlock.sim.state import Budget

SMALL, LARGE = "small", "large"
"""The family, and the world that has most faults at one time."""


@dataclass(frozen=True, slots=True)
class Named:
    """One world of the family.

    Args:
        name: Its name.
        about: What it is there for.
        setup: What it is made of.
        budget: Which faults may happen.
    """

    name: str
    about: str
    setup: Setup
    budget: Budget


ALICE, BOB = Ask("alice", "a", 2), Ask("bob", "b", 2)
TWO = (ALICE, BOB)
LONG = (replace(ALICE, tokens=4), BOB)
LONGER = (replace(ALICE, tokens=4), replace(BOB, tokens=4))
EARLY = (replace(ALICE, tokens=4, flaw=Flaw.EARLY), BOB)
TEAM = (replace(ALICE, scope="team", content=1), replace(BOB, scope="team", content=1))
AGAIN = (ALICE, replace(ALICE, attempt=2), BOB)
LINE = (ALICE, *(Ask("alice", f"a{number}", 2) for number in (2, 3)), BOB)
SHORT_LINE = replace(DECODE_LIMITS, queue_max=2)
RECOVERS = replace(DECODE_LIMITS, recompute_tokens_per_min=64)
COPY, SEAL, DIRECT = LandingPolicy
PULL = Direction.PULL

WORLDS: tuple[Named, ...] = (
    # Push, windows of their own
    Named("ends", "cancels and early deadlines", Setup(TWO), Budget(cancels=2, timeouts=1)),
    Named("deadlines", "two early deadlines", Setup(TWO), Budget(cancels=1, timeouts=2)),
    Named("pages", "a prompt of two pages", Setup(LONG), Budget(cancels=1, timeouts=1, drops=1)),
    Named("crash", "a process ends", Setup(TWO), Budget(crashes=1, cancels=1, timeouts=1)),
    Named("crashes", "two processes end", Setup(TWO), Budget(crashes=2)),
    Named(
        "wire",
        "lost, repeated and overtaken messages",
        Setup(TWO),
        Budget(drops=1, duplicates=1, reorders=1, cancels=1),
    ),
    Named(
        "faults",
        "a crash, a suspension, a lost and a repeated message, all at one time",
        Setup(TWO),
        Budget(crashes=1, drops=1, duplicates=1, suspensions=1),
    ),
    Named(
        "suspension",
        "a node stands still, messages wait and come twice",
        Setup(TWO),
        Budget(suspensions=1, duplicates=1, cancels=1),
    ),
    Named(
        "late", "a node stands still, messages are lost", Setup(TWO), Budget(suspensions=2, drops=1)
    ),
    Named("cut", "a link breaks", Setup(TWO), Budget(cuts=1, cancels=1, timeouts=1)),
    Named("forger", "somebody has no key", Setup(TWO), Budget(forgeries=1, cancels=1)),
    Named(
        "copies",
        "a copy of a write lands late",
        Setup(TWO, copies=True),
        Budget(copies=1, cancels=1, timeouts=1),
    ),
    Named(
        "scrubs",
        "zeroing takes its time",
        Setup(TWO, slow_scrubs=True),
        Budget(cancels=1, timeouts=1),
    ),
    Named(
        "deaf",
        "an engine keeps its batch until it asks",
        Setup(TWO, deaf_engine=True),
        Budget(cancels=1, timeouts=1),
    ),
    Named("again", "a request is tried again", Setup(AGAIN), Budget(timeouts=1)),
    Named(
        "line",
        "three of one tenant and one of another wait, and the line is short",
        Setup(LINE, decode_limits=SHORT_LINE),
        Budget(),
    ),
    Named("team", "two tenants share a scope", Setup(TEAM), Budget(cancels=1, timeouts=1)),
    Named("team-crash", "and a process ends", Setup(TEAM), Budget(crashes=1)),
    Named(
        "recovery",
        "decode computes what did not come",
        Setup(TWO, decode_limits=RECOVERS),
        Budget(drops=1, cancels=1),
    ),
    Named(
        "recovery-cut",
        "and the link breaks",
        Setup(TWO, decode_limits=RECOVERS),
        Budget(cuts=1, timeouts=1),
    ),
    # Push, the other policies
    Named(
        "seal",
        "windows are sealed",
        Setup(TWO, policy=SEAL),
        Budget(cancels=1, timeouts=1, drops=1),
    ),
    Named(
        "seal-early",
        "and prefill reports too early",
        Setup(EARLY, policy=SEAL),
        Budget(cancels=1, timeouts=1),
    ),
    Named(
        "seal-copies",
        "and a copy of a write lands late",
        Setup(TWO, policy=SEAL, copies=True),
        Budget(copies=1, cancels=1),
    ),
    Named(
        "direct", "windows are the pool", Setup(TWO, policy=DIRECT), Budget(cancels=1, timeouts=1)
    ),
    Named(
        "direct-crash",
        "and a process ends",
        Setup(TWO, policy=DIRECT),
        Budget(crashes=1, cancels=1),
    ),
    Named(
        "direct-early",
        "and prefill reports too early",
        Setup(EARLY, policy=DIRECT),
        Budget(cancels=1, timeouts=1),
    ),
    # Pull
    Named("pull", "decode reads", Setup(TWO, direction=PULL), Budget(cancels=2, timeouts=1)),
    Named(
        "pull-pages",
        "prompts of two pages, which the lender cannot hold at one time",
        Setup(LONGER, direction=PULL),
        Budget(cancels=1),
    ),
    Named("pull-crash", "a process ends", Setup(TWO, direction=PULL), Budget(crashes=1, cancels=1)),
    Named(
        "pull-wire",
        "lost and repeated messages",
        Setup(TWO, direction=PULL),
        Budget(drops=1, duplicates=1, cancels=1),
    ),
    Named(
        "pull-faults",
        "a crash and a lost message",
        Setup(TWO, direction=PULL),
        Budget(crashes=1, drops=1),
    ),
    Named(
        "pull-suspension",
        "a node stands still",
        Setup(TWO, direction=PULL),
        Budget(suspensions=1, duplicates=1),
    ),
    Named("pull-cut", "a link breaks", Setup(TWO, direction=PULL), Budget(cuts=1, cancels=1)),
    Named(
        "pull-trust",
        "the reader does not ask",
        Setup(TWO, direction=PULL, reader=Reader.TRUSTING),
        Budget(cancels=1, timeouts=1),
    ),
    Named(
        "pull-trust-crash",
        "and a process ends",
        Setup(TWO, direction=PULL, reader=Reader.TRUSTING),
        Budget(crashes=1),
    ),
    Named(
        "pull-team",
        "two tenants share a scope",
        Setup(TEAM, direction=PULL),
        Budget(cancels=1, timeouts=1),
    ),
    Named(
        "pull-recovery",
        "decode computes what did not come",
        Setup(TWO, direction=PULL, decode_limits=RECOVERS),
        Budget(cuts=1),
    ),
)


LARGEST = Named(
    LARGE,
    "all faults of `faults`, and a client that leaves; takes minutes",
    Setup(TWO),
    Budget(crashes=1, drops=1, duplicates=1, suspensions=1, cancels=1),
)
"""Not one of the family."""


def named(name: str) -> tuple[Named, ...]:
    """Return the worlds of a name: all of the family, or one; none if there is no such."""
    if name == SMALL:
        return WORLDS
    return tuple(world for world in (*WORLDS, LARGEST) if world.name == name)
