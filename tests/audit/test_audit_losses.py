"""What is lost, cut, dimmed or skewed makes evidence insufficient, and never anybody excluded."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from ibis.backends import BaseBackend

from kvairlock.audit.histories import INCIDENTS, history
from kvairlock.audit.report import Class, Report
from kvairlock.audit.synthetic import Row
from tests.audit.auditing_made import audited

SKEW_NS = 3_600_000_000_000
Loss = Callable[[list[Row]], list[Row]]


def of_node(rows: Iterable[Row], node: str) -> list[Row]:
    return [row for row in rows if row["node"] == node]


def but_node(rows: Iterable[Row], node: str) -> list[Row]:
    return [row for row in rows if row["node"] != node]


def middle(rows: list[Row], node: str, event: str) -> int:
    """Where a record is of some event, about half-way through a life."""
    there = [i for i, row in enumerate(rows) if row["node"] == node and row["event"] == event]
    return there[len(there) // 2]


def lost_in_the_middle(rows: list[Row]) -> list[Row]:
    at = middle(rows, "decode-0", "verdict")
    return rows[:at] + rows[at + 1 :]


def counted_as_lost(rows: list[Row]) -> list[Row]:
    at = middle(rows, "decode-0", "drain_ended")
    envelope = {name: rows[at][name] for name in list(rows[at])[:8]}
    return [*rows[:at], envelope | {"event": "evidence_lost", "records": 1}, *rows[at + 1 :]]


def node_removed(rows: list[Row]) -> list[Row]:
    return but_node(rows, "prefill-0")


def tail_cut(rows: list[Row]) -> list[Row]:
    decode = of_node(rows, "decode-0")
    return but_node(rows, "decode-0") + decode[: len(decode) // 2]


def start_cut(rows: list[Row]) -> list[Row]:
    decode = of_node(rows, "decode-0")
    return but_node(rows, "decode-0") + decode[1:]


def clock_behind(rows: list[Row]) -> list[Row]:
    prefill = [r | {"at_unix_ns": r["at_unix_ns"] - SKEW_NS} for r in of_node(rows, "prefill-0")]
    return but_node(rows, "prefill-0") + prefill


def clock_set(rows: list[Row]) -> list[Row]:
    decode = of_node(rows, "decode-0")
    half = len(decode) // 2
    later = [r | {"at_unix_ns": r["at_unix_ns"] + SKEW_NS} for r in decode[half:]]
    return but_node(rows, "decode-0") + decode[:half] + later


def silence(rows: list[Row]) -> list[Row]:
    moved = []
    for row in rows:
        late = 60_000_000_000 if row["sequence"] > 40 else 0
        moved.append(row | {name: row[name] + late for name in ("at_unix_ns", "at_boot_ns")})
    return moved


def started(rows: list[Row], node: str, **fields: Any) -> list[Row]:
    def change(row: Row) -> Row:
        here = row["node"] == node and row["event"] == "node_started"
        return row | fields if here else row

    return [change(row) for row in rows]


def guard_disabled(rows: list[Row]) -> list[Row]:
    return started(rows, "decode-0", guards_off=["range"])


def guard_observing(rows: list[Row]) -> list[Row]:
    return started(rows, "decode-0", relaxed=["prefill-0/decode-0 range observing: pilot"])


def guards_unknown(rows: list[Row]) -> list[Row]:
    return started(rows, "decode-0", guards_off=None)


def restarted(rows: list[Row]) -> list[Row]:
    """The decode node's second half is told by another life of it."""
    decode = of_node(rows, "decode-0")
    half = len(decode) // 2
    again = {"incarnation": "0123456789abcdef"}
    second = [r | again | {"sequence": i} for i, r in enumerate(decode[half:], start=2)]
    return [*but_node(rows, "decode-0"), *decode[:half], decode[0] | again, *second]


def drilled(rows: list[Row]) -> list[Row]:
    """The beat at the end of a life becomes a failpoint at its second number."""
    decode = of_node(rows, "decode-0")
    envelope = {name: decode[1][name] for name in list(decode[1])[:8]}
    mark = envelope | {"event": "failpoint", "point": "decode.step", "action": "arm"}
    return [*but_node(rows, "decode-0"), decode[0], mark, *decode[2:]]


def field_missing(rows: list[Row]) -> list[Row]:
    return [row | {"verified": None} if row["event"] == "verdict" else row for row in rows]


def number_twice(rows: list[Row]) -> list[Row]:
    at = middle(rows, "decode-0", "read_started")
    return [*rows[:at], rows[at] | {"sequence": rows[at]["sequence"] - 1}, *rows[at + 1 :]]


LOSSES: dict[Loss, set[str]] = {
    lost_in_the_middle: {"events_lost"},
    counted_as_lost: {"events_lost"},
    node_removed: {"node_missing"},
    tail_cut: {"close_missing"},
    start_cut: {"events_lost", "start_unknown"},
    clock_behind: {"clocks_skewed"},
    clock_set: {"clock_stepped", "clocks_skewed"},
    silence: {"silent"},
    guard_disabled: {"guard_disabled"},
    guard_observing: {"guard_relaxed"},
    guards_unknown: {"start_unknown"},
    restarted: {"node_restarted"},
    drilled: {"failpoint"},
    field_missing: {"fields_missing"},
    number_twice: {"numbers_repeated"},
}
"""Each loss with a reason that it must give to somebody."""

CALM = {loss: history(100 + i) for i, loss in enumerate(LOSSES)}


@pytest.fixture(scope="module")
def report(engine: BaseBackend) -> Report:
    rows = [row for loss, made in CALM.items() for row in loss(list(made.rows))]
    return audited(engine, [*rows, *history(99).rows])


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.__name__)
def test_a_loss_makes_some_insufficient_and_says_why(report: Report, loss: Loss) -> None:
    made = CALM[loss]
    found = [v for v in report.verdicts(Class.INSUFFICIENT) if v.request in made.requests]
    assert LOSSES[loss] <= {reason for verdict in found for reason in verdict.reasons}


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.__name__)
def test_a_loss_makes_nobody_affected(report: Report, loss: Loss) -> None:
    affected = {verdict.request for verdict in report.verdicts(Class.AFFECTED)}
    assert not affected & CALM[loss].requests


def test_everybody_is_excluded_where_nothing_is_lost(report: Report) -> None:
    whole = history(99).requests
    assert {v.request for v in report.verdicts(Class.EXCLUDED)} & whole == whole


def test_a_node_without_evidence_is_named_with_who_named_it(report: Report) -> None:
    named = {(missing.node, missing.named_by) for missing in report.coverage.missing}
    assert ("prefill-0", "decode-0") in named


def test_a_request_on_another_route_than_an_observing_guard_is_not_touched_by_it(
    report: Report,
) -> None:
    made = CALM[guard_observing]
    elsewhere = {
        r["request"]
        for r in made.rows
        if r["event"] == "window_granted" and r["peer"] == "prefill-1"
    }
    assert {v.request for v in report.verdicts(Class.EXCLUDED)} & elsewhere == elsewhere


def test_a_record_that_does_not_say_whose_it_is_hides_nothing(engine: BaseBackend) -> None:
    made = history(300, INCIDENTS["a receipt used twice"])
    rows = list(made.rows)
    twice = max(
        i
        for i, r in enumerate(rows)
        if r.get("request") in made.affected and r["event"] == "verdict"
    )
    rows[twice] = rows[twice] | {"request": None}
    (affected,) = made.affected
    found = audited(engine, rows).of(affected)
    assert found is not None
    assert found.verdict is Class.INSUFFICIENT
    assert "events_lost" in found.reasons


def test_an_allocation_without_its_pages_does_not_clear_who_still_used_them(
    engine: BaseBackend,
) -> None:
    made = history(301, INCIDENTS["a read of the next owner's pages"])
    user, owner = next(iter(made.met))
    rows = [
        r | {"pages": None}
        if r.get("request") == owner and r["event"] == "pages_allocated" and r["role"] == "decode"
        else r
        for r in made.rows
    ]
    found = audited(engine, rows).of(user)
    assert found is not None
    assert found.verdict is Class.INSUFFICIENT
