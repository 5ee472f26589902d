"""The random interleavings again, with a budget for prompts whose evidence is missing.

All that must hold without recovery must hold with it, and no more may be computed again than the
budget allows.
"""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from kvairlock.core.protocol.handoff import HandoffStage
from kvairlock.core.terms import LandingPolicy
from tests.core.test_handoff_properties import TENANTS, HandoffMachine

BUDGETS_TOKENS_PER_MIN = (0, 14, 1_000, 1_000)
"""Never; as much as the longest prompt; and as much as anybody can ask for."""
THEN = ("read", "the engine fails", "the client leaves")
MIN_NS = 60 * 1_000_000_000


class RecoveryMachine(HandoffMachine):
    """Both ends, and a decode node that may compute prompts itself."""

    @initialize(tokens_per_min=st.sampled_from(BUDGETS_TOKENS_PER_MIN))
    def give_a_budget(self, tokens_per_min: int) -> None:
        self.build(tokens_per_min)
        self.tokens_per_min, self.began_at = tokens_per_min, self.world.now

    @rule(
        data=st.data(),
        tenant=st.sampled_from(TENANTS),
        tokens=st.integers(1, 14),
        what=st.sampled_from(("flap", "die")),
        then=st.sampled_from(THEN),
    )
    def lose_who_is_waited_for(
        self, data: st.DataObject, tenant: str, tokens: int, what: str, then: str
    ) -> None:
        """One more is asked; then a link breaks or a process ends, and is back at once."""
        self.submit(tenant, tokens, max_tokens=2, choices=2, prefill="p")
        names = self._unconfirmed()
        if not names:
            return
        name = data.draw(st.sampled_from(names))
        if what == "die":
            self.world.kill(name)
            self.world.start_prefill(name)
        else:
            self.world.lose(name)
            self.world.join(name)
        if self.world.decode.computing:
            self.compute_at_decode(data, then)

    def _unconfirmed(self) -> list[str]:
        receptions = self.world.decode.machine.receptions.values()
        granted = [r.asked.prefill for r in receptions if r.stage is HandoffStage.GRANTED]
        return sorted(set(granted) & self.linked)

    @precondition(lambda self: self.world.decode.computing)
    @rule(data=st.data(), then=st.sampled_from(THEN))
    def compute_at_decode(self, data: st.DataObject, then: str) -> None:
        """A prompt is computed again to its end and read; or it is not, in the midst of a chunk."""
        decode = self.world.decode
        name = data.draw(st.sampled_from(sorted(decode.computing)))
        if not decode.computing[name].begun:
            decode.compute_begin(name)
        self.reached["ended in a chunk"] += then != "read" and name in decode.machine.receptions
        match then:
            case "read":
                decode.compute_end(name)
                self.step()
            case "the engine fails":
                decode.compute_fails(name)
            case "the client leaves":
                self.world.cancel(self.world.requests[name])

    @invariant()
    def no_more_is_computed_again_than_the_budget_allows(self) -> None:
        records = [r for r in self.world.decode.records if r.event == "request_recomputed"]
        tokens = sum(int(str(r.fields["tokens"])) for r in records)
        filled = self.tokens_per_min * (self.world.now - self.began_at) / MIN_NS
        assert tokens <= self.tokens_per_min + filled

    def _count_what_was_reached(self) -> None:
        super()._count_what_was_reached()
        self.reached["recomputed"] += self.world.decode.counters.get("recomputed", 0)
        here = [r for r in self.world.decode.records if r.event == "range_computed"]
        names = {r.owner.transfer for r in here if r.owner is not None}
        self.reached["read"] += sum(read.reader in names for read in self.world.reads)


class SealMachine(RecoveryMachine):
    policy = LandingPolicy.SEAL


class DirectMachine(RecoveryMachine):
    policy = LandingPolicy.DIRECT


LIMITS = settings(max_examples=100, stateful_step_count=50)
RARE = {"recomputed", "read", "ended in a chunk", "ended.completed", "ended.failed"}


@pytest.mark.parametrize("machine", [RecoveryMachine, SealMachine, DirectMachine])
def test_no_interleaving_with_recovery_leaks_and_all_comes_back(
    machine: type[RecoveryMachine],
) -> None:
    machine.reached = Counter()
    run_state_machine_as_test(machine, settings=LIMITS)
    missed = {name for name in RARE if not machine.reached[name]}
    assert not missed, f"never got there: {machine.reached}"
