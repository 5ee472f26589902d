"""Waivers end at their second, by themselves and for good; what they relax; samples; coverage."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvairlock.core.checks import FULL, OFF, CheckPolicy, Checks, Cover, Coverage, weaker
from kvairlock.core.guards import Guard, GuardMode, GuardSet
from kvairlock.core.promise.waivers import Waiver, Waivers, WaiverState
from kvairlock.core.terms import NodeName, Route

P, Q = (Route(NodeName(name), NodeName("d")) for name in ("p", "q"))
EXPIRES = 1_000_000
PILOT = Waiver(
    name="pilot",
    guards=frozenset({Guard.INPUT, Guard.RANGE}),
    checks=FULL,
    routes=(P,),
    conditions="pilot tenants",
    owner="serving",
    expires_unix_s=EXPIRES,
    evidence="30 days without a would-be refusal",
)
SAMPLING = replace(
    PILOT,
    name="sampling",
    guards=frozenset(),
    checks=Checks(CheckPolicy.SAMPLED, 0.25),
    routes=(P, Q),
    expires_unix_s=EXPIRES + 10,
)
NOBODY: frozenset[Guard] = frozenset()


def test_a_waiver_is_in_force_to_its_last_second_and_not_in_the_next() -> None:
    waivers = Waivers([PILOT])
    assert waivers.look(EXPIRES - 1) == (PILOT,)
    assert waivers.guards(NOBODY).mode(Guard.INPUT, P) is GuardMode.OBSERVING
    assert waivers.look(EXPIRES - 1) == ()
    assert waivers.look(EXPIRES) == (PILOT,)
    assert waivers.states == {PILOT: WaiverState.EXPIRED}
    assert waivers.guards(NOBODY) == GuardSet()


def test_a_waiver_that_had_expired_before_the_start_never_is_in_force() -> None:
    waivers = Waivers([PILOT])
    assert waivers.look(EXPIRES) == (PILOT,)
    assert (waivers.states[PILOT], waivers.in_force) == (WaiverState.EXPIRED, ())


def test_a_clock_that_is_set_back_revives_nothing() -> None:
    waivers = Waivers([PILOT, SAMPLING])
    waivers.look(0)
    waivers.look(EXPIRES)
    assert waivers.look(0) == ()
    assert waivers.in_force == (SAMPLING,)


@given(st.lists(st.integers(EXPIRES - 20, EXPIRES + 20), min_size=1))
def test_whatever_the_clock_does_a_waiver_is_in_force_until_it_was_seen_to_expire(
    clock: list[int],
) -> None:
    waivers = Waivers([PILOT, SAMPLING])
    latest = 0
    for now in clock:
        before = dict(waivers.states)
        changed = waivers.look(now)
        latest = max(latest, now)
        assert waivers.in_force == tuple(
            waiver for waiver in (PILOT, SAMPLING) if latest < waiver.expires_unix_s
        )
        assert set(changed) == {w for w in before if before[w] is not waivers.states[w]}


def test_what_a_waiver_relaxes_is_named_guard_by_guard_and_route_by_route() -> None:
    assert [str(one) for one in PILOT.relaxes] == [
        "p/d input observing: pilot",
        "p/d range observing: pilot",
    ]
    assert [str(one) for one in SAMPLING.relaxes] == [
        "p/d integrity enforcing sampled 0.25: sampling",
        "q/d integrity enforcing sampled 0.25: sampling",
    ]


def test_waivers_together_relax_what_each_of_them_does_and_drills_their_own() -> None:
    waivers = Waivers([PILOT, SAMPLING])
    waivers.look(0)
    guards = waivers.guards(frozenset({Guard.TAIL}))
    assert not guards.on(Guard.TAIL)
    assert guards.mode(Guard.RANGE, P) is GuardMode.OBSERVING
    assert guards.mode(Guard.RANGE, Q) is GuardMode.ENFORCING
    assert guards.mode(Guard.INTEGRITY, P) is GuardMode.ENFORCING
    assert guards.checks(Q) == SAMPLING.checks


# Samples


@given(st.integers(1, 300), st.floats(0.001, 1.0), st.integers(0, 2**64 - 1))
def test_a_sample_has_the_last_page_one_more_and_the_share_of_the_others(
    pages: int, share: float, seed: int
) -> None:
    sample = Checks(CheckPolicy.SAMPLED, share).sample(pages, seed)
    others = pages - 1
    assert sample.digested[-1] == others
    assert len(sample.digested) - 1 == min(others, max(1, math.ceil(others * share)))
    assert sample.digested == tuple(sorted(set(sample.digested)))
    assert set(sample.digested) <= set(range(pages))
    assert sample.is_whole == (len(sample.digested) == pages)


def test_the_seed_draws_the_sample_and_every_page_is_drawn_by_some_seed() -> None:
    checks = Checks(CheckPolicy.SAMPLED, 0.1)
    assert checks.sample(20, 7) == checks.sample(20, 7)
    drawn = {page for seed in range(200) for page in checks.sample(20, seed).digested}
    assert drawn == set(range(20))


@pytest.mark.parametrize(
    ("checks", "digested"),
    [(FULL, (0, 1, 2)), (OFF, (0, 1, 2)), (Checks(CheckPolicy.GENERATION, 1.0), ())],
    ids=str,
)
def test_other_policies_digest_all_pages_or_none(checks: Checks, digested: tuple[int, ...]) -> None:
    assert checks.sample(3, 1).digested == digested


def test_the_weaker_of_two_checks_is_the_one_that_digests_less() -> None:
    half, tenth = (Checks(CheckPolicy.SAMPLED, share) for share in (0.5, 0.1))
    order = [FULL, half, tenth, Checks(CheckPolicy.GENERATION, 1.0), OFF]
    for at, one in enumerate(order):
        for other in order[at:]:
            assert weaker(one, other) == weaker(other, one) == other


# Coverage


def test_reads_of_one_route_are_its_own_and_add_up() -> None:
    reads = {(P, Cover.VERIFIED): 5, (P, Cover.OBSERVED): 2, (Q, Cover.VERIFIED): 9}
    counted = Coverage.counted(P, reads)
    assert (counted.pages_verified, counted.pages_observed, counted.pages_uncovered) == (5, 2, 0)
    assert counted.pages_read == 7
    assert sum(counted.by_cover.values()) == 7
    assert set(counted.by_cover) == set(Cover)
