"""Every shipped case comes out as it says, and a case that says something else fails."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kvairlock.cli import main
from kvairlock.core.guards import Guard
from kvairlock.sim.cases.case import Case
from kvairlock.sim.cases.public import language, not_replayed, reasons, rows, shipped
from kvairlock.sim.cases.reader import read
from kvairlock.sim.cases.run import Judged, play, run
from kvairlock.sim.cases.words import CaseError
from kvairlock.sim.outcome import Fault, Violation

from .written import TOLD, told

CASES = shipped()
IDS = [" ".join(case.ids) for case in CASES]
NUMBERS = (
    *(1, 2, 4, 5, 8, 9, 11, 12, 13, 15, 16, 18, 20, 21, 23, 24, 26, 27, 28, 30, 31, 32, 35, 36),
    *(37, 38, 40, 42, 43, 44, 45, 47, 49, 50, 52, 54, 56, 57, 58, 60, 61, 63, 64, 66, 67, 68),
    *(70, 71, 72, 74, 76, 77, 78, 79, 81, 83, 85, 86, 88, 89, 90, 92, 93, 95, 97, 99, 101, 102),
)
"""All public failures that were collected: what is not replayed says why."""
HARMS = frozenset({Fault.LEAK, Fault.CORRUPTION})


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_a_shipped_case_comes_out_as_it_says(case: Case) -> None:
    judged = run(case)
    assert [line for row in judged.rows for line in row.wrong] == []
    assert judged.ok


def test_every_public_failure_is_replayed_or_says_why_not() -> None:
    replayed = [name for case in CASES for name in case.ids]
    left_out = not_replayed()
    everything = sorted([*replayed, *left_out], key=lambda name: int(name[3:]))
    assert everything == [f"PC-{number:02}" for number in NUMBERS]
    assert len(NUMBERS) == 68
    assert (len(replayed), len(left_out)) == (55, 13)
    assert all(left_out.values())


def test_most_failures_show_once_something_is_absent() -> None:
    shown = [case for case in CASES if case.failing is not None]
    assert len(shown) > 35
    absent = {guard for case in shown if case.failing for guard in case.failing.guards}
    assert set(Guard) - absent == {Guard.STRIP, Guard.FRAME}  # test_cases_language.py has these


def test_a_case_comes_out_the_same_each_time() -> None:
    case = next(case for case in CASES if case.ids == ("PC-21",))
    assert run(case) == run(case)


def test_all_guards_hold_in_every_case_but_in_the_failing_telling() -> None:
    for case in CASES:
        for telling in case.right:
            faults = {violation.fault for violation in play(case, telling).violations}
            assert not faults & HARMS, case.ids


# A runner that cannot fail proves nothing


def wrong_in(judged: Judged) -> list[str]:
    return list(judged.rows[0].wrong)


def test_what_is_not_text_is_no_case(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    binary = tmp_path / "binary"
    binary.write_bytes(b"\x7fELF\xff\xfe")
    with pytest.raises(SystemExit) as ended:
        main(["cases", str(binary)])
    assert ended.value.code == 2
    assert capsys.readouterr().err == f"kvairlock: {binary}:1: this is not text in UTF-8\n"


def test_a_wrong_outcome_fails() -> None:
    judged = run(told(expected="a ends completed", without="drain: b reads bytes of a"))
    assert wrong_in(judged) == ["with guards, not: a ends completed"]
    assert not judged.ok


def test_a_failure_that_does_not_show_fails() -> None:
    judged = run(told(expected="a ends cancelled", without="scope: b reads bytes of a"))
    assert wrong_in(judged) == ["without scope, not: b reads bytes of a"]


def test_a_failure_that_shows_with_guards_as_well_fails() -> None:
    judged = run(told(expected="a ends cancelled", without="drain: a ends cancelled"))
    assert wrong_in(judged) == [
        "without drain: nothing shows that does not show with guards",
    ]


def test_a_violation_with_guards_fails_though_nobody_expected_anything_else() -> None:
    case = told(expected="a ends cancelled", without="drain: b reads bytes of a")
    assert case.failing is not None
    careless = replace(case, right=(replace(case.failing, expected=case.right[0].expected),))
    found = wrong_in(run(careless))
    assert "without drain: leak: decode: b/1 read bytes of a/1" in found


def test_what_holds_even_without_a_guard_is_judged_as_strictly() -> None:
    case = told(expected="a ends cancelled", even="drain: a ends cancelled", without="")
    assert any("leak" in line for line in wrong_in(run(case)))


def test_a_row_says_what_was_expected_and_what_came() -> None:
    row = run(told(expected="a ends cancelled", without="drain: b reads bytes of a")).rows[0]
    assert (row.id, row.title) == ("X-1", "a story")
    assert (row.expected, row.outcome) == ("a ends cancelled", "a: cancelled; b: completed")
    assert (row.without, row.failure) == (("drain",), "b reads bytes of a")
    assert row.steps == 25


# Steps


def test_a_step_that_cannot_happen_is_answered_with_those_that_can() -> None:
    text = TOLD.replace("  page 1 of a lands\n", "  page 2 of a lands\n")
    with pytest.raises(CaseError) as raised:
        run(read(text, "a.case"))
    first, *can = str(raised.value).splitlines()
    assert first == (
        "a.case:17: with guards, `page 2 of a lands`: this cannot happen now; what can:"
    )
    assert "    page 1 of a lands" in can
    assert "    a's client leaves" in can
    assert "    bob sends b" in can
    assert "    page 2 of a lands" not in can


def test_a_request_that_no_step_sends_is_an_error() -> None:
    with pytest.raises(CaseError, match=r"a\.case:1: no step sends b"):
        run(read(TOLD.replace("  bob sends b\n", ""), "a.case"))


def test_what_was_never_held_back_cannot_go_on() -> None:
    text = TOLD.replace("  page 1 of a lands\n", "  from now on: the receipt of a arrives\n")
    with pytest.raises(CaseError, match="nothing of this was held back"):
        run(read(text, "a.case"))


def test_without_deadlines_none_ever_passes() -> None:
    case = next(case for case in CASES if case.ids == ("PC-43",))
    assert case.failing is not None
    played = play(case, case.failing)
    assert "a" not in played.ends
    assert Violation(Fault.NOT_ENDED, "a/1 never ended") in played.violations
    assert not any("time passes" in line for line in played.story)


# What the docs show


def test_the_example_of_the_docs_comes_out_as_it_says() -> None:
    page = (Path(__file__).parents[2] / "docs" / "cases.md").read_text()
    example = page.split("```text\n")[1].split("```")[0]
    judged = run(read(example, "docs/cases.md"))
    assert wrong_in(judged) == []
    assert judged.rows[0].id == "MINE-1"


def test_docs_have_a_row_for_each_case_and_each_phrase() -> None:
    assert [row[0].split(", ")[0] for row in rows()] == [case.ids[0] for case in CASES]
    assert all(all(cells) for cells in rows())
    assert [name for name, _ in reasons()] == list(not_replayed())
    page = (Path(__file__).parents[2] / "docs" / "cases.md").read_text()
    shown = sum(len(case.ids) for case in CASES if case.failing is not None)
    everything = sum(len(case.ids) for case in CASES)
    assert f"Of {everything} reports that are played, {shown} are shown to fail" in page
    assert f"{everything - shown} are *built in*" in page
    tables = language()
    assert list(tables) == ["world", "steps", "expectations"]
    assert all(does for table in tables.values() for _, does in table)
