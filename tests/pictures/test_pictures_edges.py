"""Records become edges: what fits is in order, and what does not is counted, never guessed."""

from __future__ import annotations

from typing import Any

import pytest

from kvairlock.core.evidence import EVENTS, SCHEMA_VERSION
from kvairlock.core.terms import Role
from kvairlock.pictures.accounts import Account, Close, accounts_of
from kvairlock.pictures.edges import Clock, Life, read_edges
from kvairlock.pictures.story import UNTOLD, Chapter, Tone, tell
from tests.pictures.recorded import ACME, EPOCH_NS, MS, Node, all_of, decode, prefill, received

DECODE = Life("decode-0", Role.DECODE, "decode-0-1")


def test_edges_are_in_order_of_time_since_the_first_record() -> None:
    first, second = decode(), prefill()
    second.record(7, "peer_up", peer="decode-0")
    first.record(5, "peer_up", peer="prefill-0")
    for record in all_of(first, second):
        record["at_boot_ns"] += 1_000 * MS
        record["at_unix_ns"] += 1_000 * MS
    log = read_edges(all_of(first, second))
    assert [(e.at_ns // MS, e.life.node) for e in log.edges] == [
        (0, "decode-0"),
        (0, "prefill-0"),
        (5, "decode-0"),
        (7, "prefill-0"),
    ]
    assert (log.clock, log.misfits, log.repeated) == (Clock.BOOT, 0, 0)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("event", "no_such_event"),
        ("event", None),
        ("event", ["verdict"]),
        ("schema", SCHEMA_VERSION + 1),
        ("schema", "1"),
        ("role", "router"),
        ("role", []),
        ("sequence", True),
        ("at_boot_ns", "soon"),
        ("tenant", None),
        ("tenant", 7),
        ("request", "x" * 300),
        ("pages", None),
        ("pages", "0, 1"),
        ("pages", [0, -1]),
        ("pages", [0, True]),
        ("checks", ["range", 1]),
        ("outcome", 1),
    ],
)
def test_a_record_that_does_not_fit_is_counted_and_left_out(field: str, value: Any) -> None:
    node = decode()
    node.record(1, "verdict", ACME, outcome="admitted", pages=[0])
    node.records[-1][field] = value
    log = read_edges(node.records)
    assert [edge.event for edge in log.edges] == ["node_started"]
    assert log.misfits == 1


@pytest.mark.parametrize("field", [*EVENTS["verdict"], "sequence", "incarnation"])
def test_a_record_of_this_schema_that_lacks_a_field_does_not_fit(field: str) -> None:
    node = decode()
    node.record(1, "verdict", ACME, outcome="admitted", pages=[0])
    del node.records[-1][field]
    assert read_edges(node.records).misfits == 1


def test_what_an_older_schema_does_not_have_was_not_recorded() -> None:
    node = decode()
    node.record(1, "verdict", ACME, outcome="admitted", pages=[0])
    record = node.records[-1]
    record["schema"] = 1
    del record["expected_tokens"], record["checks"]
    edge = read_edges(node.records).edges[-1]
    assert (edge.fields["expected_tokens"], edge.fields["checks"]) == (None, None)
    del record["request"]
    assert read_edges(node.records).misfits == 1


def test_a_number_that_comes_twice_is_read_once() -> None:
    node = decode()
    node.record(1, "peer_up", peer="prefill-0")
    log = read_edges(node.records + node.records)
    assert (len(log.edges), log.repeated) == (2, 2)


def test_processes_with_different_clocks_are_put_in_order_by_the_wall() -> None:
    first, second = decode(), prefill()
    second.record(3, "peer_up", peer="decode-0")
    for record in second.records:
        record["at_boot_ns"] += 90_000 * MS
    log = read_edges(all_of(first, second))
    assert log.clock is Clock.WALL
    assert [edge.at_ns for edge in log.edges] == [0, 0, 3 * MS]


def test_a_wall_clock_that_is_set_back_does_not_turn_the_order_of_a_life() -> None:
    node = decode()
    for at_ms in (5, 6):
        node.record(at_ms, "peer_up", peer="prefill-0")
    node.records[-1]["at_unix_ns"] = EPOCH_NS - 5_000 * MS
    log = read_edges(node.records)
    assert log.clock is Clock.WALL
    assert [edge.sequence for edge in log.edges] == [1, 2, 3]


def test_each_life_gives_an_account_of_itself() -> None:
    node = Node("decode-0", Role.DECODE)
    node.start("seal", 32, ("drain",))
    node.record(1, "beat")
    node.close(2)
    del node.records[1]
    silent = prefill()
    del silent.records[0]
    silent.record(1, "beat")
    silent.records[0]["sequence"] = 2
    accounts = accounts_of(read_edges(all_of(node, silent)).edges)
    assert accounts == (
        Account(DECODE, 32, "seal", ("drain",), 2, 1, Close.IN_ORDER),
        Account(silent_life(), None, None, None, 1, 1, Close.NO_MARKER),
    )


def silent_life() -> Life:
    return Life("prefill-0", Role.PREFILL, "prefill-0-1")


def test_every_event_can_be_told() -> None:
    node = Node("decode-0", Role.DECODE)
    for event, row in EVENTS.items():
        node.record(1, event, ACME if "request" in row else None)
    lines = tell(read_edges(node.records).edges)
    assert len(lines) == len(EVENTS) - len(UNTOLD)
    assert all(line.words and "{" not in line.words for line in lines)


def test_a_story_says_what_was_refused_and_by_which_figure() -> None:
    node = decode()
    figures = {"asked": 900, "limit": 512, "limit_name": "context_tokens"}
    node.record(1, "request_refused", ACME, stage="gateway", reason="context_length", **figures)
    node.record(2, "request_refused", ACME, stage="verdict", reason="range", limit=None)
    node.record(3, "verdict", ACME, outcome="range", stop=1, expected_tokens=90)
    over, plain, verdict = tell(read_edges(node.records).edges)
    assert over.words == "refused at gateway: context_length: 900 asked, context_tokens is 512"
    assert plain.words == "refused at verdict: range"
    assert verdict.words == "verdict: range, tokens [0, 1) of 90; checked: nothing"
    assert {over.tone, plain.tone, verdict.tone} == {Tone.REFUSED}


def test_a_story_goes_from_admission_to_the_drain() -> None:
    node = decode()
    node.record(1, "request_admitted", ACME, stage="decode_admission", prompt_tokens=90)
    received(node, 2, ACME, [4, 5, 6, 9], "w")
    lines = tell(read_edges(node.records).edges)
    assert [line.chapter for line in lines] == [
        Chapter.ADMIT,
        Chapter.ADMIT,
        Chapter.HAND_OVER,
        Chapter.VERDICT,
        Chapter.DRAIN,
        Chapter.READ,
    ]
    assert lines[1].words == "pages 4\N{EN DASH}6, 9 allocated, lease 1"
    assert {line.tone for line in lines} == {Tone.PLAIN}


def test_fields_of_an_earlier_schema_are_read_by_the_names_that_they_have_now() -> None:
    node = decode()
    (started,) = node.records
    old = {name: value for name, value in started.items() if name != "pool_pages"}
    (edge,) = read_edges([old | {"schema": 1, "pages": 48}]).edges
    assert edge.fields["pool_pages"] == 48
