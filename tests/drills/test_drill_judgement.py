"""What a run has come to: on answers and records that are made up, so that each way is seen."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvairlock.drills.library.drill import Drill, Mode, Run
from kvairlock.drills.library.shipped import parse
from kvairlock.drills.library.sights import LEAKS, Seen, Sight, Vouched
from kvairlock.drills.runs.judgement import judge, not_carried_out
from kvairlock.drills.runs.rows import Cleaned, DrillRun, Outcome, Row, Skipped, joined, row_of

from .drills_made import FOREIGN, OWN, RANGE, TEXT, WRONG, refused

MADE = parse(TEXT, "made")
GUARDED, ALONE, OFF = (Run(MADE, mode) for mode in Mode)
SHARED = replace(OWN, sharers=("bob",))
DENIED = refused("route_full", status=503)
LEFT = replace(OWN, http_status=499, text="", own=False)
LOST = refused("connection", status=499)


@pytest.mark.parametrize(
    ("seen", "sight"),
    [
        (OWN, Sight.OWN),
        (WRONG, Sight.WRONG),
        (FOREIGN, Sight.FOREIGN),
        (SHARED, Sight.SHARED),
        (replace(OWN, tail=True), Sight.TAIL),
        (replace(OWN, vouched=Vouched.NEVER), Sight.UNVOUCHED),
        (replace(OWN, vouched=Vouched.UNSEEN), Sight.OWN),
        (RANGE, Sight.REFUSED),
        (DENIED, Sight.DENIED),
        (LEFT, Sight.LEFT),
        (LOST, Sight.LOST),
        (replace(LEFT, foreign=("bob",)), Sight.FOREIGN),
        (replace(RANGE, foreign=("bob",)), Sight.FOREIGN),
    ],
)
def test_the_worst_that_was_seen_counts(seen: Seen, sight: Sight) -> None:
    assert seen.sight is sight


# Alone: to the letter


def test_the_refusal_that_must_be_holds() -> None:
    judged = judge(ALONE, {"a": RANGE, "b": OWN}, lambda trace: True)
    assert (judged.held, judged.failed_as_expected, judged.wrong) == (True, None, ())


@pytest.mark.parametrize(
    ("seen", "why"),
    [
        (OWN, "a: its own answer, not a typed refusal"),
        (refused("handoff_input_mismatch"), "a: refused with handoff_input_mismatch, not "
         "handoff_range_mismatch"),
        (refused("handoff_range_mismatch", stage="transfer"), "a: refused at transfer, not at "
         "verdict"),
        (DENIED, "a: no pages within the longest wait, not a typed refusal"),
        (LOST, "a: nothing: the connection was lost, not a typed refusal"),
        (FOREIGN, "a: another tenant's canary"),
    ],
)  # fmt: skip
def test_any_other_end_does_not_hold(seen: Seen, why: str) -> None:
    judged = judge(ALONE, {"a": seen, "b": OWN}, lambda trace: True)
    assert (judged.held, judged.wrong) == (False, (why,))


def test_a_leak_to_anybody_does_not_hold() -> None:
    for leak in (FOREIGN, SHARED):
        judged = judge(ALONE, {"a": RANGE, "b": leak}, lambda trace: True)
        assert not judged.held
        assert judged.wrong[0].startswith("b: ")


def test_without_the_receivers_record_it_does_not_hold() -> None:
    judged = judge(ALONE, {"a": RANGE, "b": OWN}, lambda trace: False)
    said = "it was not recorded: decode-0: verdict of a, outcome range"
    assert (judged.held, judged.wrong) == (False, (said,))
    assert judge(ALONE, {"a": RANGE, "b": OWN}, None).held, "no evidence at hand: by the answers"


# At a limit

AT_LIMIT = TEXT.replace('tenant = "bob" }', 'tenant = "bob", fills = "promise" }').replace(
    "[[shows]]", '[[holds]]\nrequest = "b"\nsight = "own"\n\n[[shows]]'
)


def judged_at_limit(seen: Seen, text: str = AT_LIMIT) -> tuple[str, ...]:
    run = Run(parse(text, "made"), Mode.ALONE)
    return judge(run, {"a": RANGE, "b": seen}, None).wrong


def test_who_fills_a_limit_is_answered_in_full() -> None:
    full = replace(OWN, limit_tokens=137, asked_tokens=137)
    assert judged_at_limit(full) == ()
    cut = replace(full, prompt_tokens=100)
    assert judged_at_limit(cut) == ("b: 120 prompt tokens were sent, 100 computed",)
    untold = replace(full, prompt_tokens=None)
    assert judged_at_limit(untold) == ("b: 120 prompt tokens were sent, None computed",)


def test_who_goes_over_it_is_told_both_figures() -> None:
    text = AT_LIMIT.replace(
        'request = "b"\nsight = "own"',
        'request = "b"\nsight = "refused"\nreason = "context_length"',
    )
    over = refused("context_length_exceeded", "gateway", 400, asked=138, limit=137)
    over = replace(over, limit_tokens=137, asked_tokens=138, sent_tokens=121)
    assert judged_at_limit(over, text) == ()
    alone = replace(over, error={**over.error, "asked": 121})
    assert judged_at_limit(alone, text) == (), "the prompt is too long by itself"
    other = replace(over, error={**over.error, "limit": 512})
    assert judged_at_limit(other, text) == ("b: 138 over 137 was told as 138, 512",)
    silent = replace(over, error={"code": "context_length_exceeded"})
    assert judged_at_limit(silent, text) == ("b: 138 over 137 was told as None, None",)


# Guarded: whoever acts first


@pytest.mark.parametrize("seen", [OWN, RANGE, refused("handoff_input_mismatch"), LEFT])
def test_with_all_guards_any_answer_of_ones_own_and_any_refusal_will_do(seen: Seen) -> None:
    judged = judge(GUARDED, {"a": seen, "b": OWN}, lambda trace: False)
    assert (judged.held, judged.failed_as_expected, judged.wrong) == (True, None, ())


@pytest.mark.parametrize("seen", [FOREIGN, SHARED, WRONG, DENIED, LOST])
def test_with_all_guards_nothing_else_will_do(seen: Seen) -> None:
    assert not judge(GUARDED, {"a": seen, "b": OWN}, lambda trace: True).held


@pytest.mark.parametrize("leak", sorted(LEAKS))
def test_no_leak_is_ever_harmless(leak: Sight) -> None:
    text = TEXT.replace(
        'sight = "refused"\nreason = "range"\nstage = "verdict"', f'sight = "{leak}"'
    )
    seen = {
        Sight.FOREIGN: FOREIGN,
        Sight.SHARED: SHARED,
        Sight.TAIL: replace(OWN, tail=True),
        Sight.UNVOUCHED: replace(OWN, vouched=Vouched.NEVER),
    }[leak]
    for mode in (Mode.GUARDED, Mode.ALONE):
        run = Run(parse(text, "made"), mode)
        assert not judge(run, {"a": seen, "b": OWN}, lambda trace: True).held


# Off: it has to fail


def test_without_the_guard_the_fault_must_be_seen() -> None:
    judged = judge(OFF, {"a": WRONG, "b": OWN}, None)
    assert (judged.held, judged.failed_as_expected, judged.ok) == (False, True, True)


@pytest.mark.parametrize("seen", [OWN, RANGE, FOREIGN, DENIED])
def test_a_drill_that_does_not_fail_without_its_guard_has_failed(seen: Seen) -> None:
    judged = judge(OFF, {"a": seen, "b": OWN}, None)
    assert (judged.failed_as_expected, judged.ok) == (False, False)
    said = "a: an answer from pages that do not hold its prompt"
    assert judged.wrong == (f"it should be seen, and was not: {said}",)


def crowd(request: str, sight: str) -> Drill:
    """A drill whose sighting is of a crowd."""
    text = TEXT.replace(
        '{ do = "ask", request = "b", tenant = "bob" }',
        '{ do = "crowd", request = "b", tenants = ["bob"], each = 2 }',
    )
    before = '[[shows]]\nrequest = "a"\nsight = "wrong"'
    return parse(
        text.replace(before, f'[[shows]]\nrequest = "{request}"\nsight = "{sight}"'), "made"
    )


@pytest.mark.parametrize(
    ("request_", "found", "shown"),
    [
        ("any", (OWN, FOREIGN), True),
        ("any", (OWN, OWN), False),
        ("every", (FOREIGN, FOREIGN), False),
        ("b", (FOREIGN, FOREIGN), True),
        ("b", (OWN, FOREIGN), False),
        ("b-2", (OWN, FOREIGN), True),
        ("b-1", (OWN, FOREIGN), False),
    ],
)
def test_one_of_many_or_all_of_them(request_: str, found: tuple[Seen, Seen], shown: bool) -> None:
    run = Run(crowd(request_, "foreign"), Mode.OFF)
    seen = {"a": RANGE, "b-1": found[0], "b-2": found[1]}
    assert judge(run, seen, None).failed_as_expected is shown


# What it comes to


@pytest.mark.parametrize(("run", "failed"), [(GUARDED, None), (ALONE, None), (OFF, False)])
def test_what_was_not_carried_out_has_not_held_and_not_failed(
    run: Run, failed: bool | None
) -> None:
    judged = not_carried_out(run, "waited 30 s for something")
    assert (judged.held, judged.failed_as_expected, judged.ok) == (False, failed, False)
    assert judged.wrong == ("not carried out: waited 30 s for something",)


def row(run: Run, *, fine: bool) -> Row:
    good = {"a": WRONG if run.mode is Mode.OFF else RANGE, "b": OWN}
    return row_of(run, judge(run, good if fine else {"a": SHARED, "b": OWN}, None), Outcome(), 0.5)


CLEAN = Cleaned("stack-01", ("made",), "gone", {"processes_left": 0}, True)


def test_a_run_of_drills_is_only_as_good_as_its_worst_row() -> None:
    good = tuple(row(run, fine=True) for run in (GUARDED, ALONE, OFF))
    assert DrillRun(1, good, (), (CLEAN,), ()).ok
    for run in (GUARDED, ALONE, OFF):
        assert not DrillRun(1, (*good, row(run, fine=False)), (), (CLEAN,), ()).ok
    assert not DrillRun(1, good, (), (CLEAN, replace(CLEAN, verified=False)), ()).ok


def test_what_was_skipped_as_a_whole_has_shown_nothing() -> None:
    skipped = (Skipped("made", "it needs drill mode"),)
    assert not DrillRun(1, (), skipped, (), ()).ok
    assert DrillRun(1, (row(ALONE, fine=True),), skipped, (), ()).ok
    assert DrillRun(1, (), (), (), ()).ok, "nothing was asked for"
    assert not joined([DrillRun(1, (), skipped, (), ()), DrillRun(1, (), (), (), ())], 1).ok


def test_the_document_has_a_row_for_each_run() -> None:
    rows = tuple(row(run, fine=True) for run in (GUARDED, ALONE, OFF))
    told = DrillRun(7, rows, (), (CLEAN,), ()).document("deleted at the end")
    assert (told["ok"], told["seed"], told["skipped"]) == (True, 7, [])
    assert [(r["guards_off"], r["held"], r["failed_as_expected"]) for r in told["rows"]] == [
        ((), True, None),
        (("input",), True, None),
        (("input", "range"), False, True),
    ]
    assert told["rows"][2] == {
        "drill": "made",
        "round": "receipt",
        "level": 2,
        "guards_off": ("input", "range"),
        "held": False,
        "failed_as_expected": True,
        "expected": "a: an answer from pages that do not hold its prompt",
        "saw": "nothing",
        "refusal": None,
        "http_status": None,
        "recorded_by": "",
        "seconds": 0.5,
        "message": "",
    }
    assert told["cleanup"]["verified"] is True
    assert told["cleanup"]["places"][0]["figures"] == {"processes_left": 0}
