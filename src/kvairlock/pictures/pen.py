"""The single strokes of a picture: a stay, who could reach it, what was noted, what stands out.

Colours stand for tenants, and names are written on the bars; stages are told apart by their
texture, findings by hatching, number and text. So no colour is the only carrier of anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from xml.etree.ElementTree import Element

from kvairlock.pictures.axis import Axis
from kvairlock.pictures.findings import FINDINGS, Finding
from kvairlock.pictures.history import REACHES, Ending, Mark, MarkKind, Stay, Touch
from kvairlock.pictures.markup import put, tag
from kvairlock.pictures.names import Names, generation_words, ms, span_ms

BAR = 20
"""Height of a stay."""
LANE = 5
"""Height of a line under it."""
TEXT = 14
"""Height of a line of text."""
CHARACTER = 6.4
"""Pixels that a character takes on average, at most."""
TOGETHER = 120
"""Findings of one kind that begin within so many pixels have one note."""

GLYPHS: dict[MarkKind, str] = {
    MarkKind.COMPUTED: "c",
    MarkKind.WRITTEN: "w",
    MarkKind.ADMITTED: "✓",
    MarkKind.REFUSED: "✗",
    MarkKind.REUSED: "p",
}


@dataclass(frozen=True, slots=True)
class Numbered:
    """A finding, and the number by which picture and text name it."""

    number: int
    finding: Finding

    @property
    def words(self) -> str:
        """What is written on the place."""
        return f"{self.number} {FINDINGS[self.finding.kind].short}"


@dataclass(frozen=True, slots=True)
class Pen:
    """Draws single things of one scene.

    Args:
        axis: Where times are.
        names: How owners are called.
    """

    axis: Axis
    names: Names

    def stay(self, stay: Stay, generations: Sequence[int], pages: str, y: float) -> Element:
        """Draw an owner's time on pages: its stages, and a frame around them."""
        words = f"{pages}: {told(stay, generations, self.names)}"
        group = tag("g", tag("title", words), class_=f"t{self.names.hue(stay.who)}")
        for stage, began_ns, ended_ns in stay.stages():
            put(group, self._boxes(began_ns, ended_ns, stage.name.lower(), y))
        x, wide = self._extent(stay.began_ns, stay.ended_ns)
        group.append(tag("rect", x=x, y=y, width=wide, height=BAR, rx=2, class_="stay"))
        return group

    def name(self, stay: Stay, generations: Sequence[int], y: float) -> Element:
        """Write the owner's name and the pages' generation on a stay, as far as it fits."""
        x, wide = self._extent(stay.began_ns, stay.ended_ns)
        end = " ?" if stay.ending is Ending.NOT_RECORDED else ""
        brief, request = self.names.brief(stay.who), self.names.request(stay.who)
        turned = generation_words(generations, short=True)
        choices = [f"{brief} {turned}".rstrip(), brief, f"{request} {turned}".rstrip(), request, ""]
        words = _fitting([f"{name}{end}" for name in choices], wide - 6)
        return tag("text", words, x=x + 4, y=y + TEXT, class_="name")

    def band(self, touch: Touch, y: float) -> Element:
        """Draw that an owner reads its own pages, inside of its stay."""
        x, wide = self._extent(touch.began_ns, touch.ended_ns)
        band = tag("rect", x=x, y=y + BAR - 5, width=wide, height=4, class_="band")
        return tag("g", band, class_=f"t{self.names.hue(touch.who)}")

    def lane(self, touch: Touch, y: float) -> Element:
        """Draw that somebody can reach pages, under the stays."""
        x, wide = self._extent(touch.began_ns, touch.ended_ns)
        line = tag("line", x1=x, x2=x + wide, y1=y + 2, y2=y + 2, class_=f"reach {touch.reach}")
        does = f"{self.names.full(touch.who)} {REACHES[touch.reach].does} the pages"
        words = f"{does}, {span_ms(touch.began_ns, touch.ended_ns)}"
        return tag("g", tag("title", words), line, class_=f"t{self.names.hue(touch.who)}")

    def mark(self, mark: Mark, y: float) -> Element:
        """Draw that something was noted about pages."""
        x = self.axis.x(mark.at_ns)
        words = f"{self.names.full(mark.who)}: {mark.kind}, {ms(mark.at_ns)} ms"
        glyph = tag("text", GLYPHS[mark.kind], x=x, y=y + TEXT - 4, class_=f"mark {mark.kind}")
        glyph.append(tag("title", words))
        return glyph

    def hatch(self, numbered: Numbered, y: float) -> Element:
        """Draw that something is there that must not be."""
        x, wide = self._extent(numbered.finding.began_ns, numbered.finding.ended_ns)
        box = tag("rect", x=x, y=y - 2, width=max(wide, 5), height=BAR + 4, class_="hatch")
        box.append(tag("title", numbered.words))
        return box

    def notes(
        self, findings: Sequence[Numbered], y: float, right: float
    ) -> tuple[list[Element], float]:
        """Write what stands out in a row, each note on the first line that is free.

        Returns:
            The texts, and the height that they take.
        """
        texts: list[Element] = []
        free: list[float] = []
        for alike in self._alike(findings):
            words = self._note(alike)
            wide = len(words) * CHARACTER + 12
            x = min(self.axis.x(alike[0].finding.began_ns), right - wide)
            line = next((i for i, used in enumerate(free) if used <= x), len(free))
            free[line : line + 1] = [x + wide]
            texts.append(tag("text", words, x=x, y=y + 11 + line * TEXT, class_="finding"))
        return texts, len(free) * TEXT + (3 if free else 0)

    def _alike(self, findings: Sequence[Numbered]) -> list[list[Numbered]]:
        """Put findings of one kind together that begin at about the same place."""
        groups: list[list[Numbered]] = []
        for found in findings:
            group = next((group for group in groups if self._joins(found, group)), None)
            if group is None:
                groups.append([found])
            else:
                group.append(found)
        return groups

    def _joins(self, found: Numbered, group: Sequence[Numbered]) -> bool:
        first, own = group[0].finding, found.finding
        apart = abs(self.axis.x(own.began_ns) - self.axis.x(first.began_ns))
        return own.kind is first.kind and apart < TOGETHER

    def _note(self, alike: Sequence[Numbered]) -> str:
        """Return numbers and words of findings of one kind, and of those who are not on the bar."""
        numbers = ", ".join(str(numbered.number) for numbered in alike)
        row = FINDINGS[alike[0].finding.kind]
        whos = dict.fromkeys(n.finding.whos[0] for n in alike if n.finding.whos)
        names = ", ".join(self.names.request(who) for who in whos)
        return f"{numbers} {row.short}" + (f": {names}" if row.names_first and names else "")

    def _boxes(self, began_ns: int, ended_ns: int, stage: str, y: float) -> Iterator[Element]:
        """A box in the tenant's colour, and one with the texture of the stage on it."""
        x, wide = self._extent(began_ns, ended_ns)
        yield tag("rect", x=x, y=y, width=wide, height=BAR, class_=f"stage {stage}")
        yield tag("rect", x=x, y=y, width=wide, height=BAR, class_=f"texture {stage}")

    def _extent(self, began_ns: int, ended_ns: int) -> tuple[float, float]:
        x = self.axis.x(began_ns)
        return x, max(self.axis.x(ended_ns) - x, 2.0)


def told(stay: Stay, generations: Sequence[int], names: Names) -> str:
    """Return a stay in words."""
    turned = generation_words(generations)
    stages = ", ".join(f"{part.stage.name.lower()} at {ms(part.began_ns)}" for part in stay.parts)
    return f"{names.full(stay.who)}: {turned and turned + ', '}{stages}, {ending(stay)}"


def ending(stay: Stay) -> str:
    """Return how a stay ended, in words."""
    match stay.ending:
        case Ending.DRAINED:
            return f"free at {ms(stay.ended_ns)} ms, fence: {stay.fence}"
        case Ending.PROCESS_CLOSED:
            return f"held until the process closed at {ms(stay.ended_ns)} ms"
        case Ending.NOT_RECORDED:
            return "no end recorded"


def _fitting(choices: Sequence[str], wide: float) -> str:
    return next((words for words in choices if len(words) * CHARACTER <= wide), "")
