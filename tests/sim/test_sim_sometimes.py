"""Every rare state can be reached in a world that is small enough to be explored at once."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from kvairlock.core.terms import LandingPolicy, Reader
from kvairlock.sim.explore import explore
from kvairlock.sim.setup import Direction, Flaw, Setup
from kvairlock.sim.sometimes import PULL_ONLY, SOMETIMES, Rare
from kvairlock.sim.state import Budget
from kvairlock.sim.world import World
from kvairlock.sim.worlds import LINE, RECOVERS, SHORT_LINE, TEAM
from tests.sim.stories import ALICE, BOB, TWO, one

PULL = one(direction=Direction.PULL)
EARLY = (replace(ALICE, tokens=4, flaw=Flaw.EARLY), BOB)

WHERE: dict[Rare, tuple[Setup, Budget]] = {
    Rare.LATE_WRITE_DRAINING: (one(), Budget(cancels=1)),
    Rare.LATE_WRITE_QUARANTINED: (Setup(EARLY, policy=LandingPolicy.DIRECT), Budget()),
    Rare.LATE_WRITE_AFTER_SUCCESS: (one(copies=True), Budget(copies=1)),
    Rare.RECEIPT_AFTER_CANCEL: (one(), Budget(cancels=1)),
    Rare.VERDICT_AFTER_CANCEL: (one(), Budget(timeouts=1)),
    Rare.OLD_INCARNATION: (one(), Budget(crashes=1)),
    Rare.END_AFTER_END: (replace(TWO, deaf_engine=True), Budget(cancels=1)),
    Rare.GRANT_REPEATED: (one(), Budget(duplicates=1)),
    Rare.STEP_AFTER_END: (one(), Budget(cancels=1)),
    Rare.LANDING_AFTER_END: (one(), Budget(cancels=1)),
    Rare.FILL_AFTER_END: (one(decode_limits=RECOVERS), Budget(drops=1, cancels=1)),
    Rare.CHUNK_AFTER_END: (one(), Budget(cancels=1)),
    Rare.WRITE_AFTER_END: (one(), Budget(cancels=1)),
    Rare.WRITER_KEEPS_WINDOW: (Setup(EARLY, policy=LandingPolicy.SEAL), Budget()),
    Rare.FENCED_BY_SEAL: (one(), Budget(drops=1)),
    Rare.FENCED_BY_PROCESS_END: (one(), Budget(crashes=1)),
    Rare.DRAIN_UNDER_FULL_POOL: (
        replace(TWO, decode_pages=2, policy=LandingPolicy.DIRECT),
        Budget(cancels=1),
    ),
    Rare.RESUMED_LATE: (one(), Budget(suspensions=1)),
    Rare.RECOVERY: (one(decode_limits=RECOVERS), Budget(drops=1)),
    Rare.FAIRNESS: (Setup(LINE), Budget()),
    Rare.PUSHED_OUT: (Setup(LINE, decode_limits=SHORT_LINE), Budget()),
    Rare.PREFIX_REUSED: (Setup(TEAM), Budget()),
    Rare.PEER_LOST_IN_TRANSFER: (one(), Budget(cuts=1)),
    Rare.CLAIM_AFTER_EXPIRY: (PULL, Budget(timeouts=1)),
    Rare.CLAIM_REPEATED: (PULL, Budget(drops=1)),
    Rare.READ_AFTER_END: (PULL, Budget(cancels=1)),
    Rare.LOAN_REVOKED_IN_READ: (PULL, Budget(timeouts=1)),
    Rare.LOAN_AFTER_END: (replace(PULL, reader=Reader.TRUSTING), Budget(timeouts=1)),
}


@cache
def reached(setup: Setup, budget: Budget) -> frozenset[str]:
    found = explore(World(setup, budget))
    assert found.violation is None
    assert found.complete
    return frozenset(found.sometimes)


def test_every_rare_state_says_what_it_is() -> None:
    assert set(SOMETIMES) == set(Rare) == set(WHERE)
    assert all(SOMETIMES.values())


@pytest.mark.parametrize("rare", Rare)
def test_it_is_reached(rare: Rare) -> None:
    assert rare in reached(*WHERE[rare])


@pytest.mark.parametrize("rare", sorted(set(Rare) - {Rare.PREFIX_REUSED}))
def test_where_nothing_goes_wrong_it_is_not_reached(rare: Rare) -> None:
    setup = PULL if rare in PULL_ONLY else one()
    assert rare not in reached(setup, Budget())
