"""How to read a picture: every texture, line and letter of it, drawn small, with its meaning."""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree.ElementTree import Element

from kvairlock.core.memory.page import PageStage
from kvairlock.pictures.history import REACHES, MarkKind, Reach
from kvairlock.pictures.markup import put, tag
from kvairlock.pictures.pen import BAR, GLYPHS

WIDTH = 46

STAGES: dict[PageStage, str] = {
    PageStage.RESERVED: "reserved: allocated, nothing in it yet",
    PageStage.LANDING: "landing: a window or a read of ours is to fill it",
    PageStage.SEALED: "sealed, or readable: computed and closed on prefill, admitted on decode",
    PageStage.SHARED: "shared: kept as a prefix after its request's end",
    PageStage.DRAINING: "draining: the lease has ended, the page is not free yet",
}
"""The stages that records tell apart."""

NOTED: dict[MarkKind, str] = {
    MarkKind.COMPUTED: "computed",
    MarkKind.WRITTEN: "its write has ended",
    MarkKind.ADMITTED: "admitted by the verdict",
    MarkKind.REFUSED: "refused by the verdict",
    MarkKind.REUSED: "reused as a prefix",
}


def legend() -> Element:
    """Return the legend of all pictures of a document, as a list of terms."""
    made = tag("dl", class_="legend")
    for sample, meaning in _samples():
        small = tag("svg", *sample, class_="picture", width=WIDTH, height=BAR + 6)
        small.set("aria-hidden", "true")
        put(made, [tag("div", tag("dt", small), tag("dd", meaning))])
    return made


def _samples() -> Iterator[tuple[list[Element], str]]:
    for stage, meaning in STAGES.items():
        yield [_in_colour(*_boxes(stage.name.lower()))], meaning
    yield [_in_colour(*_boxes("readable"), _box("band", BAR - 3, 4))], "read by decode's steps"
    for reach in (Reach.WINDOW, Reach.WINDOW_FILE, Reach.PREFIX, Reach.LOAN, Reach.FETCH):
        line = tag("line", x1=2, x2=WIDTH - 2, y1=13, y2=13, class_=f"reach {reach}")
        yield [_in_colour(line)], REACHES[reach].about
    for kind, meaning in NOTED.items():
        yield [tag("text", GLYPHS[kind], x=WIDTH / 2, y=17, class_=f"mark {kind}")], meaning
    yield [_in_colour(*_boxes("readable")), _box("hatch", 2, BAR)], "must not be; see its number"
    unknown = tag("text", "?", x=WIDTH - 14, y=17, class_="name")
    yield [_in_colour(*_boxes("readable"), unknown)], "no record says when it ended"


def _in_colour(*parts: Element) -> Element:
    return tag("g", *parts, class_="t0")


def _boxes(stage: str) -> Iterator[Element]:
    yield _box(f"stage {stage}", 3, BAR)
    yield _box(f"texture {stage}", 3, BAR)
    yield _box("stay", 3, BAR)


def _box(style: str, y: float, height: float) -> Element:
    return tag("rect", x=2, y=y, width=WIDTH - 4, height=height, class_=style)
