"""The random interleavings again, on nodes that are given pages and lose them meanwhile.

All that must hold on nodes of one size must hold here; and after each step nobody waits for pages
that the node will never have, nothing is free that is to be withdrawn, and who waits has a deadline
that is still to come. At the end all pages are free, kept as prefixes, or withdrawn.
"""

from __future__ import annotations

from collections import Counter
from typing import ClassVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from kvairlock.core.promise.capacity import Demand
from kvairlock.core.protocol.decode.state import DecodeState
from kvairlock.core.protocol.prefill.state import PrefillState
from kvairlock.core.terms import NS_PER_MS, LandingPolicy, TransferId
from tests.core.ends import World
from tests.core.ends_engine import PromptHost
from tests.core.ends_parts import PAGE_TOKENS
from tests.core.pull.test_pull_properties import PullMachine
from tests.core.resizes import fits, resize
from tests.core.test_handoff_properties import HandoffMachine


def needs_of(host: PromptHost) -> dict[TransferId, int]:
    """How many pages each request needs that waits for some, by its name."""
    machine = host.node.machine
    if isinstance(machine, PrefillState):
        return {n: Demand(machine.jobs[n].stop, 0).prompt_pages(PAGE_TOKENS) for n in machine.queue}
    waiting = [r for r in machine.receptions.values() if r.name in machine.queue]
    return {r.name: r.demand.decode_pages(PAGE_TOKENS) for r in waiting}


def is_open(host: PromptHost, name: TransferId) -> bool:
    """Whether a node still works on a request, or has it wait."""
    machine = host.node.machine
    return name in (machine.jobs if isinstance(machine, PrefillState) else machine.receptions)


class Resizing(RuleBasedStateMachine):
    """What is added to both kinds of machines: an operator, and what must hold."""

    reached: ClassVar[Counter[str]]

    @property
    def hosts(self) -> tuple[PromptHost, ...]:
        world: World = self.world  # type: ignore[attr-defined]  # of the other base
        return world.hosts

    @rule(at=st.integers(0, 2), pages=st.integers(0, 10))
    def resize(self, at: int, pages: int) -> None:
        self._resize(self.hosts[at], pages)

    @precondition(lambda self: any(map(needs_of, self.hosts)))
    @rule(data=st.data(), less=st.integers(1, 2))
    def take_what_somebody_waits_for(self, data: st.DataObject, less: int) -> None:
        """What remains is one page less than somebody needs who waits, or two."""
        crowded = [number for number, host in enumerate(self.hosts) if needs_of(host)]
        host = self.hosts[data.draw(st.sampled_from(crowded))]
        pages = data.draw(st.sampled_from(sorted(needs_of(host).values())))
        self._resize(host, max(0, pages - less))

    def _resize(self, host: PromptHost, pages: int) -> None:
        before = needs_of(host)
        resize(host, min(pages, host.node.machine.books.pool.pages))
        gone = [name for name in before if not is_open(host, name)]
        self.reached["refused while it waited"] += len(gone)
        self.reached["withdrawn later"] += not fits(host)

    @rule(at=st.integers(0, 2))
    def give_all_back(self, at: int) -> None:
        resize(self.hosts[at], self.hosts[at].node.machine.books.pool.pages)

    @invariant()
    def nobody_waits_for_pages_that_never_come(self) -> None:
        for host in self.hosts:
            pages = host.node.machine.books.report.pages
            assert all(needed <= pages for needed in needs_of(host).values())

    @invariant()
    def who_waits_has_a_deadline_that_is_to_come(self) -> None:
        host = self.hosts[0]
        decode, now = host.node.machine, host.world.now
        assert isinstance(decode, DecodeState)
        latest = now + decode.limits.queue_ms * NS_PER_MS
        assert all(now < decode.receptions[name].deadline <= latest for name in needs_of(host))

    @invariant()
    def reports_are_what_the_pool_is_to_have(self) -> None:
        for host in self.hosts:
            books = host.node.machine.books
            surplus = books.pool.pages - books.pool.pages_withdrawn - books.report.pages
            assert surplus == books.pool.pages_surplus >= 0
            assert not (books.pool.pages_surplus and books.pool.pages_free)

    def teardown(self) -> None:
        super().teardown()
        for host in self.hosts:
            self._all_is_accounted_for(host)

    def _all_is_accounted_for(self, host: PromptHost) -> None:
        machine, pool = host.node.machine, host.node.machine.books.pool
        kept = machine.prefixes.pages if isinstance(machine, PrefillState) else 0
        assert pool.pages_free + kept == machine.books.report.pages
        assert pool.pages_withdrawn == pool.pages - machine.books.report.pages


class PushResizing(Resizing, HandoffMachine):
    """Push, landing by copy."""


class DirectResizing(PushResizing):
    policy = LandingPolicy.DIRECT


class RecoveringResizing(PushResizing):
    """With a budget, so that some wait for pages to compute their prompts in."""

    def __init__(self) -> None:
        super().__init__()
        self.build(recompute_tokens_per_min=1_000)


class PullResizing(Resizing, PullMachine):
    """Pull, with a reader that asks afterwards."""


LIMITS = settings(max_examples=140, stateful_step_count=50)
RARE = {"refused while it waited", "withdrawn later", "ended.completed"}


@pytest.mark.parametrize(
    "machine", [PushResizing, DirectResizing, RecoveringResizing, PullResizing]
)
def test_no_resize_leaks_or_leaves_anybody_waiting(machine: type[Resizing]) -> None:
    machine.reached = Counter()
    run_state_machine_as_test(machine, settings=LIMITS)
    missed = {name for name in RARE if not machine.reached[name]}
    assert not missed, f"never got there: {machine.reached}"
