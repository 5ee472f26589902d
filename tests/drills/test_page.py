"""The report as a page: one file, the same each time, for every reader, whatever is in it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kvairlock.drills.report.page import page, write_page
from kvairlock.drills.report.runs import RUNS_MAX, RUNS_OPEN
from kvairlock.drills.runs.rows import RunEvidence
from kvairlock.pictures.edges import Who
from kvairlock.pictures.view import LINES_MAX, LINES_OPEN
from tests.pictures.pages import assert_harmless, assert_in_levels, assert_served, main_of, words
from tests.pictures.recorded import ACME, BRAVO, Node, computed, decode, ended, prefill, received

DOCUMENT: dict[str, Any] = {
    "ok": True,
    "seed": 7,
    "rows": [
        {
            "drill": "range",
            "round": "receipt",
            "level": 2,
            "guards_off": [],
            "held": True,
            "failed_as_expected": None,
        }
    ],
    "skipped": [{"drill": "late-write", "why": "needs failpoints"}],
    "cleanup": {"verified": True, "places": [{"place": "stack-1"}]},
    "canaries_do_not_prove": ["that no page was read"],
}
EVIL = "</title><script>alert('x')</script><img src=x onerror=alert(1)>\u202e\x1b]${body}{0}"


def evidence(folder: Path, *nodes: Node, title: str = "stack 1") -> RunEvidence:
    folder.mkdir(parents=True, exist_ok=True)
    for node in nodes:
        lines = (json.dumps(record) + "\n" for record in node.records)
        (folder / f"{node.name}.jsonl").write_text("".join(lines))
    return RunEvidence(title, folder)


@pytest.fixture
def leak(tmp_path: Path) -> RunEvidence:
    """bravo reads acme's pages on decode-0."""
    taker, giver = decode("direct"), prefill()
    computed(giver, 9, ACME, [5], "w")
    received(taker, 10, ACME, [0, 1], "w")
    taker.record(20, "read_started", BRAVO, pages=[0, 1])
    taker.record(25, "request_ended", BRAVO, end="completed")
    ended(taker, 30, ACME, [0, 1])
    taker.close(40)
    return evidence(tmp_path / "leak", taker, giver)


def test_the_page_needs_nothing_else(leak: RunEvidence) -> None:
    assert_harmless(page(DOCUMENT, [leak]))


def test_it_is_written_as_one_file(leak: RunEvidence, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text("what was there before")
    write_page(path, DOCUMENT, [leak])
    assert path.read_text(encoding="utf-8") == page(DOCUMENT, [leak])
    assert path.read_text().startswith('<!doctype html>\n<html lang="en">')


def test_the_same_input_gives_the_same_page(leak: RunEvidence) -> None:
    assert page(DOCUMENT, [leak]) == page(DOCUMENT, [leak])


def test_the_leak_is_in_words_in_the_picture_and_in_the_table(leak: RunEvidence) -> None:
    main = main_of(page(DOCUMENT, [leak]))
    findings = [words(item) for item in main.iterfind(".//ol[@class='findings']/li")]
    assert findings[0] == (
        "decode-0, pages 0\N{EN DASH}1, 20.0 to 25.0 ms: "
        "request b0b0 · tenant bbbb reads pages of request a0a0 · tenant aaaa"
    )
    (picture,) = main.iterfind(".//svg[@role='img']")
    assert "1 another owner's page: b0b0" in words(picture)
    table = next(t for t in main.iter("table") if words(t[0]).startswith("Who held"))
    assert ["decode-0", "pages 0\N{EN DASH}1", "b0b0 · bbbb", "reads", "20.0", "25.0", ""] in [
        [words(cell) for cell in row] for row in table.iterfind("tbody/tr")
    ]
    assert "2 findings, and gaps in the evidence" in words(next(main.iter("summary")))


def test_the_story_is_told_from_admission_on(leak: RunEvidence) -> None:
    main = main_of(page(DOCUMENT, [leak]))
    lines = [words(item) for item in main.iterfind(".//ol[@class='story']/li")]
    assert lines[0] == "9.0 ms prefill-0 admit a0a0 · aaaa page 5 allocated, lease 1"
    assert "20.0 ms decode-0 read b0b0 · bbbb reads pages 0\N{EN DASH}1" in lines
    assert lines[-1].endswith("free again after 0 ms, fence: acknowledged")


def test_whoever_reads_it_aloud_or_with_keys_is_served(leak: RunEvidence) -> None:
    assert_served(main_of(page(DOCUMENT, [leak])))


def test_headings_leave_no_level_out(leak: RunEvidence) -> None:
    assert_in_levels(main_of(page(DOCUMENT, [leak])))


def test_light_and_dark_and_narrow_are_provided_for(leak: RunEvidence) -> None:
    html = page(DOCUMENT, [leak])
    assert html.count("prefers-color-scheme: dark") == 2
    assert "max-width: 720px" in html
    assert 'name="viewport"' in html


def strings_of(value: Any) -> Any:
    """Replace every text of a document."""
    if isinstance(value, dict):
        return {name: strings_of(part) for name, part in value.items()}
    if isinstance(value, list):
        return [strings_of(part) for part in value]
    return EVIL if isinstance(value, str) else value


def test_texts_of_the_document_are_never_markup(tmp_path: Path) -> None:
    document = strings_of(DOCUMENT) | {EVIL: EVIL}
    document["cleanup"][EVIL] = {EVIL: EVIL}
    html = page(document, [RunEvidence(EVIL, tmp_path)])
    assert_harmless(html)
    assert "<script>alert('x')</script>" in words(main_of(html))
    assert not {"\u202e", "\x1b"} & set(html)


def test_texts_of_records_are_never_markup(tmp_path: Path) -> None:
    node = Node(EVIL, decode().role, EVIL)
    node.start(EVIL, guards_off=(EVIL,))
    who = Who(EVIL, EVIL)
    received(node, 10, who, [0, 1], EVIL)
    node.record(15, "failpoint", point=EVIL, action=EVIL)
    node.record(16, "request_refused", who, stage=EVIL, reason=EVIL, limit=1, limit_name=EVIL)
    ended(node, 20, who, [0, 1], fence=EVIL)
    folder = tmp_path / "evil"
    folder.mkdir()
    text = "".join(json.dumps(record) + "\n" for record in node.records)
    (folder / "a.jsonl").write_text(text + '{"torn":')
    html = page(DOCUMENT, [RunEvidence("stack", folder)])
    assert_harmless(html)
    main = main_of(html)
    assert "<script>alert('x')</script>" in words(main)
    assert len(list(main.iterfind(".//svg[@role='img']"))) == 1
    assert not {"\u202e", "\x1b"} & set(html)


def test_evidence_that_is_gone_is_no_good_run(tmp_path: Path) -> None:
    main = main_of(page(DOCUMENT, [RunEvidence("stack", tmp_path / "gone")]))
    assert "There is no evidence: nothing of this run can be shown" in words(main)
    note = next(main.iter("summary")).find("span")
    assert note is not None
    assert (note.text, note.get("class")) == ("no evidence", "bad")
    main = main_of(page(DOCUMENT, []))
    assert "No evidence was kept" in words(main)


def test_many_runs_are_folded_listed_and_bounded(tmp_path: Path) -> None:
    def runs(count: int) -> list[RunEvidence]:
        return [RunEvidence(f"stack {n}", tmp_path / "gone") for n in range(count)]

    few = main_of(page(DOCUMENT, runs(RUNS_OPEN)))
    assert [d.get("open") for d in few.iterfind(".//details[@class='run']")] == [""] * RUNS_OPEN
    many = main_of(page(DOCUMENT, runs(RUNS_MAX + 3)))
    folded = list(many.iterfind(".//details[@class='run']"))
    assert [d.get("open") for d in folded] == [None] * RUNS_MAX
    assert len(list(many.iterfind(".//ol[@class='runs']/li"))) == RUNS_MAX
    assert "Runs that are not drawn: 3." in words(many)


def test_a_long_story_is_folded_and_its_middle_is_left_out(tmp_path: Path) -> None:
    node = decode()
    for number in range(LINES_MAX + 10):
        node.record(10 + number, "message_ignored", ACME, message=f"m{number}", reason="late")
    main = main_of(page(DOCUMENT, [evidence(tmp_path / "long", node)]))
    lines = [words(item) for item in main.iterfind(".//ol[@class='story']/li")]
    assert len(lines) == LINES_MAX + 1
    assert lines[LINES_MAX // 2] == "Lines that are left out here: 10."
    assert lines[-1].endswith(f"m{LINES_MAX + 9} ignored: late")
    (story,) = (d for d in main.iter("details") if words(d[0]).startswith("The story"))
    assert (story.get("open"), LINES_MAX > LINES_OPEN) == (None, True)


def test_a_run_of_thousands_of_records_has_a_page_of_bounded_size(tmp_path: Path) -> None:
    node = decode()
    for number, who in zip(range(560), others(), strict=False):
        received(node, 10 + number * 1.13, who, [number % 64, (number + 7) % 64], f"w{number}")
        ended(node, 14.5 + number * 1.13, who, [number % 64, (number + 7) % 64])
    assert len(node.records) == 5_041
    html = page(DOCUMENT, [evidence(tmp_path / "large", node)])
    assert 500_000 < len(html) < 5_000_000
    assert "Later scenes that are not drawn" in html


def others() -> Iterator[Who]:
    number = 0
    while True:
        number += 1
        yield Who(f"{number % 5}0000000", f"{number:08x}")
