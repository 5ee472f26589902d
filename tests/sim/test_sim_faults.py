"""Each fault is a move: what it does, what it costs, and that the world reaches its end."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvairlock.core.guards import Guard
from kvairlock.core.protocol.prefill import ending
from kvairlock.core.terms import LandingPolicy
from kvairlock.sim.setup import DECODE_LIMITS, Ask, Direction, Flaw, Setup, Theft
from kvairlock.sim.sometimes import Rare
from kvairlock.sim.state import Kind, Link, Progress
from tests.sim.stories import ALICE, BOB, DECODE, PREFILL, TO_DECODE, TO_PREFILL, TWO, Story, one

RECOVERS = replace(DECODE_LIMITS, recompute_tokens_per_min=64)


def submitted(setup: Setup, **budget: int) -> Story:
    story = Story(setup, **budget)
    story.does(Kind.SUBMIT)
    return story


def test_a_lost_message_costs_its_request_and_nothing_else() -> None:
    story = submitted(one(), drops=1)
    story.does(Kind.DROP, TO_PREFILL)
    assert story.state.left.drops == 0
    assert not story.can(Kind.DROP)
    story.finish()
    assert story.ended == [("a/1", "timed_out", "timeout")]
    assert Rare.FENCED_BY_SEAL in story.sometimes
    assert story.violations == []


def test_a_message_that_comes_twice_changes_nothing() -> None:
    story = submitted(one(), duplicates=1)
    story.does(Kind.REPEAT, TO_PREFILL)
    assert len(story.state.wires[TO_PREFILL]) == 2
    story.finish()
    assert story.ended == [("a/1", "completed", "")]
    assert Rare.GRANT_REPEATED in story.sometimes
    assert story.violations == []


def test_a_grant_that_comes_again_after_its_write_gives_its_window_back() -> None:
    story = submitted(one(), duplicates=1)
    story.does(Kind.REPEAT, TO_PREFILL)
    story.does(Kind.DELIVER, TO_PREFILL)
    for work in ("chunk begins", "chunk ends", "digest", "page lands", "write ends"):
        story.does(Kind.WORK, PREFILL, work)
    story.does(Kind.DELIVER, TO_PREFILL)
    story.finish()
    assert story.ended == [("a/1", "completed", "")]
    assert story.violations == []


def test_a_message_can_be_overtaken() -> None:
    story = submitted(one(), reorders=1)
    story.until(lambda story: len(story.state.wires[TO_DECODE]) == 2)
    before = story.state.wires[TO_DECODE]
    story.does(Kind.REORDER, TO_DECODE)
    assert story.state.wires[TO_DECODE] == before[::-1]
    story.finish()
    assert story.violations == []


def test_a_suspended_node_does_nothing_but_what_its_network_card_does() -> None:
    story = submitted(one(), suspensions=1)
    story.until(lambda story: story.works("page lands"))
    story.does(Kind.SUSPEND, PREFILL)
    assert [move.work.kind for move in story.moves if move.work] == ["page lands"]
    story.does(Kind.WORK, PREFILL, "page lands")
    assert not story.works("write ends")
    story.does(Kind.WAKE, PREFILL)
    story.finish()
    assert story.violations == []


def test_who_wakes_up_handles_deadlines_before_messages() -> None:
    story = submitted(one(), suspensions=1)
    story.until(lambda story: bool(story.state.wires[TO_DECODE]))
    story.does(Kind.SUSPEND, DECODE)
    assert not story.can(Kind.DELIVER, TO_DECODE)
    story.does(Kind.WAKE, DECODE)
    assert story.ended == [("a/1", "timed_out", "timeout")]
    assert Rare.RESUMED_LATE in story.sometimes
    story.finish()
    assert story.violations == []


def test_a_prefill_process_that_ends_takes_its_windows_with_it() -> None:
    story = submitted(one(), crashes=1)
    story.until(lambda story: story.works("page lands"))
    story.does(Kind.CRASH, PREFILL)
    assert story.state.links == (Link.PREFILL_GONE,)
    story.does(Kind.NOTICE)
    assert story.ended == [("a/1", "failed", "peer_lost")]
    assert {Rare.FENCED_BY_PROCESS_END, Rare.PEER_LOST_IN_TRANSFER} <= story.sometimes
    story.does(Kind.JOIN)
    story.finish()
    assert story.violations == []


def test_a_decode_process_that_ends_ends_its_requests_and_a_retry_is_served() -> None:
    story = submitted(Setup((ALICE, replace(ALICE, attempt=2))), crashes=1)
    story.does(Kind.CRASH, DECODE)
    assert story.state.progress[0] is Progress.ENDED
    story.does(Kind.NOTICE)
    story.does(Kind.JOIN)
    story.finish()
    assert story.ended == [("a/2", "completed", "")]
    assert story.violations == []


def test_a_message_of_an_ended_life_is_refused_by_its_frame() -> None:
    story = submitted(one(), crashes=1)
    story.until(lambda story: len(story.state.wires[TO_DECODE]) == 2)
    story.does(Kind.CRASH, PREFILL)
    story.does(Kind.NOTICE)
    story.does(Kind.JOIN)
    story.does(Kind.DELIVER, TO_DECODE)
    assert Rare.OLD_INCARNATION not in story.sometimes
    story.does(Kind.DELIVER, TO_DECODE)
    assert Rare.OLD_INCARNATION in story.sometimes
    assert story.ended == [("a/1", "failed", "peer_lost")]


def test_a_link_that_breaks_is_noticed_by_each_side_in_its_own_time() -> None:
    story = submitted(one(), cuts=1)
    story.does(Kind.DELIVER, TO_PREFILL)
    story.does(Kind.CUT)
    assert story.can(Kind.NOTICE, TO_DECODE)
    assert story.can(Kind.NOTICE, TO_PREFILL)
    story.does(Kind.NOTICE, TO_PREFILL)
    assert story.state.links == (Link.PREFILL_KNOWS,)
    assert not story.can(Kind.JOIN)
    story.does(Kind.NOTICE, TO_DECODE)
    assert story.ended == [("a/1", "failed", "peer_lost")]
    story.does(Kind.JOIN)
    story.finish()
    assert story.violations == []


def test_an_early_deadline_costs_a_timeout_and_a_late_one_nothing() -> None:
    story = submitted(one(), timeouts=1)
    assert story.can(Kind.EXPIRE, DECODE)
    assert not story.can(Kind.PASS)
    story.does(Kind.EXPIRE, DECODE)
    assert story.state.left.timeouts == 0
    story.finish()
    assert story.ended == [("a/1", "timed_out", "timeout")]
    assert story.violations == []


def test_a_client_that_leaves_gets_one_end() -> None:
    story = submitted(TWO, cancels=1)
    story.does(Kind.CANCEL)
    assert story.state.progress[0] is Progress.LEFT_ENDED
    story.finish()
    assert story.ended == [("a/1", "cancelled", "cancelled"), ("b/1", "completed", "")]
    assert story.violations == []


def test_without_the_key_a_message_is_nothing_and_with_the_guard_off_it_is_believed() -> None:
    for off, believed in ((frozenset[Guard](), False), (frozenset({Guard.FRAME}), True)):
        story = submitted(one(guards_off=off), forgeries=1)
        story.does(Kind.FORGE, DECODE)
        assert story.works("landing") is believed


@pytest.mark.parametrize("policy", [LandingPolicy.COPY, LandingPolicy.SEAL])
def test_a_copy_of_a_write_that_lands_late_reaches_nobody(policy: LandingPolicy) -> None:
    story = submitted(one(copies=True, policy=policy), copies=1)
    story.until(lambda story: story.works("step begins"))
    story.does(Kind.COPY, PREFILL)
    assert Rare.LATE_WRITE_AFTER_SUCCESS in story.sometimes
    story.finish()
    assert story.ended == [("a/1", "completed", "")]
    assert story.violations == []


REFUSED = {
    Flaw.REJECTED: "peer_rejected",
    Flaw.OTHERS_REQUEST: "identity",
    Flaw.OTHERS_INPUT: "computed_input",
    Flaw.LAYOUT: "model_layout",
    Flaw.SHORT: "range",
    Flaw.ORDER: "page_index",
    Flaw.TORN: "integrity",
    Flaw.EARLY: "integrity",
}


@pytest.mark.parametrize(("flaw", "reason"), REFUSED.items(), ids=str)
def test_what_prefill_does_wrong_is_refused_for_its_own_reason(flaw: Flaw, reason: str) -> None:
    story = Story(Setup((replace(ALICE, tokens=4, flaw=flaw), BOB)))
    story.until(lambda story: story.state.progress[0] >= Progress.ENDED)
    assert story.ended[0][0] == "a/1"
    assert story.ended[0][2] == reason
    story.finish()
    assert story.violations == []


def test_what_no_check_can_know_shows_as_zeros_never_as_others_bytes() -> None:
    story = Story(Setup((replace(ALICE, flaw=Flaw.IDLE),)))
    story.until(lambda story: bool(story.violations))
    assert story.violations == ["corruption: decode: a/1 did not find its tokens 0, 1"]


@pytest.mark.parametrize(
    ("theft", "reason"),
    [(Theft.BY_CLIENT, ""), (Theft.BY_ROUTER, "tenant"), (Theft.WITH_ALL, "replayed")],
    ids=str,
)
def test_a_stolen_ticket_is_taken_out_or_refused(theft: Theft, reason: str) -> None:
    thief = Ask("mallory", "m", 2, stolen="a/1", theft=theft)
    story = Story(Setup((ALICE, thief)))
    story.finish()
    assert ("a/1", "completed", "") in story.ended
    ends = {transfer: why for transfer, _, why in story.ended}
    assert ends["m/1"] == reason
    assert story.violations == []


def test_an_over_long_prompt_is_refused_at_the_gateway_and_again_at_the_nodes() -> None:
    for off, told in ((frozenset[Guard](), []), (frozenset({Guard.CONTRACT}), ["context_length"])):
        long = Setup((Ask("alice", "long", 8), BOB), guards_off=off)
        story = Story(long)
        story.finish()
        assert [why for transfer, _, why in story.ended if transfer == "long/1"] == told or (
            not told and story.state.progress[0] is Progress.ENDED
        )
        assert ("b/1", "completed", "") in story.ended
        assert story.violations == []


def test_what_does_not_come_is_computed_by_decode() -> None:
    story = submitted(one(decode_limits=RECOVERS), drops=1)
    story.does(Kind.DROP, TO_PREFILL)
    story.finish()
    assert story.ended == [("a/1", "completed", "")]
    assert Rare.RECOVERY in story.sometimes
    assert story.violations == []


def test_a_hanging_write_pins_its_window_until_its_process_is_started_again() -> None:
    story = submitted(Setup((replace(ALICE, tokens=4, flaw=Flaw.HANGS),)))
    story.until(lambda story: story.can(Kind.RESTART))
    assert story.ended == [("a/1", "timed_out", "timeout")]
    story.finish()
    assert Rare.FENCED_BY_PROCESS_END in story.sometimes
    assert story.violations == []


def test_memory_that_only_a_restart_frees_is_lost_where_no_write_may_hang(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for broken in (False, True):
        if broken:
            monkeypatch.setattr(ending, "drop", lambda node, asked: None)
        story = submitted(one(), cancels=1, drops=1)
        story.does(Kind.DELIVER, TO_PREFILL)
        story.does(Kind.CANCEL)
        story.until(lambda story: not story.state.wires[TO_PREFILL])
        story.until(lambda story: not story.moves or story.can(Kind.RESTART))
        assert story.can(Kind.RESTART) is broken
    story.does(Kind.RESTART)
    assert story.violations == ["pages lost: memory waits for the end of prefill's process"]


def test_pull_offers_are_referred_claimed_read_and_given_back() -> None:
    story = Story(Setup((ALICE,), direction=Direction.PULL))
    story.until(lambda story: story.can(Kind.REFER))
    assert story.state.progress[0] is Progress.OFFERED
    story.does(Kind.REFER)
    story.until(lambda story: story.works("page is read"))
    story.finish()
    assert story.ended == [("a/1", "completed", "")]
    assert story.violations == []
