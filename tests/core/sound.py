"""What must hold after each step of any random schedule, in push and in pull."""

from __future__ import annotations

from hypothesis.stateful import RuleBasedStateMachine, invariant

from kvairlock.core.messages import Ended
from tests.core.ends import World


class SoundMachine(RuleBasedStateMachine):
    """A machine whose rules act on `world`."""

    world: World

    @invariant()
    def nobody_reads_what_is_not_its_own(self) -> None:
        assert not self.world.leaks
        assert not self.world.corruptions

    @invariant()
    def no_invariant_broke(self) -> None:
        for host in self.world.hosts:
            assert host.counters.get("invariant_broken", 0) == 0, host.records[-3:]
            assert not host.faults

    @invariant()
    def nobody_is_told_two_ends(self) -> None:
        ends = [a.transfer for a in self.world.answers if isinstance(a, Ended)]
        assert len(ends) == len(set(ends))

    @invariant()
    def free_pages_are_zero(self) -> None:
        for host in self.world.hosts:
            free = host.node.machine.books.pool.free_list
            assert not host.memory[free].any()
