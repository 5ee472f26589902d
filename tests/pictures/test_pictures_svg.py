"""Pictures as SVG: what is held, reached and found can be seen, read and heard."""

from __future__ import annotations

from itertools import pairwise
from xml.etree.ElementTree import Element

import pytest

from kvairlock.core.memory.page import PageStage
from kvairlock.pictures.axis import Axis
from kvairlock.pictures.edges import Who
from kvairlock.pictures.history import REACHES, MarkKind, Reach
from kvairlock.pictures.legend import STAGES, legend
from kvairlock.pictures.markup import TEXT_MAX, clean, tag, written
from kvairlock.pictures.names import generation_words
from kvairlock.pictures.pen import GLYPHS, Numbered
from kvairlock.pictures.scenes import picture
from kvairlock.pictures.svg import draw, patterns, style
from tests.pictures.recorded import ACME, BRAVO, MS, Node, all_of, computed, decode, ended, prefill
from tests.pictures.recorded import received as received_by


def drawn(*nodes: Node) -> Element:
    seen = picture(all_of(*nodes))
    numbered = [Numbered(number, f) for number, f in enumerate(seen.findings, start=1)]
    return draw(seen.scenes[0], seen.names, numbered, "run-1")


def styled(svg: Element, style: str) -> list[Element]:
    """Return the elements of a class."""
    return [part for part in svg.iter() if style in part.get("class", "").split()]


def texts(svg: Element, style: str) -> list[str]:
    return [part.text or "" for part in styled(svg, style)]


def place(part: Element, name: str = "x") -> float:
    return float(part.get(name, "nan"))


@pytest.fixture
def two() -> Element:
    """acme, and then bravo, who reads acme's pages before it has its own."""
    node, giver = decode("direct"), prefill()
    computed(giver, 9, ACME, [5], "w")
    received_by(node, 10, ACME, [0, 1], "w")
    node.record(20, "read_started", BRAVO, pages=[0, 1])
    node.record(25, "request_ended", BRAVO, end="completed")
    ended(node, 30, ACME, [0, 1])
    received_by(node, 40, BRAVO, [0, 1], "v")
    ended(node, 50, BRAVO, [0, 1])
    return drawn(node, giver)


def test_a_bar_has_its_owner_and_another_tenant_another_colour(two: Element) -> None:
    bars = [group for group in two.iter("g") if styled(group, "stay")]
    assert [bar.get("class") for bar in bars] == ["t0", "t1", "t0"]
    assert texts(two, "name") == ["a0a0 · aaaa", "b0b0 · bbbb", "a0a0 · aaaa ?"]
    assert texts(two, "node") == ["decode-0", "prefill-0"]
    assert texts(two, "pages") == ["pages 0\N{EN DASH}1", "page 5"]


def test_a_bar_is_where_its_time_is_and_says_it_in_words(two: Element) -> None:
    acme, bravo, _ = styled(two, "stay")
    assert place(acme) + place(acme, "width") < place(bravo)
    title = next(two.iter("g")).findtext("title")
    assert title == (
        "pages 0\N{EN DASH}1: request a0a0 · tenant aaaa: reserved at 10.0, landing at 11.0, "
        "readable at 12.0, draining at 32.0, free at 33.0 ms, fence: acknowledged"
    )


def test_what_must_not_be_is_hatched_numbered_and_named(two: Element) -> None:
    hatches = [part.findtext("title") for part in styled(two, "hatch")]
    assert (
        hatches
        == [
            "1 another owner's page",
            "2 read, not confirmed",
            "3 read, not confirmed",
        ][: len(hatches)]
    )
    assert texts(two, "finding") == ["1 another owner's page: b0b0", "2 read, not confirmed"]
    hatch, reader = styled(two, "hatch")[0], styled(two, "read")[0]
    assert place(hatch) == place(reader, "x1")


def test_the_picture_says_in_words_what_it_shows(two: Element) -> None:
    assert two.get("role") == "img"
    assert two.get("aria-labelledby") == "run-1-title run-1-desc"
    assert two.findtext("title") == "Who held which pages, 9.0 to 53.0 ms"
    description = two.findtext("desc") or ""
    assert "Rows of pages: decode-0 1, prefill-0 1." in description
    assert "1 another owner's page" in description


def test_where_nothing_is_found_nothing_is_hatched() -> None:
    node = decode()
    received_by(node, 10, ACME, [0], "w")
    ended(node, 20, ACME, [0])
    svg = drawn(node)
    assert styled(svg, "hatch") == styled(svg, "finding") == []
    assert "Findings: none" in (svg.findtext("desc") or "")


def test_what_was_noted_has_its_letter(two: Element) -> None:
    assert texts(two, "mark") == ["✓", "✓", "c", "w"]


def test_windows_are_drawn_by_what_they_reach() -> None:
    for landing, expected in (("direct", "window"), ("copy", "window_file")):
        node = decode(landing)
        received_by(node, 10, ACME, [0], "w")
        assert len(styled(drawn(node), expected)) == 1


def test_an_end_that_is_not_recorded_is_a_question() -> None:
    node = decode()
    received_by(node, 10, ACME, [0], "w")
    assert texts(drawn(node), "name") == ["a0a0 · aaaa ?"]


def test_many_findings_of_one_kind_at_one_place_share_a_note() -> None:
    node = decode()
    received_by(node, 10, ACME, [0], "w")
    for number in range(3):
        node.record(20 + number * 0.1, "read_started", other(number), pages=[0])
    for number in range(3):
        node.record(28 + number * 0.1, "request_ended", other(number), end="completed")
    ended(node, 30, ACME, [0])
    notes = texts(drawn(node), "finding")
    assert notes == [
        "1, 3, 5 another owner's page: r000, r100, r200",
        "2, 4, 6 read, not confirmed",
    ]


def other(number: int) -> Who:
    return Who(BRAVO.tenant, f"r{number}000000")


def test_rows_that_are_not_drawn_are_said() -> None:
    node = decode()
    for page in range(30):
        received_by(node, 10 + page * 0.01, ACME, [page], f"w{page}")
    assert "Pages with a history that are not drawn: 6" in texts(drawn(node), "quiet")


def test_an_axis_keeps_the_order_and_shows_every_step() -> None:
    times = (0, 1000, 2000, 500 * MS, 600_000 * MS)
    axis = Axis(times, 100, 900)
    places = [axis.x(at) for at in times]
    assert (places[0], round(places[-1], 6)) == (100, 900)
    steps = [b - a for a, b in pairwise(places)]
    assert steps[0] == pytest.approx(steps[1])
    assert 30 < steps[0] < steps[2] < steps[3]
    assert (axis.x(-5), axis.x(10**18)) == (100, places[-1])
    assert axis.x(1500) == places[1]
    assert [at for at, _ in axis.ticks(60)] == [0, 2000, 500 * MS, 600_000 * MS]


def test_an_axis_of_one_moment_has_a_place_for_it() -> None:
    axis = Axis((7,), 100, 900)
    assert (axis.x(7), list(axis.ticks(60))) == (100, [(7, 100)])


def test_the_legend_has_every_texture_line_and_letter() -> None:
    shown = legend()
    for stage in STAGES:
        assert styled(shown, stage.name.lower()), stage
    for kind in MarkKind:
        assert GLYPHS[kind] in texts(shown, "mark"), kind
    words = [part.text for part in shown.iter("dd")]
    assert {REACHES[reach].about for reach in Reach} - set(words) == {
        REACHES[Reach.READ].about,
        REACHES[Reach.SOURCE].about,
    }


def test_every_class_of_a_picture_is_in_the_style_sheet_and_every_pattern_is_defined() -> None:
    sheet = style()
    defined = {part.get("id") for part in patterns().iter("pattern")}
    assert {f"url(#{name})" for name in defined} == set(part_urls(sheet))
    for stage in STAGES:
        known = f".{stage.name.lower()}" in sheet
        assert known or stage is PageStage.RESERVED, stage
    assert "prefers-color-scheme: dark" in sheet


def part_urls(sheet: str) -> list[str]:
    return [part.split(")")[0] + ")" for part in sheet.split("fill: ") if part.startswith("url(")]


def test_text_is_never_markup() -> None:
    element = tag("p", "<b>&</b>", tag("i", "x"), "tail <i>", None, title='"><script>')
    assert written(element) == (
        '<p title="&quot;&gt;&lt;script&gt;">&lt;b&gt;&amp;&lt;/b&gt;<i>x</i>tail &lt;i&gt;</p>'
    )


def test_text_is_bounded_and_holds_nothing_that_a_document_may_not_hold() -> None:
    assert clean("a\x00b\x1b[31m\u202ec\ud800\ufffe") == "a\ufffdb\ufffd[31m\ufffdc\ufffd\ufffd"
    assert clean("täglich ✓ 😀\n") == "täglich ✓ 😀\n"
    assert clean("x" * TEXT_MAX) == "x" * TEXT_MAX
    assert clean("x" * (TEXT_MAX + 1)) == "x" * TEXT_MAX + " … (cut)"


@pytest.mark.parametrize(
    ("generations", "words", "short"),
    [
        ((), "", ""),
        ((3,), "generation 3", "g3"),
        ((2, 4, 9), "generations 2-9", "g2-9"),
    ],
)
def test_generations_are_said_in_full_and_short(
    generations: tuple[int, ...], words: str, short: str
) -> None:
    dash = "\N{EN DASH}"
    assert generation_words(generations) == words.replace("-", dash)
    assert generation_words(generations, short=True) == short.replace("-", dash)


def test_a_bar_says_in_which_generation_its_owner_had_the_pages() -> None:
    node = decode()
    node.record(10, "pages_allocated", ACME, lease=1, pages=[0, 1], generations=[7, 8])
    ended(node, 5_000, ACME, [0, 1])
    seen = picture(node.records)
    drawn = draw(seen.scenes[0], seen.names, [], "p")
    names = [text.text for text in drawn.iter("text") if text.get("class") == "name"]
    assert names == ["a0a0 · aaaa g7\N{EN DASH}8"]
