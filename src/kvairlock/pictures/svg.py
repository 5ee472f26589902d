"""One scene as SVG: a row for pages with one history, time from left to right.

    decode-0              732.1          745.0        812.4   ms
                     1 another owner's page                   what stands out, hatched below
    pages 9-17     |##reserved##|//landing//|##readable##|    a stay
                   ------------window-----------              who could reach the pages otherwise
                        c     w       v                       computed, written, admitted

How it looks, in light and dark, is in `picture.css`, which the document has to bring.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from importlib.resources import files
from xml.etree.ElementTree import Element

from kvairlock.pictures.axis import Axis
from kvairlock.pictures.findings import Finding
from kvairlock.pictures.history import History, Reach, Touch
from kvairlock.pictures.markup import tag
from kvairlock.pictures.names import Names, ms, page_ranges, span_ms
from kvairlock.pictures.pen import BAR, LANE, TEXT, Numbered, Pen
from kvairlock.pictures.scenes import Scene
from kvairlock.pictures.shelves import Row, Shelf

LABELS = 176
"""Pixels on the left, for the names of rows."""
MARGIN = 30
STEP, WIDTH_MIN, WIDTH_MAX = 11, 980, 2600
"""Pixels for each time at which something changes, and bounds for all of them."""
HEAD, AXIS = 26, 24
TICKS_APART = 74
RANGES_MAX = 2

IN_THE_STAY = frozenset({Reach.READ, Reach.SOURCE})
"""What owners do with their own pages."""


def style() -> str:
    """Return the style sheet of pictures.

    The colours are those of Okabe and Ito, which are told apart with any colour vision
    (https://jfly.uni-koeln.de/color/); they are lighter on a dark page.
    """
    return files(__package__).joinpath("picture.css").read_text()


def patterns() -> Element:
    """Return the textures of stages and findings, which a document with pictures needs once."""
    return tag(
        "svg",
        _pattern("kv-landing", tag("path", d="M0 6L6 0")),
        _pattern("kv-shared", tag("circle", cx=3, cy=3, r=1)),
        _pattern("kv-draining", tag("path", d="M0 3H6")),
        _pattern("kv-hatch", tag("path", d="M0 0L6 6", class_="alert")),
        class_="patterns",
        aria_hidden="true",
    )


def _pattern(name: str, figure: Element) -> Element:
    return tag("pattern", figure, id=name, width=6, height=6, patternUnits="userSpaceOnUse")


def draw(scene: Scene, names: Names, findings: Sequence[Numbered], uid: str) -> Element:
    """Draw one scene.

    Args:
        scene: What to draw; it has at least one shelf.
        names: How owners are called.
        findings: All of the run; those of other scenes are passed over.
        uid: Makes the ids of the element unique in its document.

    Returns:
        An `svg` element that says in words what it shows.
    """
    width = min(max(len(scene.times_ns) * STEP, WIDTH_MIN), WIDTH_MAX)
    right = LABELS + width
    canvas = _Canvas(Pen(Axis(scene.times_ns, LABELS, right), names), right)
    seen = [numbered for numbered in findings if is_within(numbered.finding, scene)]
    for shelf in scene.shelves:
        canvas.shelf(shelf, [n for n in seen if n.finding.life == shelf.life])
    height, wide = canvas.bottom + 6, right + MARGIN
    return tag(
        "svg",
        tag("title", f"Who held which pages, {_time(scene)}", id=f"{uid}-title"),
        tag("desc", _description(scene, seen), id=f"{uid}-desc"),
        *canvas.grid(height),
        *canvas.parts,
        class_="picture",
        role="img",
        aria_labelledby=f"{uid}-title {uid}-desc",
        viewBox=f"0 0 {wide} {height:.0f}",
        width=wide,
        height=height,
    )


def is_within(found: Finding, scene: Scene) -> bool:
    """Whether a finding shows in a scene."""
    return found.began_ns <= scene.ended_ns and found.ended_ns >= scene.began_ns


def _time(scene: Scene) -> str:
    return span_ms(scene.began_ns, scene.ended_ns)


def _description(scene: Scene, seen: Sequence[Numbered]) -> str:
    shelves = ", ".join(f"{shelf.life.node} {len(shelf.rows)}" for shelf in scene.shelves)
    found = "; ".join(numbered.words for numbered in seen) or "none"
    return f"Rows of pages: {shelves}. Findings: {found}. The table below says the same in words."


def _is_in_the_stay(touch: Touch, history: History) -> bool:
    """Whether it needs no line of its own, since a band or a mark of the owner's stay shows it."""
    own = (stay for stay in history.stays if stay.who == touch.who)
    within = any(stay.began_ns <= touch.began_ns <= stay.ended_ns for stay in own)
    return touch.reach in IN_THE_STAY and within


class _Canvas:
    """Rows, one below another."""

    def __init__(self, pen: Pen, right: float) -> None:
        self._pen, self._right = pen, right
        self.parts: list[Element] = []
        self.bottom: float = AXIS

    def grid(self, height: float) -> Iterator[Element]:
        """Draw the times: lines behind everything, labels above."""
        yield tag("text", "ms since the start", x=0, y=AXIS - 10, class_="quiet")
        for at_ns, x in self._pen.axis.ticks(TICKS_APART):
            yield tag("line", x1=x, x2=x, y1=AXIS - 6, y2=height, class_="grid")
            yield tag("text", ms(at_ns), x=x, y=AXIS - 10, class_="tick")

    def shelf(self, shelf: Shelf, findings: Sequence[Numbered]) -> None:
        """Draw the rows of one node below what is there."""
        self._write(shelf.life.node, self.bottom + 18, "node")
        self.bottom += HEAD
        for row in shelf.rows:
            self._row(row, [n for n in findings if not set(row.pages).isdisjoint(n.finding.pages)])
        if shelf.pages_left_out:
            words = f"Pages with a history that are not drawn: {shelf.pages_left_out}"
            self._write(words, self.bottom + TEXT - 3, "quiet")
            self.bottom += TEXT

    def _write(self, words: str, y: float, style: str) -> None:
        self.parts.append(tag("text", words, x=0, y=y, class_=style))

    def _row(self, row: Row, findings: Sequence[Numbered]) -> None:
        history, pages = row.history, page_ranges(row.pages)
        notes, above = self._pen.notes(findings, self.bottom, self._right + MARGIN)
        y = self.bottom + above
        label = tag("text", page_ranges(row.pages, RANGES_MAX), x=0, y=y + TEXT, class_="pages")
        label.append(tag("title", pages))
        aside = [touch for touch in history.touches if not _is_in_the_stay(touch, history)]
        bands = [t for t in history.touches if t.reach is Reach.READ and t not in aside]
        stays = list(zip(history.stays, row.generations, strict=True))
        self.parts += [label, *(self._pen.stay(stay, of, pages, y) for stay, of in stays)]
        self.parts += [self._pen.band(touch, y) for touch in bands]
        self.parts += [self._pen.hatch(numbered, y) for numbered in findings] + notes
        self.parts += [self._pen.name(stay, of, y) for stay, of in stays]
        y = self._lanes(aside, y + BAR + 1)
        self.parts += [self._pen.mark(mark, y) for mark in history.marks]
        self.bottom = y + (TEXT + 2 if history.marks else 5)

    def _lanes(self, touches: Iterable[Touch], y: float) -> float:
        """Draw who could reach the pages otherwise; those at one time one below another."""
        free: list[int] = []
        for touch in touches:
            lane = next((i for i, used in enumerate(free) if used <= touch.began_ns), len(free))
            free[lane : lane + 1] = [touch.ended_ns]
            self.parts.append(self._pen.lane(touch, y + lane * LANE))
        return y + len(free) * LANE
