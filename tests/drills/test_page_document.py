"""What the page says of the drills: only what is stated to be good is shown as good."""

from __future__ import annotations

from typing import Any
from xml.etree.ElementTree import Element

import pytest

from kvairlock.core.guards import Guard
from kvairlock.drills.report import document as said
from kvairlock.drills.report.document import Result, result_of
from kvairlock.drills.report.tables import MISSING, shown

ON: dict[str, Any] = {
    "drill": "range",
    "round": "receipt",
    "level": 2,
    "guards_off": [],
    "held": True,
    "failed_as_expected": None,
    "expected": "502 handoff_range_mismatch",
    "saw": "502 handoff_range_mismatch",
    "refusal": "handoff_range_mismatch",
    "http_status": 502,
    "recorded_by": "decode-0: range",
    "seconds": 0.4,
    "message": "",
}
OFF = {**ON, "guards_off": ["contract", "range"], "held": False, "failed_as_expected": True}
GOOD = {"ok": True, "seed": 7, "rows": [ON, OFF], "skipped": [], "cleanup": {"verified": True}}


def words(element: Element) -> str:
    return " ".join(" ".join(element.itertext()).split())


@pytest.mark.parametrize(
    ("row", "result"),
    [
        (ON, Result.HELD),
        (OFF, Result.FAILED),
        ({**ON, "held": False}, Result.LEAKED),
        ({**OFF, "failed_as_expected": False}, Result.SHADOWED),
        ({**ON, "held": None}, Result.UNSTATED),
        ({**ON, "held": "yes"}, Result.UNSTATED),
        ({**ON, "failed_as_expected": "yes"}, Result.UNSTATED),
        ({"held": True}, Result.UNSTATED),
        ({"failed_as_expected": None}, Result.UNSTATED),
        ({}, Result.UNSTATED),
    ],
)
def test_a_row_is_good_only_if_it_says_so(row: dict[str, Any], result: Result) -> None:
    assert result_of(row) is result
    assert (result in said.GOOD) == (result in (Result.HELD, Result.FAILED))


def test_all_is_well_only_if_document_and_rows_agree() -> None:
    line = said.summary(GOOD)
    assert line.get("class") == "summary good"
    assert words(line) == (
        "✓ Everything came out as it must: 2 of 2 runs. Canaries are drawn from seed 7."
    )


@pytest.mark.parametrize(
    ("change", "doubt"),
    [
        ({"ok": False}, "Not everything came out as it must: 2 of 2 runs."),
        ({"rows": [ON, {**OFF, "failed_as_expected": False}]}, "says that all is well; its rows"),
        ({"rows": []}, "Nothing was carried out."),
        ({"rows": None}, "Nothing was carried out."),
        ({"ok": "true"}, "Not everything came out as it must"),
    ],
)
def test_whatever_is_in_doubt_is_not_well(change: dict[str, Any], doubt: str) -> None:
    line = said.summary({**GOOD, **change})
    assert line.get("class") == "summary bad"
    assert doubt in words(line)


def test_a_document_that_does_not_say_whether_all_is_well_is_in_doubt() -> None:
    line = said.summary({"rows": [ON]})
    assert line.get("class") == "summary bad"
    assert "does not say whether all is well" in words(line)


def test_the_table_has_a_row_for_each_run() -> None:
    table = said.results(GOOD).find(".//table")
    assert table is not None
    cells = [[words(cell) for cell in row] for row in table.iterfind("tbody/tr")]
    assert cells[0] == [
        "range",
        "receipt",
        "2",
        "none",
        "✓ held",
        "502 handoff_range_mismatch",
        "502 handoff_range_mismatch",
        "decode-0: range",
        "502 handoff_range_mismatch",
        "0.4",
    ]
    assert cells[1][3:5] == ["contract, range", "✓ failed as it must"]
    assert [words(head) for head in table.iterfind("thead/tr/th")] == list(said.COLUMNS)


def test_what_a_row_does_not_say_is_shown_as_not_stated() -> None:
    table = said.results({"rows": [{"message": "no answer", "level": None}]}).find(".//table")
    assert table is not None
    (row,) = table.iterfind("tbody/tr")
    assert [words(cell) for cell in row] == [
        MISSING,
        MISSING,
        "beside",
        MISSING,
        f"✗ {MISSING}",
        MISSING,
        f"{MISSING} no answer",
        "nobody",
        "nothing",
        MISSING,
    ]


def test_rounds_and_levels_without_a_run_are_shown_as_such() -> None:
    table = said.coverage(GOOD).find(".//table")
    assert table is not None
    heads = [words(head) for head in table.iterfind("thead/tr/th")]
    assert heads == ["round", "level 1", "level 2", "level 3"]
    rows = {words(row[0]): [words(cell) for cell in row[1:]] for row in table.iterfind("tbody/tr")}
    assert rows["receipt"] == ["no run", "2 of 2", "no run"]
    assert rows["capacity"] == rows["reuse"] == ["no run", "no run", "no run"]


def test_guards_that_were_never_seen_to_be_missed_are_named() -> None:
    text = words(said.coverage(GOOD))
    assert "seen to fail: contract, range." in text
    unseen = text.split("No run shows what happens without: ")[1].split(".")[0].split(", ")
    assert set(unseen) == {str(guard) for guard in Guard} - {"contract", "range"}


def test_a_guard_whose_absence_was_not_seen_does_not_count() -> None:
    missed = {**OFF, "failed_as_expected": False}
    assert "seen to fail: none." in words(said.coverage({"rows": [missed]}))


def test_skipped_drills_are_listed_with_their_reason() -> None:
    document = {**GOOD, "skipped": [{"drill": "late-write", "why": "needs failpoints"}]}
    assert "late-write needs failpoints" in words(said.coverage(document))
    assert "Skipped: 1." in words(said.summary(document))


@pytest.mark.parametrize(
    ("cleanup", "style"),
    [
        ({"verified": True, "places": [{"place": "stack-1", "figures": {"open": 0}}]}, "good"),
        ({"verified": False, "places": []}, "bad"),
        ({"verified": "yes"}, "bad"),
        ({}, "bad"),
        (None, "bad"),
        ([], "bad"),
    ],
)
def test_cleaning_up_is_verified_only_if_it_says_so(cleanup: Any, style: str) -> None:
    note = said.cleanup({"cleanup": cleanup}).find("p")
    assert note is not None
    assert note.get("class") == style


def test_any_shape_of_a_document_can_be_shown() -> None:
    element = shown({"a_b": [1, [None]], "d": (), "e": True, "f": 2.5})
    assert isinstance(element, Element)
    assert words(element) == f"a b 1, {MISSING} d none e yes f 2.5"


def test_many_alike_are_a_table_in_which_what_is_missing_is_seen() -> None:
    places = [{"place": "stack-1", "figures": {"pages_out": 0, "open": 1}}, {"how": "gone"}, 7]
    element = shown({"places": places})
    assert isinstance(element, Element)
    table = next(element.iter("table"))
    assert words(table[0]) == "places"
    assert [words(head) for head in table.iterfind("thead/tr/th")] == [
        "place",
        "figures",
        "how",
        "places",
    ]
    assert [[words(cell) for cell in row] for row in table.iterfind("tbody/tr")] == [
        ["stack-1", "pages out 0, open 1", MISSING, MISSING],
        [MISSING, MISSING, "gone", MISSING],
        [MISSING, MISSING, MISSING, "7"],
    ]


def test_what_canaries_do_not_prove_is_listed_or_said_to_be_missing() -> None:
    listed = said.not_proven({"canaries_do_not_prove": ["the order", "the hardware"]})
    assert [words(item) for item in listed.iter("li")] == ["the order", "the hardware"]
    assert MISSING in words(said.not_proven({}))
