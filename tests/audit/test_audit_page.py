"""The page of an audit: one file, every affected request in it, and no figure that records lack."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from xml.etree.ElementTree import Element

import pyarrow as pa
import pytest
from ibis.backends import BaseBackend

from kvairlock.audit.auditing import audit
from kvairlock.audit.histories import INCIDENTS, History, history
from kvairlock.audit.page import affected, html, others, timelines, write
from kvairlock.audit.page.words import DIGITS, spaced, utc
from kvairlock.audit.report import Class, Report
from kvairlock.audit.story import Story, story_of
from kvairlock.audit.synthetic import Row
from kvairlock.audit.tables import evidence_of
from kvairlock.pictures.names import page_ranges
from kvairlock.sink.columns import WIDE
from tests.pictures.pages import assert_harmless, assert_in_levels, assert_served, main_of, words

EVIL = "</title><script>alert('x')</script><img src=x onerror=alert(1)>\u202e\x1b]${body}{0}"
BYTES_MAX = 5_000_000
MS = 1_000_000

HISTORIES = {name: history(seed, INCIDENTS[name]) for seed, name in enumerate(INCIDENTS)}
INCIDENT = HISTORIES["the incident"]


class Made:
    """A page with what it was made from."""

    def __init__(self, engine: BaseBackend, rows: Iterable[Row]) -> None:
        table = pa.Table.from_pylist(list(rows), schema=WIDE)
        evidence = evidence_of(engine.create_table("paged", table, overwrite=True))
        self.report: Report = audit(evidence)
        self.story: Story = story_of(evidence, self.report)
        self.html = html(self.report, self.story)
        self.main = main_of(self.html)

    def section(self, uid: str) -> Element:
        return next(part for part in self.main.iter("section") if part.get("id") == uid)

    def rows(self, uid: str, caption: str) -> list[list[str]]:
        """Return the cells of the table with a caption like this in a section."""
        tables = self.section(uid).iter("table")
        found = next(t for t in tables if words(t[0]).startswith(caption))
        return [[words(cell) for cell in row] for row in found.iterfind("tbody/tr")]


@pytest.fixture(scope="module")
def all_of_them(engine: BaseBackend) -> Made:
    """Every kind of incident, in lives of its own."""
    return Made(engine, [row for made in HISTORIES.values() for row in made.rows])


@pytest.fixture(scope="module")
def incident(engine: BaseBackend) -> Made:
    return Made(engine, INCIDENT.rows)


@pytest.fixture(scope="module")
def lossy(engine: BaseBackend) -> Made:
    """The incident, of which one record of decode and all of prefill-1 are lost."""
    rows = [r for r in INCIDENT.rows if r["node"] != "prefill-1"]
    return Made(engine, [r for r in rows if r is not lost(INCIDENT)])


def lost(made: History) -> Row:
    decode = [row for row in made.rows if row["role"] == "decode"]
    return sorted(decode, key=lambda row: row["sequence"])[len(decode) // 2]


def test_the_page_needs_nothing_else(all_of_them: Made) -> None:
    assert_harmless(all_of_them.html)


def test_whoever_reads_it_aloud_or_with_keys_is_served(all_of_them: Made, lossy: Made) -> None:
    for made in (all_of_them, lossy):
        assert_served(made.main)
        assert_in_levels(made.main)


def test_it_is_written_as_one_file_and_the_same_each_time(incident: Made, tmp_path: Path) -> None:
    path = tmp_path / "audit.html"
    write(incident.report, incident.story, path)
    assert path.read_text(encoding="utf-8") == incident.html
    assert incident.html == html(incident.report, incident.story)


def test_the_three_counts_are_those_of_the_report(all_of_them: Made) -> None:
    cards = [words(part) for part in all_of_them.main.iterfind(".//a[@class]")]
    counts = [card.split()[0] for card in cards if card.split()[2] in set(Class)]
    assert counts == [f"{count:,}" for count in all_of_them.report.counts().values()]
    summary = words(all_of_them.section("summary"))
    total = sum(all_of_them.report.counts().values())
    assert f"{len(expected_affected())} of {total} requests are affected." in summary


def expected_affected() -> set[str]:
    return {request for made in HISTORIES.values() for request in made.affected}


def test_every_affected_request_is_listed_with_reasons_grade_and_exposures(
    all_of_them: Made,
) -> None:
    rows = {row[0].split()[1]: row for row in all_of_them.rows("affected", "Affected requests")}
    verdicts = list(all_of_them.report.verdicts(Class.AFFECTED))
    assert set(rows) == {verdict.request for verdict in verdicts} == expected_affected()
    for verdict in verdicts:
        row = rows[verdict.request]
        assert row[2] == verdict.grade
        assert row[3] == ", ".join(map(spaced, verdict.reasons))
        met = [e for e in all_of_them.report.exposures if e.request == verdict.request]
        for exposure in met:
            assert f"request {exposure.other}" in row[6]
            assert f"{page_ranges(exposure.pages)} of {exposure.node}, generation" in row[6]
        assert bool(met) == (row[6] != "nobody whom records name")


def test_reasons_are_counted_over_the_requests_of_the_class(all_of_them: Made) -> None:
    verdicts = list(all_of_them.report.verdicts(Class.AFFECTED))
    for reason, _, count in all_of_them.rows("affected", "Why requests are affected"):
        fired = [v for v in verdicts if reason in map(spaced, v.reasons)]
        assert int(count) == len(fired) > 0


def test_every_request_that_is_told_of_has_a_picture_and_its_reasons(all_of_them: Made) -> None:
    articles = all_of_them.section("pages").findall("article")
    assert len(articles) == len(all_of_them.story.told) > 10
    for told, article in zip(all_of_them.story.told, articles, strict=True):
        assert words(article[0]) == f"Request {told.verdict.request[:DIGITS]}"
        had_pages = any(row.get("pages") for row in told.records)
        assert (article.find(".//svg[@role='img']") is not None) == had_pages
        assert (timelines.NOTHING_TO_DRAW in words(article)) != had_pages
        for reason in told.verdict.reasons:
            assert spaced(reason) in words(article)
        assert told.verdict.request in words(article)
    left = all_of_them.report.counts()[Class.AFFECTED] - len(articles)
    assert f"not drawn: {left}." in words(all_of_them.section("pages"))


def test_who_held_what_when_is_as_recorded(incident: Made) -> None:
    (told,) = incident.story.told
    zero_ns = min(row["at_boot_ns"] for row in told.records if "request" in row)
    table = incident.rows("pages", "Who held")
    given = [r for r in told.records if r["event"] == "pages_allocated" and r["role"] == "decode"]
    assert {row["request"] for row in given} == {told.verdict.request, *told.others}
    for row in given:
        ended = next(
            r
            for r in told.records
            if r["event"] == "drain_ended"
            and r["lease"] == row["lease"]
            and r["node"] == row["node"]
        )
        held = [
            cells
            for cells in table
            if cells[0] == row["node"]
            and row["request"].startswith(cells[2].split(" · ")[0])
            and cells[3].startswith("holds")
        ]
        assert held
        for cells in held:
            assert cells[3].startswith(f"holds, generation {row['generations'][0]}: reserved")
            assert cells[4] == f"{(row['at_boot_ns'] - zero_ns) / MS:,.1f}"
            assert cells[5] == f"{(ended['at_boot_ns'] - zero_ns) / MS:,.1f}"


def test_the_caption_says_the_figures_of_the_records(incident: Made) -> None:
    (told,) = incident.story.told
    article = words(incident.section("pages"))
    by_event = {row["event"]: row for row in told.own if row["role"] != "gateway"}
    computed, verdict = by_event["range_computed"], by_event["verdict"]
    assert f"computed tokens [{computed['start']}, {computed['stop']})" in article
    assert f"stated: {by_event['receipt_sent']['outcome']}." in article
    assert f"of {verdict['expected_tokens']} expected" in article
    assert f"It read {page_ranges(by_event['read_started']['pages'])}" in article
    met = {page for exposure in told.exposures for page in exposure.pages}
    assert f"{len(met)} pages that it could reach had been, or became, those of" in article


def test_what_must_not_be_is_hatched_numbered_and_about_the_request(incident: Made) -> None:
    (told,) = incident.story.told
    picture = incident.section("pages").find(".//svg[@role='img']")
    assert picture is not None
    assert "read, not confirmed" in words(picture)
    assert "admitted, not completed" in words(picture)
    assert [p for p in picture.iter("rect") if p.get("class") == "hatch"]
    assert told.verdict.request[:4] in words(picture)


def test_the_next_owners_of_the_pages_are_in_the_story(incident: Made) -> None:
    (told,) = incident.story.told
    given = sorted(
        (r for r in INCIDENT.rows if r["event"] == "pages_allocated" and r["role"] == "decode"),
        key=lambda row: row["sequence"],
    )
    own = next(row for row in given if row["request"] == told.verdict.request)
    later = [row for row in given if row["sequence"] > own["sequence"]]
    after = {
        next((r["request"] for r in later if page in r["pages"]), None) for page in own["pages"]
    } - {None}
    assert after <= set(told.others)
    assert told.others_left_out == 0


def test_a_story_holds_records_of_its_own_nodes_and_cast_only(all_of_them: Made) -> None:
    for told in all_of_them.story.told:
        lives = {(row["node"], row["incarnation"]) for row in told.own}
        assert {(row["node"], row["incarnation"]) for row in told.records} == lives
        named = {row["request"] for row in told.records if "request" in row}
        assert told.verdict.request in named <= {told.verdict.request, *told.others}


def test_nothing_that_a_record_says_becomes_markup(engine: BaseBackend) -> None:
    evil = {"node": EVIL, "tenant": EVIL}
    rows = [
        row | {name: value for name, value in evil.items() if name in row}
        for row in INCIDENT.rows
        if row["role"] == "prefill" or "tenant" in row
    ]
    made = Made(engine, rows)
    assert_harmless(made.html)
    assert "<script" not in made.html
    assert "alert('x')" in words(made.section("coverage"))


def test_what_is_missing_is_named_in_the_picture_and_in_the_tables(lossy: Made) -> None:
    picture = lossy.section("coverage").find(".//svg[@role='img']")
    assert picture is not None
    assert "events lost" in words(picture)
    assert "no evidence; named by" in words(picture)
    missing = lost(INCIDENT)
    (gap,) = (row for row in lossy.rows("coverage", "What is not covered") if row[1] == "decode-0")
    assert gap[0] == "events lost"
    assert f"{missing['sequence']} to {missing['sequence']}" in gap[6]
    decode = [r for r in INCIDENT.rows if r["role"] == "decode"]
    beats = [r for r in decode if r["event"] == "beat" and r["sequence"] < missing["sequence"]]
    assert gap[3] == utc([*decode[:1], *beats][-1]["at_unix_ns"])
    (named,) = lossy.rows("coverage", "Lives that are named")
    assert named[0] == "prefill-1"
    assert "prefill-1" in words(lossy.section("limits"))


def test_nothing_is_said_to_be_missing_where_evidence_is_whole(incident: Made) -> None:
    assert "No gap" in words(incident.section("coverage"))
    assert "nothing that the evidence itself would show" in words(incident.section("summary"))


def test_insufficient_requests_are_counted_by_reason(lossy: Made) -> None:
    verdicts = list(lossy.report.verdicts(Class.INSUFFICIENT))
    assert verdicts
    rows = lossy.rows("insufficient", "What is missing")
    assert {row[0] for row in rows} == {spaced(r) for v in verdicts for r in v.reasons}
    for reason, _, count, examples in rows:
        fired = {v.request for v in verdicts if reason in map(spaced, v.reasons)}
        assert int(count) == len(fired)
        assert {word for word in examples.split() if len(word) > DIGITS} <= fired
    listed = {row[0].split()[1] for row in lossy.rows("insufficient", "By the time")}
    assert listed == {verdict.request for verdict in verdicts}


def test_excluded_requests_are_counted_by_hour_and_route(all_of_them: Made) -> None:
    rows = all_of_them.rows("excluded", "Excluded requests by hour")
    count = all_of_them.report.counts()[Class.EXCLUDED]
    assert sum(int(row[2].replace(",", "")) for row in rows) == count
    routes = {row[1] for row in rows}
    assert routes == {"prefill-0/decode-0", "prefill-1/decode-0", "none: the gateway refused it"}


def test_where_nobody_is_named_nothing_is_said_to_be_well(engine: BaseBackend) -> None:
    made = Made(engine, [row for row in INCIDENT.rows if "request" not in row])
    assert sum(made.report.counts().values()) == 0
    assert "No request is named in what was read" in words(made.section("summary"))
    assert_served(made.main)


def test_a_guarded_history_is_all_excluded_and_has_no_picture(engine: BaseBackend) -> None:
    made = Made(engine, history(7).rows)
    assert "requests are excluded" in words(made.section("summary"))
    assert made.story.told == ()
    assert "no affected request" in words(made.section("pages"))


def times(report: Report, count: int) -> Report:
    """The same report of so many times as many requests, each with a name of its own."""
    parts = []
    for number in range(count):
        renamed = [f"{number:x}-{name}" for name in report.classified["request"].to_pylist()]
        place = report.classified.column_names.index("request")
        kind = report.classified.schema.field("request").type
        parts.append(report.classified.set_column(place, "request", pa.array(renamed, kind)))
    exposures = [
        replace(exposure, request=f"{number:x}-{exposure.request}")
        for number in range(count)
        for exposure in report.exposures
    ]
    return replace(report, classified=pa.concat_tables(parts), exposures=tuple(exposures))


def test_a_large_audit_stays_small_enough_to_be_sent_and_counts_what_it_leaves_out(
    all_of_them: Made,
) -> None:
    many = times(all_of_them.report, 500)
    made = html(many, all_of_them.story)
    assert len(made.encode()) < BYTES_MAX
    main = words(main_of(made))
    counts = many.counts()
    assert f"not listed: {counts[Class.AFFECTED] - affected.REQUESTS_MAX:,}." in main
    assert f"not listed: {counts[Class.INSUFFICIENT] - others.LISTED_MAX:,}." in main
    assert f"{counts[Class.EXCLUDED]:,} requests." in main


def test_where_pictures_take_too_much_room_requests_are_told_in_words(
    all_of_them: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timelines, "BYTES_MAX", 1)
    section = timelines.timelines(all_of_them.story)
    assert len(section.findall("article")) == len(all_of_them.story.told)
    assert section.find(".//svg") is None
    assert len(re.findall("no room for its picture", words(section))) == len(all_of_them.story.told)
