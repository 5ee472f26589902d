"""Random interleavings of two tenants over pull: never a leak, and at the end all comes back.

Every rule is one small step that a real stack can take next: a message arrives, is lost, comes
twice or overtakes another; a page is read; a client leaves; a link breaks; a lender restarts; time
passes. Guards are on. A read copies what the lender's memory holds at that moment, so that a page
which was given away during a read is really another tenant's. Memory and deadlines are small, so
that this happens.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any, ClassVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from kvairlock.core.errors import Reason
from kvairlock.core.memory.page import PageStage
from kvairlock.core.messages import Ended
from kvairlock.core.protocol.pull.loans import LoanStage
from kvairlock.core.terms import NodeName, Reader
from tests.core.ends_parts import Parcel, Request
from tests.core.pull.pulls import BORROWER_LIMITS, LENDER_LIMITS, PullSetup, PullWorld
from tests.core.sound import SoundMachine

TENANTS, LENDERS = ("alice", "bob"), ("p", "q")
BEGINNING = tuple(range(200, 208))
GONE = {PageStage.FREE, PageStage.FENCED, PageStage.SCRUBBED}
SETUP = PullSetup(
    decode_pages=10,
    prefill_pages=5,
    tenant_pages=4,
    prefills=LENDERS,
    borrower_limits=replace(BORROWER_LIMITS, recompute_tokens_per_min=10),
    lender_limits=replace(LENDER_LIMITS, verdict_ms=400, offer_ms=1_500),
)


class PullMachine(SoundMachine):
    """Both ends, and a client, a network and a scheduler that do whatever they can."""

    reader = Reader.VALIDATING
    reached: ClassVar[Counter[str]] = Counter()

    def __init__(self) -> None:
        super().__init__()
        self.world: PullWorld = PullWorld(replace(SETUP, reader=self.reader))
        self.world.manual |= {"digest", "scrub"}
        self.at: dict[str, str] = {}
        """The lender of each request."""
        self.referred: set[str] = set()
        self.passed: list[tuple[Parcel, NodeName]] = []
        self.linked = set(LENDERS)

    # Clients

    @rule(
        tenant=st.sampled_from(TENANTS),
        tokens=st.integers(1, 14),
        choices=st.integers(1, 2),
        lender=st.sampled_from(LENDERS),
    )
    def order(self, tenant: str, tokens: int, choices: int, lender: str) -> None:
        self._order(tenant, tokens, lender, choices=choices)

    def _order(self, tenant: str, tokens: Any, lender: str, **how: Any) -> Request:
        request = self.world.make(tenant, f"r{len(self.at)}", tokens, **how)
        self.at[request.transfer] = lender
        return self.world.order(request, lender=lender)

    @rule(
        tenant=st.sampled_from(TENANTS),
        tokens=st.integers(1, 14),
        lender=st.sampled_from(LENDERS),
    )
    def ask(self, tenant: str, tokens: int, lender: str) -> None:
        """A request whose prompt is computed at once, if there is room: its pages are claimed."""
        self._ask(tenant, tokens, lender)

    @rule(tenant=st.sampled_from(TENANTS), tokens=st.integers(5, 10))
    def ask_with_a_known_beginning(self, tenant: str, tokens: int) -> None:
        """A request that is served to its end, if nothing is in its way."""
        request = self._ask(tenant, (BEGINNING * 2)[:tokens], "p", scope=tenant)
        self.world.decode.read_all(request.transfer)
        self.deliver_all()
        self.step()
        if request.transfer in self.world.decode.running and not self.world.decode.stepping:
            self.world.decode.finish(request)

    def _ask(self, tenant: str, tokens: Any, lender: str, **how: Any) -> Request:
        request = self._order(tenant, tokens, lender, **how)
        self.go_on()
        if request.transfer in self.world.offers:
            self.referred.add(request.transfer)
            self.world.refer(request, prefill=lender)
            self.deliver_all()
        return request

    @precondition(lambda self: self._offered())
    @rule(data=st.data())
    def refer(self, data: st.DataObject) -> None:
        """Also again, and also when the offer has long expired."""
        request = data.draw(st.sampled_from(self._offered()))
        if request.transfer in self.referred and not self._is_open(request):
            return  # A gateway need not be told its end twice.
        self.referred.add(request.transfer)
        self.world.refer(request, prefill=self.at[request.transfer])

    def _offered(self) -> list[Request]:
        return [self.world.requests[name] for name in self.world.offers]

    def _is_open(self, request: Request) -> bool:
        return request.transfer in self.world.decode.machine.receptions

    @precondition(lambda self: self._offered())
    @rule(data=st.data(), tries=st.sampled_from((False, False, True)))
    def steal(self, data: st.DataObject, tries: bool) -> None:
        """The other tenant presents the transfer ticket of another as that of its own request."""
        if not tries:
            return
        victim = data.draw(st.sampled_from(self._offered()))
        tenant = TENANTS[victim.tenant == TENANTS[0]]
        thief = self.world.make(tenant, f"t{len(self.world.requests)}", len(victim.tokens))
        offer, prefill = self.world.offers[victim.transfer], self.at[victim.transfer]
        self.world.refer(thief, offer=offer, prefill=prefill, nonce="thief")
        assert self.world.refusal(thief).reason is Reason.IDENTITY

    @precondition(lambda self: self.referred)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.referred)))
        self.world.cancel(next(r for r in self._offered() if r.transfer == name))

    # Network

    def _busy(self) -> list[tuple[NodeName, NodeName]]:
        return sorted(ends for ends, wire in self.world.wires.items() if wire)

    @precondition(lambda self: self._busy())
    @rule(data=st.data(), fate=st.sampled_from(("comes", "comes", "overtakes", "is lost")))
    def deliver(self, data: st.DataObject, fate: str) -> None:
        ends = data.draw(st.sampled_from(self._busy()))
        wire = self.world.wires[ends]
        if fate == "is lost":
            wire.popleft()
            return
        if fate == "overtakes":
            wire.appendleft(wire.pop())
        self._deliver(ends)

    def _deliver(self, ends: tuple[NodeName, NodeName]) -> None:
        self.passed.append((self.world.wires[ends][0], ends[1]))
        self.world.deliver(*ends)

    @rule()
    def deliver_all(self) -> None:
        while busy := self._busy():
            self._deliver(busy[0])

    @precondition(lambda self: self.passed)
    @rule(data=st.data())
    def repeat(self, data: st.DataObject) -> None:
        """A message that has arrived comes once more, however late."""
        parcel, to = data.draw(st.sampled_from(self.passed[-8:]))
        host = next(h for h in self.world.hosts if h.peer.node == to)
        host.hear(parcel)

    @rule(name=st.sampled_from(LENDERS), what=st.sampled_from(("lose", "lose", "die")))
    def trouble(self, name: str, what: str) -> None:
        """A link breaks or comes back; or a process ends and starts again, as another life."""
        if what == "die":
            self.world.kill(name)
            self.world.start_prefill(name)
            self.linked.add(name)
        elif name in self.linked:
            self.linked.discard(name)
            self.world.lose(name)
        else:
            self.linked.add(name)
            self.world.join(name)

    # Engines, reads and threads

    @precondition(lambda self: self.world.jobs)
    @rule(data=st.data(), tokens=st.integers(1, 14))
    def compute(self, data: st.DataObject, tokens: int) -> None:
        host, name = data.draw(st.sampled_from(self.world.jobs))
        if host.computing[name].begun:
            host.compute_end(name, tokens)
        else:
            host.compute_begin(name)

    @rule()
    def go_on(self) -> None:
        """A stretch in which nothing special happens: prompts are computed and offered."""
        self.world.compute_all()
        self.world.run("digest")
        self.world.run("scrub")

    @precondition(lambda self: self.world.decode.reading)
    @rule(data=st.data(), fails=st.sampled_from((False, False, False, True)))
    def read_a_page(self, data: st.DataObject, fails: bool) -> None:
        reading = data.draw(st.sampled_from(self.world.decode.reading))
        name = reading.effect.transfer
        self.reached["late page"] += name not in self.world.decode.machine.receptions
        if fails:
            self.world.decode.read_fails(name)
        else:
            self.world.decode.read_piece(name)

    @rule(late_ms=st.sampled_from((0, 0, 400)), step=st.booleans())
    def serve(self, late_ms: int, step: bool) -> None:
        """Reads end, perhaps after a stretch in which lenders went on, and their answers come."""
        if late_ms:
            self.world.advance(late_ms)
            self.go_on()
        self.world.read_all()
        self.deliver_all()
        if step:
            self.step()

    @rule(kind=st.sampled_from(("digest", "scrub")))
    def work(self, kind: str) -> None:
        self.world.run(kind)

    @rule()
    def step(self) -> None:
        if self.world.decode.stepping:
            self.world.decode.step_end()
        elif self.world.decode.running:
            self.world.decode.step_begin()

    @precondition(lambda self: self.world.decode.running and not self.world.decode.stepping)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.world.decode.running)))
        self.world.decode.finish(self.world.requests[name])

    @rule(ms=st.sampled_from((1, 10, 100, 200, 400)))
    def advance(self, ms: int) -> None:
        self.world.advance(ms)

    # What must hold after each step

    @invariant()
    def pages_that_are_read_into_are_not_free(self) -> None:
        stage = self.world.decode.machine.books.pool.stage
        for reading in self.world.decode.reading:
            assert not set(stage[reading.effect.target].tolist()) & GONE

    @invariant()
    def pages_of_a_reader_that_will_not_ask_are_not_free(self) -> None:
        if self.reader is Reader.VALIDATING:
            return
        for reading in self.world.decode.reading:
            if not reading.source.dead:
                stage = reading.source.machine.books.pool.stage
                assert not set(stage[reading.effect.source.pages].tolist()) & GONE

    @invariant()
    def no_loan_is_given_back_while_it_is_read(self) -> None:
        loans = self.world.decode.machine.loans
        for reading in self.world.decode.reading:
            assert loans[reading.effect.transfer].stage is LoanStage.READING

    def teardown(self) -> None:
        """Heal: links up, reads and steps to their ends; then nothing may be left."""
        for name in LENDERS:
            if name not in self.linked:
                self.world.join(name)
        self.world.heal()
        assert not self.world.leaks
        assert not self.world.corruptions
        self.world.assert_baseline()
        ended = {a.transfer for a in self.world.answers if isinstance(a, Ended)}
        assert self.referred <= ended, "everybody who was referred is told an end"
        self._count_what_was_reached()

    def _count_what_was_reached(self) -> None:
        borrower, lenders = self.world.decode, self.world.lenders.values()
        for name, count in borrower.counters.items():
            self.reached[name] += count
        for host in lenders:
            for fence, count in host.machine.books.drain.fences.items():
                self.reached[f"fence.{fence}"] += count
            self.reached["prefix"] += sum(r.event == "prefix_reused" for r in host.records)
        self.reached["reads"] += len(self.world.reads)


class TrustingMachine(PullMachine):
    reader = Reader.TRUSTING


LIMITS = settings(max_examples=250, stateful_step_count=40)
RARE = {
    "ended.completed",
    "ended.cancelled",
    "ended.failed",
    "verdict.admitted",
    "recomputed",
    "late page",
    "prefix",
    "reads",
    "fence.acknowledged",
}
ONLY = {
    Reader.VALIDATING: {"verdict.generation", "fence.revoked"},
    Reader.TRUSTING: set[str](),
}


@pytest.mark.parametrize("machine", [PullMachine, TrustingMachine])
def test_no_interleaving_leaks_and_all_comes_back(machine: type[PullMachine]) -> None:
    machine.reached = Counter()
    run_state_machine_as_test(machine, settings=LIMITS)
    missed = {name for name in RARE | ONLY[machine.reader] if not machine.reached[name]}
    assert not missed, f"never got there: {machine.reached}"
