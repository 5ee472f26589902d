"""Guards of pull that only observe: what the lender took back, what it listed, who asks it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kvairlock.core.checks import FULL, CheckPolicy, Checks
from kvairlock.core.ends import End
from kvairlock.core.errors import Reason, Stage
from kvairlock.core.guards import Guard, GuardMode, Relaxed
from kvairlock.core.messages import Lent, Release
from kvairlock.core.terms import NodeName, Route
from tests.core.ends_engine import Host
from tests.core.pull.pulls import ORDINARY, PullWorld
from tests.core.pull.pulls_stages import SMALL, begun, off
from tests.core.pull.test_pull_revocation import revoked

ROUTE = Route(NodeName("p"), NodeName("d"))


def observing(guard: Guard) -> tuple[Relaxed, ...]:
    return (Relaxed(ROUTE, guard, GuardMode.OBSERVING, FULL, "w"),)


def told(host: Host, event: str) -> list[dict[str, Any]]:
    return [dict(record.fields) for record in host.records if record.event == event]


def test_pages_taken_back_are_believed_where_generation_only_observes() -> None:
    """Integrity would find that half of them is the next tenant's: it is off."""
    setup = replace(SMALL, off_decode=off(Guard.INTEGRITY), relaxed=observing(Guard.GENERATION))
    world, request, other = revoked(setup)
    assert world.is_running(request)
    world.decode.step()
    assert world.leaks == {(request.transfer, other.transfer)}
    (seen,) = told(world.decode, "would_refuse")
    assert (seen["guard"], seen["reason"], seen["stage"], seen["route"]) == (
        Guard.GENERATION,
        Reason.GENERATION,
        Stage.VERDICT,
        "p/d",
    )
    (verdict,) = told(world.decode, "verdict")
    assert verdict["observed"] == ("generation",)


def test_a_page_list_that_does_not_fit_is_read_where_page_index_only_observes() -> None:
    setup = replace(ORDINARY, off_decode=off(Guard.INTEGRITY), relaxed=observing(Guard.PAGE_INDEX))
    world = PullWorld(setup)

    def twice(lent: Lent) -> list[Lent]:
        return [replace(lent, pages=lent.pages[:1] * len(lent.pages))]

    world.tamper[Lent] = twice
    request = world.ask("alice", "a", 8)
    world.settle()
    assert world.is_running(request)
    (seen,) = told(world.decode, "would_refuse")
    assert (seen["guard"], seen["reason"]) == (Guard.PAGE_INDEX, Reason.PAGE_INDEX)
    (verdict,) = told(world.decode, "verdict")
    assert verdict["observed"] == ("page_index",)


def test_a_stranger_may_give_a_loan_back_where_claimant_only_observes() -> None:
    world, request = begun(replace(ORDINARY, relaxed=observing(Guard.CLAIMANT)))
    stranger = Release(request.transfer, "another claim")
    world.repeat(stranger, world.decode.peer, world.lender.peer.node)
    assert request.transfer not in world.lender.machine.loans
    (seen,) = told(world.lender, "would_refuse")
    assert (seen["guard"], seen["reason"]) == (Guard.CLAIMANT, Reason.REPLAYED)


def test_only_the_sample_of_what_was_read_is_digested() -> None:
    checks = Checks(CheckPolicy.SAMPLED, 0.25)
    relaxed = (Relaxed(ROUTE, Guard.INTEGRITY, GuardMode.ENFORCING, checks, "w"),)
    world = PullWorld(replace(ORDINARY, relaxed=relaxed))
    request = world.ask("alice", "a", 24)
    world.deliver_all()
    (reading,) = world.decode.reading
    sample = world.decode.machine.receptions[request.transfer].sample
    assert reading.effect.digested.tolist() == [
        reading.effect.target[page] for page in sample.digested
    ]
    assert len(sample.digested) < sample.pages == 6
    world.decode.read_all(request.transfer)
    world.settle()
    world.complete(request)
    assert world.ended(request).end is End.COMPLETED
    (verdict,) = told(world.decode, "verdict")
    assert len(verdict["verified"]) == len(sample.digested)
