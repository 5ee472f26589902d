"""Which processes there is evidence of, drawn: a lane per life, with what is not covered hatched.

10:00          10:15          10:30
gateway            |================================|      evidence, with a close marker
decode-0           |===================>                   no close marker: it may have gone on
//// events lost ////            a gap, named
prefill-0  - - - - - - - no evidence - - - - - - - - -     named by others
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from xml.etree.ElementTree import Element

from kvairlock.audit.page.words import NS_PER_S, lasted, spaced, utc
from kvairlock.audit.placing import Placed
from kvairlock.audit.report import Coverage
from kvairlock.audit.spans import Gap, Life, Missing
from kvairlock.pictures.markup import tag

LABELS, WIDTH, MARGIN = 150, 860, 16
AXIS, LANE, GAP, BAR = 30, 24, 17, 14
"""Heights: of the axis, of a lane, of a gap below it, of the bar in a lane."""
TICKS = 5
LIVES_MAX = 48
MISSING_MAX = 24
CHARACTER = 6.2
LEAST = 4.0
"""Pixels that even the shortest gap has, so that it is seen."""

Gaps = Mapping[int, Mapping[Gap, Sequence[Placed]]]


def chosen(seen: Coverage) -> tuple[Life, ...]:
    """Return the lives that are drawn: if there is not room for all, those with gaps first."""
    with_gaps = {span.life for span in seen.spans}
    first = sorted(seen.lives, key=lambda life: (life.number not in with_gaps, life.number))
    return tuple(sorted(first[:LIVES_MAX], key=lambda life: (life.node, life.from_unix_ns)))


def draw(seen: Coverage, placed: Sequence[Placed]) -> Element:
    """Draw the coverage of an audit.

    Args:
        seen: What it covered; there is at least one life.
        placed: What it did not, with its place in time.

    Returns:
        An `svg` element that says in words what it shows.
    """
    canvas = _Canvas(seen)
    gaps = _by_life(placed)
    for life in chosen(seen):
        canvas.life(life, gaps.get(life.number, {}))
    for missing in seen.missing[:MISSING_MAX]:
        canvas.missing(missing)
    height, wide = canvas.bottom + 8, LABELS + WIDTH + MARGIN
    return tag(
        "svg",
        tag("title", "Evidence of each process over time", id="coverage-svg-title"),
        tag("desc", _description(seen), id="coverage-svg-desc"),
        *canvas.grid(height),
        *canvas.parts,
        class_="picture lanes",
        role="img",
        aria_labelledby="coverage-svg-title coverage-svg-desc",
        viewBox=f"0 0 {wide} {height}",
        width=wide,
        height=height,
    )


def _description(seen: Coverage) -> str:
    return (
        f"Lanes of {len(seen.lives)} lives, from {utc(seen.from_unix_ns)} "
        f"to {utc(seen.to_unix_ns)} UTC, with {len(seen.spans)} gaps, and {len(seen.missing)} "
        "lives without evidence. "
        "The tables below say the same in words."
    )


def _by_life(placed: Sequence[Placed]) -> Gaps:
    found: defaultdict[int, defaultdict[Gap, list[Placed]]] = defaultdict(lambda: defaultdict(list))
    for each in placed:
        found[each.span.life][each.span.gap].append(each)
    return found


class _Canvas:
    """Lanes, one below another."""

    def __init__(self, seen: Coverage) -> None:
        self._from_ns = seen.from_unix_ns
        self._lasted_ns = max(seen.to_unix_ns - seen.from_unix_ns, 1)
        self.parts: list[Element] = []
        self.bottom = AXIS

    def _x(self, at_unix_ns: int) -> float:
        return LABELS + (at_unix_ns - self._from_ns) / self._lasted_ns * WIDTH

    def grid(self, height: float) -> Iterator[Element]:
        """Draw the times: lines behind everything, labels above."""
        for number in range(TICKS):
            at_ns = self._from_ns + self._lasted_ns * number // (TICKS - 1)
            x = self._x(at_ns)
            yield tag("line", x1=x, x2=x, y1=AXIS - 8, y2=height, class_="grid")
            anchor = "tick last" if number == TICKS - 1 else "tick first" if not number else "tick"
            yield tag("text", self._clock(at_ns), x=x, y=AXIS - 13, class_=anchor)

    def _clock(self, at_unix_ns: int) -> str:
        """Return a time as exactly as the window is short."""
        at = datetime.fromtimestamp(at_unix_ns / NS_PER_S, UTC)
        if self._lasted_ns > 2 * 86_400 * NS_PER_S:
            return f"{at:%Y-%m-%d %H:%M}"
        if self._lasted_ns > 600 * NS_PER_S:
            return f"{at:%H:%M:%S}"
        return f"{at:%H:%M:%S}.{at.microsecond // 1_000:03d}"

    def life(self, life: Life, gaps: Mapping[Gap, Sequence[Placed]]) -> None:
        """Draw a life, and what of it is not covered below."""
        self._label(life.node, life.incarnation)
        x, y = self._x(life.from_unix_ns), self.bottom + 3
        wide = max(self._x(life.to_unix_ns) - x, 2.0)
        bar = tag("rect", x=x, y=y, width=wide, height=BAR, rx=2, class_="life")
        bar.append(tag("title", _life_in_words(life)))
        self.parts.append(bar)
        if life.closed:
            end = tag("line", x1=x + wide, x2=x + wide, y1=y - 3, y2=y + BAR + 3, class_="closed")
            self.parts.append(end)
        self.bottom += LANE
        for gap, spans in gaps.items():
            self._gap(gap, spans)

    def missing(self, missing: Missing) -> None:
        """Draw that there is nothing of a life that others name."""
        self._label(missing.node, missing.incarnation)
        box = {"x": LABELS, "y": self.bottom + 3, "width": WIDTH, "height": BAR}
        self.parts.append(tag("rect", class_="absent", **box))
        words = f"no evidence; named by {missing.named_by}"
        self.parts.append(tag("text", words, x=LABELS + 8, y=self.bottom + 14, class_="finding"))
        self.bottom += LANE

    def _label(self, node: str, incarnation: str) -> None:
        label = tag("text", node, x=0, y=self.bottom + 14, class_="node")
        label.append(tag("title", f"{node}, life {incarnation}"))
        self.parts.append(label)
        life = tag("text", incarnation[:6], x=LABELS - 8, y=self.bottom + 14, class_="quiet end")
        self.parts.append(life)

    def _gap(self, gap: Gap, spans: Sequence[Placed]) -> None:
        for x, wide in sorted({self._extent(each) for each in spans}):
            box = {"x": x, "y": self.bottom, "width": wide, "height": BAR - 3}
            self.parts.append(tag("rect", class_="hatch", **box))
        words = spaced(gap) + (f" ({len(spans)} times)" if len(spans) > 1 else "")
        first = min(self._extent(each)[0] for each in spans)
        x = min(first + 5, LABELS + WIDTH - len(words) * CHARACTER)
        self.parts.append(tag("text", words, x=x, y=self.bottom + 9, class_="finding"))
        self.bottom += GAP

    def _extent(self, each: Placed) -> tuple[float, float]:
        """Return place and width, rounded: gaps that can't be told apart are drawn once."""
        x = min(self._x(each.from_unix_ns), LABELS + WIDTH - LEAST)
        return round(x, 0), round(max(self._x(each.to_unix_ns) - x, LEAST), 0)


def _life_in_words(life: Life) -> str:
    end = "a close marker" if life.closed else "no close marker"
    return (
        f"{life.node}, life {life.incarnation}: {life.records:,} records in "
        f"{lasted(life.from_unix_ns, life.to_unix_ns)}, {end}"
    )
