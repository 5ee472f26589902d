"""A node judges what is submitted by the ticket, also behind an honest gateway."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvairlock.core.errors import Reason, Refusal, Stage
from kvairlock.core.terms import (
    LandingPolicy,
)
from tests.core.ends import World
from tests.core.ends_parts import (
    UNIX_S,
)

COPY, SEAL, DIRECT = LandingPolicy.COPY, LandingPolicy.SEAL, LandingPolicy.DIRECT


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ({"tenant": "bob"}, Reason.TENANT),
        ({"digest": b"other"}, Reason.INPUT),
        ({"prompt_tokens": 7}, Reason.INPUT),
        ({"ticket": Refusal(Reason.FORGED, Stage.DECODE_ADMISSION, "no")}, Reason.FORGED),
        ({"prefill": "nobody"}, Reason.PEER_LOST),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else str(value),
)
def test_a_submit_that_its_ticket_does_not_vouch_for(how: dict[str, str], reason: Reason) -> None:
    world = World()
    request = world.make("alice", "a", 6)
    world.submit(request, **how)  # type: ignore[arg-type]
    refusal = world.refusal(request)
    assert (refusal.reason, refusal.stage) == (reason, Stage.DECODE_ADMISSION)
    assert world.decode.counters[f"refused.decode_admission.{reason}"] == 1
    assert not world.files
    world.assert_baseline()


@pytest.mark.parametrize(("late_s", "refused"), [(-1, False), (0, False), (1, True), (3600, True)])
def test_a_ticket_is_worth_nothing_after_its_second(late_s: int, refused: bool) -> None:
    world = World()
    request = world.make("alice", "a", 6)
    world.submit(request, ticket=replace(request.ticket, expires_unix_s=world.unix_s - late_s))
    world.settle()
    if refused:
        assert world.refusal(request).reason is Reason.EXPIRED
    else:
        world.complete(request)
    assert world.unix_s >= UNIX_S
    world.assert_baseline()


@pytest.mark.parametrize(
    "fields",
    [{"max_tokens": 1}, {"choices": 1}],
    ids=["more tokens", "more choices"],
)
def test_a_submit_for_more_than_its_ticket_grants_is_refused(fields: dict[str, int]) -> None:
    world = World()
    request = world.make("alice", "a", 6, max_tokens=2, choices=2)
    world.submit(request, ticket=replace(request.ticket, **fields))  # type: ignore[arg-type]
    world.settle()
    assert not world.is_running(request)
    assert world.refusal(request).stage is Stage.DECODE_ADMISSION


@pytest.mark.parametrize(
    ("prompt", "max_tokens", "choices"),
    [(0, 2, 1), (6, 0, 1), (6, -1, 1), (6, -6, 1), (6, -99, 1), (6, 2, 0), (6, 2, -1), (6, 2, -9)],
)
def test_a_submit_that_makes_no_sense_is_refused(
    prompt: int, max_tokens: int, choices: int
) -> None:
    """Also when it came through an honest gateway with a valid ticket: two layers."""
    world = World()
    request = world.make("alice", "a", prompt, max_tokens=max_tokens, choices=choices)
    world.submit(request)
    world.settle()
    assert world.refusal(request).reason is Reason.MALFORMED
    assert not world.files
    world.assert_baseline()
