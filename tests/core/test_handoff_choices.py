"""Several choices share the full pages of their prompt and own their last one."""

from __future__ import annotations

import pytest

from kvairlock.core.errors import Reason
from kvairlock.core.terms import (
    LandingPolicy,
)
from tests.core.ends import World
from tests.core.ends_parts import (
    Setup,
)

COPY, SEAL, DIRECT = LandingPolicy.COPY, LandingPolicy.SEAL, LandingPolicy.DIRECT


@pytest.mark.parametrize("policy", LandingPolicy)
@pytest.mark.parametrize("prompt", [1, 3, 4, 5, 8, 9])
def test_choices_share_full_pages_and_own_their_last(prompt: int, policy: LandingPolicy) -> None:
    world = World(Setup(policy=policy, decode_pages=32))
    request = world.ask("alice", "a", prompt, max_tokens=6, choices=3)
    world.settle()
    tables = [table.tolist() for table in world.decode.running[request.transfer].tables]
    shared = (prompt - 1) // 4
    length = -(-(prompt + 6) // 4)
    assert [len(table) for table in tables] == [length] * 3
    assert all(table[:shared] == tables[0][:shared] for table in tables)
    own = [page for table in tables for page in table[shared:]]
    assert len(set(own)) == len(own) == 3 * (length - shared)
    for _ in range(6):
        world.decode.step()
    slots = [world.decode.generated_slots(request.transfer, c) for c in range(3)]
    assert slots == [[100] * 6, [101] * 6, [102] * 6]
    assert not world.corruptions
    world.decode.finish(request)
    world.settle()
    world.assert_baseline()


def test_choices_that_do_not_fit_are_refused_in_whole_pages() -> None:
    world = World(Setup(decode_pages=5))
    request = world.ask("alice", "a", 8, max_tokens=4, choices=3)
    refusal = world.refusal(request)
    assert (refusal.reason, refusal.asked, refusal.limit) == (Reason.CONTEXT_LENGTH, 28, 20)
    world.assert_baseline()
