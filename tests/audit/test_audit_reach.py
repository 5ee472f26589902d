"""How far a loss reaches: from a beat that says all again to the next, and no further."""

from __future__ import annotations

import pytest
from ibis.backends import BaseBackend

from kvairlock.audit.conversations import Conversation
from kvairlock.audit.histories import History, history
from kvairlock.audit.report import Class, Report
from kvairlock.audit.spans import TO_THE_END, Gap
from kvairlock.audit.stories import answered
from kvairlock.audit.synthetic import Row, Stack
from tests.audit.auditing_made import audited


def sequences(made: History, node: str, event: str) -> list[int]:
    return [r["sequence"] for r in made.rows if (r["node"], r["event"]) == (node, event)]


def without(made: History, node: str, sequence: int) -> list[Row]:
    return [r for r in made.rows if (r["node"], r["sequence"]) != (node, sequence)]


def after(made: History, node: str, sequence: int) -> set[str]:
    """Requests of which a node has recorded nothing up to a number."""
    there = {r["request"] for r in made.rows if "request" in r and r["node"] == node}
    early = {
        r["request"]
        for r in made.rows
        if "request" in r and r["node"] == node and r["sequence"] < sequence
    }
    return there - early


def test_a_loss_reaches_to_the_next_beat_at_which_all_leases_are_known(
    engine: BaseBackend,
) -> None:
    made = history(500)
    lost, beat = sequences(made, "decode-0", "verdict")[0], sequences(made, "decode-0", "beat")[0]
    report = audited(engine, without(made, "decode-0", lost))
    (span,) = report.coverage.spans
    assert (span.gap, span.since, span.until) == (Gap.EVENTS_LOST, 0, beat)
    later = after(made, "decode-0", beat)
    assert later
    assert {v.request for v in report.verdicts(Class.EXCLUDED)} >= later
    insufficient = [v for v in report.verdicts(Class.INSUFFICIENT) if "events_lost" in v.reasons]
    assert insufficient


SHORT: dict[str, Row] = {
    "of a lease that nobody knows": {"leases": [10_000]},
    "that does not say which leases": {"leases": None},
    "that does not say which guards are off": {"guards_off": None},
    "that does not say how writes land": {"landing": None},
}


@pytest.mark.parametrize("said", SHORT.values(), ids=SHORT)
def test_a_beat_that_does_not_say_all_again_ends_no_loss(engine: BaseBackend, said: Row) -> None:
    made = history(501)
    lost = sequences(made, "decode-0", "verdict")[0]
    rows = [
        row | said if row["event"] == "beat" else row for row in without(made, "decode-0", lost)
    ]
    (span,) = audited(engine, rows).coverage.spans
    assert (span.since, span.until) == (0, TO_THE_END)


def test_an_allocation_that_is_lost_keeps_its_loss_open_while_its_lease_has_pages(
    engine: BaseBackend,
) -> None:
    stack = Stack(502)
    stack.start()
    stayer, later = Conversation(stack), Conversation(stack)
    story = answered(stayer)
    next(story)
    stack.beat()
    stack.play([answered(later)])
    for _ in story:
        stack.beat()
    stack.beat()
    stack.close()
    rows = stack.rows()
    lost = next(r for r in rows if r["event"] == "pages_allocated" and r["role"] == "decode")
    beats = [r for r in rows if r["event"] == "beat" and r["role"] == "decode"]
    clean = next(r["sequence"] for r in beats if lost["lease"] not in r["leases"])
    (span,) = audited(engine, [row for row in rows if row is not lost]).coverage.spans
    assert beats[0]["sequence"] < clean
    assert (span.since, span.until) == (0, clean)


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ({"relaxed": ["prefill-0/decode-0 range observing: pilot"]}, "guard_relaxed"),
        ({"points": ["decode.step"]}, "failpoint"),
        ({"guards_off": ["range"]}, "guard_disabled"),
        ({"landing": "direct"}, "landing_direct"),
        ({"landing": "a way of tomorrow"}, "landing_direct"),
    ],
)
def test_what_a_beat_says_is_believed_though_the_record_that_said_it_first_is_not_there(
    engine: BaseBackend, said: Row, reason: str
) -> None:
    made = history(503)
    beats = sequences(made, "decode-0", "beat")
    rows = [
        row | said if row["node"] == "decode-0" and row["sequence"] in beats else row
        for row in made.rows
    ]
    report = audited(engine, rows)
    (span,) = report.coverage.spans
    assert (str(span.gap), span.since, span.until) == (reason, beats[0], TO_THE_END)
    assert report.by_reason()[reason] > 0


def before(made: History, node: str, sequence: int) -> set[str]:
    """Requests of which a node has recorded nothing from a number on."""
    of = [r for r in made.rows if "request" in r and r["node"] == node]
    late = {r["request"] for r in of if r["sequence"] >= sequence}
    return {r["request"] for r in of} - late


def excluded(report: Report) -> set[str]:
    return {verdict.request for verdict in report.verdicts(Class.EXCLUDED)}


def test_a_loss_reaches_back_to_the_last_beat_for_a_late_read_may_be_in_it(
    engine: BaseBackend,
) -> None:
    made = history(504)
    beats = sequences(made, "decode-0", "beat")
    lost = next(n for n in sequences(made, "decode-0", "verdict") if n > beats[0] + 40)
    beat = max(number for number in beats if number < lost)
    report = audited(engine, without(made, "decode-0", lost))
    (span,) = report.coverage.spans
    assert (span.gap, span.since) == (Gap.EVENTS_LOST, beat)
    assert span.detail == f"1 missing of {lost} to {lost}"
    over = before(made, "decode-0", lost)
    assert excluded(report) & over == before(made, "decode-0", beat)
    assert over - excluded(report), "whoever was there since the beat is not excluded"


def test_an_end_that_is_not_recorded_reaches_back_to_the_last_beat(engine: BaseBackend) -> None:
    made = history(505)
    beats = sequences(made, "decode-0", "beat")
    cut = [r for r in made.rows if r["node"] != "decode-0" or r["sequence"] < beats[-1]]
    report = audited(engine, cut)
    (span,) = report.coverage.spans
    assert (span.gap, span.since, span.until) == (Gap.CLOSE_MISSING, beats[-2], TO_THE_END)
    there = {r["request"] for r in cut if "request" in r and r["node"] == "decode-0"}
    assert excluded(report) & there == before(made, "decode-0", beats[-2])


@pytest.mark.parametrize("node", ["decode-0", "prefill-0", "gateway"])
def test_a_life_whose_first_records_were_pruned_is_covered_from_its_first_beat_on(
    engine: BaseBackend, node: str
) -> None:
    made = history(506, quiet=24)
    beat = sequences(made, node, "beat")[0]
    kept = [r for r in made.rows if r["node"] != node or r["sequence"] > 12]
    report = audited(engine, kept)
    found = {(span.gap, span.since, span.until) for span in report.coverage.spans}
    assert found == {(Gap.EVENTS_LOST, 0, beat), (Gap.START_UNKNOWN, 0, beat)}
    later = after(made, node, beat)
    assert later
    assert excluded(report) >= later
    assert {v.request for v in report.verdicts(Class.AFFECTED)} == set()


def test_how_guards_were_set_in_what_was_pruned_is_known_by_beats(engine: BaseBackend) -> None:
    made = history(507)
    beat = sequences(made, "decode-0", "beat")[0]
    kept = [
        r | {"guards_off": ["range"]} if r["event"] == "beat" and r["node"] == "decode-0" else r
        for r in made.rows
        if r["node"] != "decode-0" or r["sequence"] > 12
    ]
    report = audited(engine, kept)
    off = [span for span in report.coverage.spans if span.gap is Gap.GUARD_DISABLED]
    assert [(span.since, span.until, span.detail) for span in off] == [(beat, TO_THE_END, "range")]
    there = {r["request"] for r in kept if "request" in r and r["node"] == "decode-0"}
    assert not excluded(report) & there
