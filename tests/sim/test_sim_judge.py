"""The evidence judge: for each rule records that break it, and the same ones in order."""

from __future__ import annotations

import pytest

from kvairlock.core.effects import Record, Value
from kvairlock.core.terms import Owner, Role
from kvairlock.sim.judge import judge

ALICE, BOB = Owner("alice", "a", 1), Owner("bob", "b", 1)


def record(event: str, owner: Owner = ALICE, **fields: Value) -> Record:
    return Record(event, owner, fields)


def pages(event: str, owner: Owner = ALICE, generation: int = 0, **fields: Value) -> Record:
    return record(event, owner, pages=(0, 1), generations=(generation, generation), **fields)


def drained(owner: Owner = ALICE) -> Record:
    return record("drain_ended", owner, lease=1, pages=(0, 1), fence="local", wait_ms=0)


ADMITTED = record("request_admitted", stage="decode", prompt_tokens=2, max_tokens=1)
ALLOCATED = pages("pages_allocated", lease=1)
VERDICT = pages("verdict", outcome="admitted", checks=(), start=0, stop=2, expected_tokens=2)
READS, READ = pages("read_started"), pages("read_ended")
ENDED = record("request_ended", end="completed")
WHOLE = [ADMITTED, ALLOCATED, VERDICT, READS, READ, ENDED, drained()]

BROKEN: dict[str, list[Record]] = {
    "page 0 was allocated to b/1 before its drain had ended": [
        ALLOCATED,
        pages("pages_allocated", BOB, lease=2),
    ],
    "page 0 was drained and not allocated": [drained()],
    "page 0 was drained while it was read or read into": [ALLOCATED, VERDICT, READS, drained()],
    "a/1 reads, and nothing was admitted for it": [ALLOCATED, READS],
    "a/1 reads after its end": [ALLOCATED, VERDICT, ENDED, READS],
    "page 0 is read by a/1, and is not its own": [
        pages("pages_allocated", BOB, lease=1),
        VERDICT,
        READS,
    ],
    "page 0 is read by a/1 in another life of it": [
        ALLOCATED,
        VERDICT,
        pages("read_started", generation=1),
    ],
    "a/1 was admitted for another range than was expected": [
        ALLOCATED,
        pages("verdict", outcome="admitted", checks=(), start=0, stop=1, expected_tokens=2),
    ],
    "window_granted: page 0 is not allocated to a/1": [
        record("window_granted", window="w", peer="p", pages=(0, 1))
    ],
    "write_ended: page 0 is not allocated to a/1": [
        pages("pages_allocated", BOB, lease=1),
        record("write_ended", window="w", pages=(0, 1), bytes_written=2, status="done"),
    ],
    "w was granted twice": [
        ALLOCATED,
        *[record("window_granted", window="w", peer="p", pages=(0, 1))] * 2,
    ],
    "a/1 ended twice": [ADMITTED, ENDED, ENDED],
    "a/1 was admitted and never ended": [ADMITTED],
    "a/1 began to read and never stopped": [ALLOCATED, VERDICT, READS],
    "pages [0, 1] were allocated and never drained": [ALLOCATED],
    "page 0 is read into for a/1, and is not its own": [
        record("remote_read_started", claim="c", pages=(0, 1))
    ],
}


def judged(records: list[Record], life: int = 1) -> list[str]:
    found = judge([(0, 1, record) for record in records], [Role.DECODE], (life,))
    return [violation.detail.removeprefix("decode 1: ") for violation in found]


def test_a_whole_life_of_pages_is_in_order() -> None:
    assert judged(WHOLE) == []


@pytest.mark.parametrize("what", BROKEN)
def test_each_rule_is_seen_to_be_broken(what: str) -> None:
    assert what in judged(BROKEN[what])


def test_what_a_life_left_open_that_has_ended_is_nobodys_fault() -> None:
    assert judged([ADMITTED, ALLOCATED], life=2) == []


def test_pages_that_were_drained_may_be_allocated_again() -> None:
    again = pages("pages_allocated", BOB, generation=1, lease=2)
    assert judged([*WHOLE, again, drained(BOB)]) == []


def test_pages_of_a_reused_prefix_may_be_written_by_who_was_given_them() -> None:
    reused = pages("prefix_reused", tokens=4, creator="bob")
    wrote = record("write_ended", window="w", pages=(0, 1), bytes_written=2, status="done")
    kept = pages("pages_allocated", BOB, lease=1)
    assert judged([kept, reused, wrote, drained(BOB)]) == []


def test_a_read_of_ours_keeps_its_pages_until_it_ends() -> None:
    reads = record("remote_read_started", claim="c", pages=(0, 1))
    ended = record("remote_read_ended", claim="c", pages=(0, 1), status="done")
    assert judged([ALLOCATED, reads, drained()]) == [
        "page 0 was drained while it was read or read into",
        "page 1 was drained while it was read or read into",
    ]
    assert judged([ALLOCATED, reads, ended, drained()]) == []
