"""One turn of a node: a broken invariant costs one request; broken books stop the node."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from kvairlock.core.effects import Effect, Record, Send, StopDecode
from kvairlock.core.ends import End
from kvairlock.core.errors import InvariantBroken, Reason, Stage
from kvairlock.core.events import Computed, DecodeFinished, EngineFailed, Event, Landed, Told
from kvairlock.core.memory.page import PageStage
from kvairlock.core.memory.pool import NOBODY, Hold, Pool
from kvairlock.core.messages import Beat, Cancel, Ended
from kvairlock.core.node import LedgerBroken, Node
from kvairlock.core.protocol.decode import DecodeNode
from kvairlock.core.terms import Instant, LandingPolicy, TransferId
from tests.core.ends import World
from tests.core.ends_parts import DECODE_LIMITS, GATEWAY, Request, Setup
from tests.core.ends_recovery import reception_of, recover
from tests.core.ends_stages import reach

COPY, SEAL, DIRECT = LandingPolicy.COPY, LandingPolicy.SEAL, LandingPolicy.DIRECT
BROKEN = InvariantBroken("test", "something that must hold does not")
SIGN = Send(GATEWAY.node, Beat())
"""Stands for all that a turn wants done before an invariant breaks in it."""


def break_once(world: World, method: str) -> None:
    """Let decode's machine do a step, want one more thing done, and then find itself broken."""
    machine = world.decode.machine
    step = getattr(machine, method)

    def broken(*subject: object) -> None:
        setattr(machine, method, step)
        step(*subject)
        machine.emit(SIGN)
        raise BROKEN

    setattr(machine, method, broken)


def records(effects: list[Effect], event: str) -> list[Record]:
    return [e for e in effects if isinstance(e, Record) and e.event == event]


def ends(effects: list[Effect]) -> list[Ended]:
    sent = [e.message for e in effects if isinstance(e, Send)]
    return [message for message in sent if isinstance(message, Ended)]


# A broken invariant


@pytest.mark.parametrize("stage", ["granted", "writing", "landing", "running", "stepping"])
def test_an_invariant_that_breaks_in_a_turn_ends_that_request(stage: str) -> None:
    world, request = reach(stage, COPY)
    world.manual.clear()
    other = world.ask("bob", "b", 6)
    break_once(world, "handle")
    effects = world.decode.node.handle(Computed(request.transfer, 0), world.now)
    assert effects[0] == SIGN, "what was wanted before is still wanted, and comes first"
    broken = records(effects, "invariant_broken")
    assert [(r.fields["invariant"], r.fields["detail"]) for r in broken] == [("test", str(BROKEN))]
    assert world.decode.counters["invariant_broken"] == 1
    (ended,) = ends(effects)
    assert (ended.transfer, ended.end) == (request.transfer, End.FAILED)
    assert ended.refusal is not None
    assert (ended.refusal.reason, ended.refusal.row.http_status) == (Reason.INVARIANT, 500)
    assert request.transfer not in world.decode.machine.receptions
    assert other.transfer in world.decode.machine.receptions


def test_the_pages_of_a_request_that_broke_an_invariant_are_quarantined() -> None:
    world, request = reach("stepping", COPY)
    pages = world.decode.running[request.transfer].tables[0]
    break_once(world, "handle")
    world.decode.tell(Computed(request.transfer, 0))
    pool = world.decode.machine.books.pool
    assert set(pool.stage[pages].tolist()) == {PageStage.QUARANTINED}
    world.decode.step_end()
    assert pool.pages_free == pool.pages


@pytest.mark.parametrize("stage", ["granted", "writing", "landing", "running", "stepping"])
def test_a_node_goes_on_after_an_invariant_broke(stage: str) -> None:
    world, request = reach(stage, COPY)
    break_once(world, "handle")
    world.decode.tell(Computed(request.transfer, 0))
    if world.decode.stepping:
        world.decode.step_end()
    world.manual.clear()
    world.work()
    other = world.ask("bob", "b", 6)
    world.complete(other)
    world.heal()
    assert world.refusal(request).reason is Reason.INVARIANT
    assert world.decode.counters["ended.completed"] == 1
    assert world.pages_free() == 16


def test_a_hold_that_is_not_there_ends_the_request_that_it_was_of() -> None:
    """No fault that a test made up: a landing ends whose hold somebody else let go."""
    world, request = reach("landing", COPY)
    lease = world.decode.machine.receptions[request.transfer].granted.lease
    lease.release(Hold.LANDING)
    effects = world.decode.node.handle(Landed(request.transfer, None), world.now)
    assert [r.fields["invariant"] for r in records(effects, "invariant_broken")] == ["holds"]
    assert [e.end for e in ends(effects)] == [End.FAILED]


def test_a_step_that_broke_for_one_request_keeps_no_page_of_another() -> None:
    world, request = reach("running", COPY)
    world.manual.clear()
    other = world.ask("bob", "b", 6)
    world.settle()
    world.decode.step_begin()
    lease = world.decode.machine.receptions[request.transfer].granted.lease
    lease.release(Hold.COMPUTE)
    world.decode.step_end()
    assert world.decode.counters["invariant_broken"] == 1
    for one in (request, other):
        world.cancel(one)
    assert not world.decode.machine.holding
    assert world.pages_free() == 16


def test_an_invariant_that_breaks_in_a_recovery_ends_it() -> None:
    world, request = recover("first_chunk", COPY)
    lease = world.decode.machine.receptions[request.transfer].granted.lease
    lease.release(Hold.FILL)
    world.decode.compute_end(request.transfer, 4)
    assert world.refusal(request).reason is Reason.INVARIANT
    assert not world.decode.computing
    world.run("scrub")
    assert world.pages_free() == 3


def test_what_a_turn_did_before_it_broke_stands() -> None:
    world, request = reach("running", COPY)
    break_once(world, "handle")
    # The step itself ends the request first: what comes later changes nothing.
    effects = world.decode.node.handle(Told(GATEWAY, Cancel(request.transfer)), world.now)
    assert [e.end for e in ends(effects)] == [End.CANCELLED]
    assert effects.index(StopDecode(request.transfer)) < effects.index(SIGN)
    assert records(effects, "invariant_broken")


def test_an_event_of_no_request_ends_none() -> None:
    world, request = reach("running", COPY)
    break_once(world, "handle")
    effects = world.decode.node.handle(DecodeFinished(TransferId("nobody/1")), world.now)
    assert len(records(effects, "invariant_broken")) == 1
    assert ends(effects) == []
    assert world.is_running(request)


def test_a_prefill_node_ends_the_prompt_that_broke_an_invariant() -> None:
    world, request = reach("computing", COPY)
    lease = world.prefill.machine.jobs[request.transfer].own
    lease.release(Hold.COMPUTE)
    world.prefill.compute_end(request.transfer)
    assert world.prefill.counters["invariant_broken"] == 1
    assert not world.prefill.machine.jobs
    world.deliver_all()
    refusal = world.refusal(request)
    assert (refusal.reason, refusal.stage) == (Reason.INVARIANT, Stage.PREFILL)
    world.manual.clear()
    world.complete(world.ask("bob", "b", 6))
    assert world.prefill.machine.books.pool.pages_free == 16


# The tick


def test_an_invariant_that_breaks_in_a_tick_is_recorded_and_the_node_goes_on() -> None:
    world, request = reach("running", COPY)
    break_once(world, "tick")
    effects = world.decode.node.tick(world.now)
    assert effects[0] == SIGN
    assert [r.fields["invariant"] for r in records(effects, "invariant_broken")] == ["test"]
    assert ends(effects) == [], "a tick is about no request"
    assert world.decode.node.tick(world.now) == []
    world.advance(DECODE_LIMITS.decode_ms)
    assert world.refusal(request).reason is Reason.TIMEOUT


def test_a_deadline_that_breaks_the_tick_again_and_again_stops_the_node() -> None:
    world, request = reach("running", COPY)
    reception_of(world, request).deadline = world.now

    def broken(_: Instant) -> None:
        raise BROKEN

    setattr(world.decode.machine, "tick", broken)  # noqa: B010 - a method is replaced
    assert raises(lambda: world.decode.node.tick(world.now)).invariant == "deadlines"
    left = world.decode.machine.books.take()
    assert [r.fields["invariant"] for r in records(left, "invariant_broken")] == ["test"]


# Broken books


def own_page(pool: Pool) -> int:
    return int(np.flatnonzero(pool.stage != PageStage.FREE)[0])


def free_an_owned_page(pool: Pool) -> None:
    pool.stage[own_page(pool)] = PageStage.FREE


def own_a_free_page(pool: Pool) -> None:
    pool.stage[pool.free_list[0]] = PageStage.READABLE


def give_a_free_page_a_lease(pool: Pool) -> None:
    pool.lease[pool.free_list[0]] = 1


def give_a_page_to_nobody(pool: Pool) -> None:
    pool.lease[own_page(pool)] = NOBODY


def turn_a_generation(pool: Pool) -> None:
    pool.generation[own_page(pool)] += 1


CORRUPTIONS: list[tuple[Callable[[Pool], None], str]] = [
    (free_an_owned_page, "I2 free list"),
    (own_a_free_page, "I2 free list"),
    (give_a_free_page_a_lease, "I2 free list"),
    (give_a_page_to_nobody, "owner"),
    (turn_a_generation, "I5 generation"),
]
CORRUPTED = pytest.mark.parametrize(
    ("corrupt", "invariant"), CORRUPTIONS, ids=[c.__name__ for c, _ in CORRUPTIONS]
)
NOBODYS = Computed(TransferId("nobody/1"), 0)
"""An event that changes nothing: what is broken was so before."""


def raises(turn: Callable[[], list[Effect]]) -> LedgerBroken:
    with pytest.raises(LedgerBroken) as caught:
        turn()
    return caught.value


@CORRUPTED
def test_books_that_do_not_add_up_stop_the_node(
    corrupt: Callable[[Pool], None], invariant: str
) -> None:
    world, _ = reach("running", COPY)
    corrupt(world.decode.machine.books.pool)
    broken = raises(lambda: world.decode.node.handle(NOBODYS, world.now))
    assert broken.invariant == invariant
    assert isinstance(broken.__cause__, InvariantBroken)


@CORRUPTED
def test_books_that_do_not_add_up_stop_the_node_at_its_tick(
    corrupt: Callable[[Pool], None], invariant: str
) -> None:
    world, _ = reach("running", COPY)
    corrupt(world.decode.machine.books.pool)
    assert raises(lambda: world.decode.node.tick(world.now)).invariant == invariant


def test_books_of_a_prefill_node_stop_it_as_well() -> None:
    world, _ = reach("computing", COPY)
    turn_a_generation(world.prefill.machine.books.pool)
    assert raises(lambda: world.prefill.node.tick(world.now)).invariant == "I5 generation"


def test_what_the_broken_turn_wanted_is_still_there_for_the_host_to_flush() -> None:
    world, _ = reach("running", COPY)
    turn_a_generation(world.decode.machine.books.pool)
    raises(lambda: world.decode.node.handle(NOBODYS, world.now))
    left = world.decode.machine.books.take()
    assert len(records(left, "invariant_broken")) == 1


@pytest.mark.parametrize("mend", [True, False], ids=["its own", "another's"])
def test_only_books_that_the_end_of_the_request_does_not_mend_stop_the_node(mend: bool) -> None:
    """A request whose page was lost to it ends; if the books add up then, all others go on."""
    world, request = reach("running", COPY)
    world.manual.clear()
    other = world.ask("bob", "b", 6)
    world.settle()
    pool = world.decode.machine.books.pool
    victim: Request = request if mend else other
    lease = world.decode.machine.receptions[victim.transfer].granted.lease
    lease.generations[0] += 1
    event: Event = EngineFailed(request.transfer, "it raised")
    if mend:
        effects = world.decode.node.handle(event, world.now)
        assert [e.transfer for e in ends(effects)] == [request.transfer]
        assert not pool.leases.get(lease.id, lease).live
    else:
        assert raises(lambda: world.decode.node.handle(event, world.now))


def test_a_node_without_work_has_no_deadline() -> None:
    world = World(Setup())
    machine: DecodeNode = world.decode.machine
    node = Node(machine)
    assert node.deadline() is None
    assert node.tick(Instant(10**18)) == []
