import re
from pathlib import Path

import pytest

from kvairlock.sim.cases.public import not_replayed, shipped

from .conftest import Command

CASE = """case X-1: less than the whole prompt is computed
world:
  alice asks a: 4 tokens
  prefill computes all but the last token of a
steps:
  alice sends a
with guards:
  a ends refused {reason}
without range:
  a misses tokens
"""


@pytest.fixture
def case(tmp_path: Path) -> Path:
    path = tmp_path / "mine.case"
    path.write_text(CASE.format(reason="range"))
    return path


def test_all_shipped_cases_are_played(kvairlock: Command) -> None:
    ran = kvairlock("cases", "--json")
    assert ran.status == 0
    found = ran.json
    assert found["summary"] == {"cases": 55, "failed": 0, "not_replayed": 13}
    assert [row["id"] for row in found["rows"]] == [n for c in shipped() for n in c.ids]
    assert found["not_replayed"] == not_replayed()
    row = next(row for row in found["rows"] if row["id"] == "PC-11")
    assert row == {
        "id": "PC-11",
        "title": "less than the whole prompt is computed, and the answer is given all the same",
        "expected": "a ends refused range; a is never read; b ends completed",
        "outcome": "a: range; b: completed",
        "ok": True,
        "without": ["range"],
        "failure": "a misses tokens",
        "steps": row["steps"],
        "wrong": [],
    }
    assert row["steps"] > 10


def test_a_case_of_ones_own(kvairlock: Command, case: Path) -> None:
    ran = kvairlock("cases", case)
    assert ran.status == 0
    assert re.search(r"^X-1 +a: range +range +a misses tokens +yes *$", ran.out, re.MULTILINE)
    assert "1 cases, 0 not as expected, 0 not replayed" in ran.out


def test_a_case_that_does_not_come_out_has_status_1(kvairlock: Command, case: Path) -> None:
    case.write_text(CASE.format(reason="layout").replace("refused layout", "completed"))
    ran = kvairlock("cases", case)
    assert ran.status == 1
    assert "X-1: with guards, not: a ends completed" in ran.out
    assert kvairlock("cases", case, "--json").json["rows"][0]["ok"] is False


def test_what_happened_can_be_shown(kvairlock: Command, case: Path) -> None:
    shown = kvairlock("cases", case, "--show").out
    assert "X-1, with guards\n    alice sends a\n    the grant of a arrives\n" in shown
    assert "X-1, without range\n" in shown
    assert "!! corruption: decode: a/1 did not find its tokens 3" in shown
    stories = kvairlock("cases", case, "--show", "--json").json["rows"][0]["stories"]
    assert list(stories) == ["with guards", "without range"]


def test_they_can_be_listed(kvairlock: Command, case: Path) -> None:
    listed = kvairlock("cases", "--list", "--json").json
    assert len(listed["rows"]) == 55
    assert len(listed["not_replayed"]) == 13
    text = kvairlock("cases", "--list").out
    assert "PC-21" in text
    assert "PC-71" in text
    mine = kvairlock("cases", case, "--list", "--json").json
    title = "less than the whole prompt is computed"
    assert mine == {
        "rows": [{"id": "X-1", "title": title, "file": str(case)}],
        "not_replayed": {},
    }


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("alice sends a", "alice asks"), ":6: nobody understands `alice asks`"),
        (
            ("alice sends a", "decode begins a step"),
            ":6: with guards, `decode begins a step`: this",
        ),
    ],
)
def test_a_case_that_cannot_be_read_or_played_has_status_2(
    kvairlock: Command, case: Path, change: tuple[str, str], says: str
) -> None:
    case.write_text(CASE.format(reason="range").replace(*change))
    ran = kvairlock("cases", case)
    assert (ran.status, ran.out) == (2, "")
    assert ran.err.startswith(f"kvairlock: {case}{says}")
    assert len(ran.err.splitlines()) > 2


def test_a_file_that_is_not_there_has_status_2(kvairlock: Command, tmp_path: Path) -> None:
    ran = kvairlock("cases", tmp_path / "none.case")
    assert ran.status == 2
    assert "none.case: No such file" in ran.err
