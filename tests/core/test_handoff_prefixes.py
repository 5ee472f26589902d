"""Prefixes are shared inside a declared scope, after they were admitted, while they fit."""

from __future__ import annotations

import pytest

from kvairlock.core.ends import End
from kvairlock.core.messages import Receipt
from kvairlock.core.terms import (
    LandingPolicy,
    Owner,
)
from tests.core.ends import World
from tests.core.ends_parts import (
    DECODE_LIMITS,
    PREFILL_LIMITS,
    Setup,
    changed,
)

COPY, SEAL, DIRECT = LandingPolicy.COPY, LandingPolicy.SEAL, LandingPolicy.DIRECT


def test_a_scope_shares_full_pages_of_an_equal_beginning() -> None:
    world = World()
    beginning = tuple(range(10, 18))
    first = world.ask("alice", "a", (*beginning, 1, 2), scope="team")
    world.complete(first)
    assert world.prefill.machine.prefixes.pages == 2
    second = world.ask("bob", "b", (*beginning, 3), scope="team")
    world.deliver_all()
    assert world.prefill.computing[second.transfer].position == 8
    world.complete(second)
    assert not world.leaks
    assert not world.corruptions
    reused = [r for r in world.prefill.records if r.event == "prefix_reused"]
    assert [(r.fields["tokens"], r.fields["creator"]) for r in reused] == [(8, "alice")]
    assert {(r.fields["scope"], r.fields["creator_scope"]) for r in reused} == {("team", "team")}
    kept = [r for r in world.prefill.records if r.event == "prefix_kept"]
    assert kept[0].owner == Owner("alice", "a", 1)
    assert kept[0].fields["pages"] == reused[0].fields["pages"]
    world.assert_baseline()


def test_only_what_was_computed_is_recorded_as_computed() -> None:
    world = World()
    beginning = tuple(range(10, 18))
    world.complete(world.ask("alice", "a", (*beginning, 1), scope="team"))
    world.complete(world.ask("bob", "b", (*beginning, 3), scope="team"))
    ranges = [r.fields for r in world.prefill.records if r.event == "range_computed"]
    assert [(fields["start"], fields["stop"]) for fields in ranges] == [(0, 9), (8, 9)]


def test_a_prompt_that_is_known_as_a_whole_is_not_computed_again() -> None:
    world = World()
    tokens = tuple(range(10, 18))
    world.complete(world.ask("alice", "a", tokens, scope="team"))
    second = world.ask("alice", "b", tokens, scope="team")
    world.deliver_all()
    assert second.transfer not in world.prefill.computing
    world.complete(second)
    assert not world.corruptions
    world.assert_baseline()


@pytest.mark.parametrize(
    ("first", "second"), [("", ""), ("", "team"), ("team", ""), ("team", "other")]
)
def test_without_one_declared_scope_nothing_is_shared(first: str, second: str) -> None:
    world = World()
    tokens = tuple(range(10, 18))
    world.complete(world.ask("alice", "a", tokens, scope=first))
    request = world.ask("bob", "b", tokens, scope=second)
    world.deliver_all()
    assert world.prefill.computing[request.transfer].position == 0
    world.complete(request)
    assert not world.leaks
    world.assert_baseline()


@pytest.mark.parametrize("event", ["refused", "cancel", "timeout"])
def test_content_that_was_not_admitted_is_never_shared(event: str) -> None:
    world = World()
    if event == "refused":
        world.tamper[Receipt] = changed(digests=(1, 2))
    request = world.ask("alice", "a", tuple(range(8)), scope="team")
    world.deliver_all()
    world.prefill.compute(request.transfer)
    world.prefill.write_all(request.transfer)
    if event == "cancel":
        world.cancel(request)
    if event == "timeout":
        world.advance(DECODE_LIMITS.prefill_ms)
    world.heal()
    assert world.prefill.machine.prefixes.pages == 0
    assert world.ended(request).end is not End.COMPLETED
    world.assert_baseline()


def test_idle_prefixes_make_room_and_their_pages_are_scrubbed_first() -> None:
    world = World(Setup(prefill_pages=4))
    first = world.ask("alice", "a", tuple(range(8)), scope="team")
    world.complete(first)
    kept = world.prefill.machine.prefixes.entries[0].lease.pages.tolist()
    generations = world.prefill.machine.books.pool.generation[kept].tolist()
    world.manual.add("scrub")
    second = world.ask("bob", "b", 14)
    world.deliver_all()
    assert second.transfer not in world.prefill.computing, "the pages are not zeroed yet"
    world.run("scrub")
    assert not world.prefill.memory[kept].any()
    assert second.transfer in world.prefill.computing
    after = world.prefill.machine.books.pool.generation[kept].tolist()
    assert after == [g + 1 for g in generations]
    world.manual.clear()
    world.complete(second)
    assert world.prefill.machine.prefixes.pages == 0
    assert not world.leaks
    world.assert_baseline()


def test_a_prefix_that_is_read_is_not_let_go() -> None:
    world = World(Setup(prefill_pages=4))
    tokens = tuple(range(8))
    world.complete(world.ask("alice", "a", tokens, scope="team"))
    reader = world.ask("bob", "b", (*tokens, 9), scope="team")
    world.deliver_all()
    world.prefill.compute(reader.transfer)
    big = world.ask("carol", "c", 16)
    world.deliver_all()
    assert big.transfer not in world.prefill.computing
    assert world.prefill.machine.prefixes.pages == 2
    world.prefill.write_all(reader.transfer)
    world.settle()
    assert world.is_running(reader)
    world.settle()
    world.decode.step()
    assert not world.leaks
    assert not world.corruptions
    assert big.transfer in world.decode.running
    world.heal()
    world.assert_baseline()


def test_a_reader_whose_decode_is_lost_still_holds_its_prefix_while_it_is_written() -> None:
    world = World(Setup(prefill_pages=4))
    tokens = tuple(range(8))
    world.complete(world.ask("alice", "a", tokens, scope="team"))
    reader = world.ask("bob", "b", (*tokens, 9), scope="team")
    world.deliver_all()
    world.prefill.compute(reader.transfer)
    world.cancel(reader)
    world.deliver_all()
    entry = world.prefill.machine.prefixes.entries[0]
    assert entry.users == 1, "a write still reads the shared pages"
    world.prefill.write_all(reader.transfer)
    assert entry.users == 0
    world.heal()
    world.assert_baseline()


def test_prefixes_keep_to_their_pages_and_the_least_used_goes_first() -> None:
    world = World()
    prompts = [tuple(range(start, start + 8)) for start in (0, 50, 100)]
    world.complete(world.ask("alice", "a", prompts[0], scope="team"))
    world.complete(world.ask("alice", "b", prompts[1], scope="team"))
    world.complete(world.ask("alice", "c", prompts[0], scope="team"))
    world.complete(world.ask("alice", "d", prompts[2], scope="team"))
    assert world.prefill.machine.prefixes.pages == PREFILL_LIMITS.prefix_pages
    again = world.ask("alice", "e", prompts[1], scope="team")
    world.deliver_all()
    assert world.prefill.computing[again.transfer].position == 0
    assert [r for r in world.prefill.records if r.event == "prefix_reused"]
    world.complete(again)
    world.assert_baseline()
