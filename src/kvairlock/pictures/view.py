"""A scene as parts of a page: its picture, the same as a table, and the story in words.

Picture and words say the same. Both are cut where they become too long to be read, and say so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from xml.etree.ElementTree import Element

from kvairlock.pictures.history import REACHES, Stay, Touch
from kvairlock.pictures.markup import Inside, tag
from kvairlock.pictures.names import Names, generation_words, ms, page_ranges, span_ms
from kvairlock.pictures.parts import bullets, folded, scrolled, table
from kvairlock.pictures.pen import Numbered, ending
from kvairlock.pictures.scenes import Scene
from kvairlock.pictures.shelves import Row
from kvairlock.pictures.story import Line, Tone, tell
from kvairlock.pictures.svg import draw, is_within

LINES_MAX = 240
"""Lines of one story; the middle is left out of a longer one."""
LINES_OPEN = 48
"""A story of more lines is folded."""
ROWS_MAX = 400


def scene_view(
    scene: Scene,
    names: Names,
    numbered: Sequence[Numbered],
    uid: str,
    lines_open: int = LINES_OPEN,
) -> Iterator[Element]:
    """Yield one scene: its picture, the same as a table, and the story.

    Args:
        scene: What to show.
        names: How owners are called.
        numbered: All findings of the run; those of other scenes are passed over.
        uid: Makes the ids of the picture unique in its document.
        lines_open: A story of more lines is folded.
    """
    if scene.shelves:
        seen = [n for n in numbered if is_within(n.finding, scene)]
        drawn = draw(scene, names, seen, uid)
        yield scrolled(drawn, f"Picture: {span_ms(scene.began_ns, scene.ended_ns)}")
        yield folded(["The same as a table"], _stays(scene, names))
    else:
        yield tag("p", "No page was held.")
    lines = tell(scene.edges)
    head = [f"The story, {len(lines)} lines"]
    yield folded(head, _story(lines, names), unfolded=len(lines) <= lines_open)


def _stays(scene: Scene, names: Names) -> Element:
    rows = [
        [shelf.life.node, page_ranges(row.pages), *cells]
        for shelf in scene.shelves
        for row in shelf.rows
        for cells in _of_row(row, names)
    ]
    heads = ("node", "pages", "request · tenant", "what", "from ms", "until ms", "end")
    left = len(rows) - ROWS_MAX
    caption = "Who held or could reach pages" + (f"; rows left out: {left}" if left > 0 else "")
    return table(caption, heads, rows[:ROWS_MAX])


def _of_row(row: Row, names: Names) -> Iterator[list[Inside]]:
    """Yield who held or reached pages, without the pages, in order of time."""
    held = [(stay.began_ns, _held(stay, of, names)) for stay, of in _with_generations(row)]
    reached = [(touch.began_ns, _reached(touch, names)) for touch in row.history.touches]
    for _, cells in sorted([*held, *reached], key=lambda each: each[0]):
        yield cells


def _with_generations(row: Row) -> Iterable[tuple[Stay, tuple[int, ...]]]:
    return zip(row.history.stays, row.generations, strict=True)


def _held(stay: Stay, generations: Sequence[int], names: Names) -> list[Inside]:
    stages = ", ".join(f"{p.stage.name.lower()} {ms(p.began_ns)}" for p in stay.parts)
    turned = generation_words(generations)
    what = f"holds{turned and ', ' + turned}: {stages}"
    return [names.brief(stay.who), what, ms(stay.began_ns), ms(stay.ended_ns), ending(stay)]


def _reached(touch: Touch, names: Names) -> list[Inside]:
    does = REACHES[touch.reach].does
    return [names.brief(touch.who), does, ms(touch.began_ns), ms(touch.ended_ns), ""]


def _story(lines: Sequence[Line], names: Names) -> Element:
    """Return the lines as a list; of a long one the middle is left out, and counted."""
    half = LINES_MAX // 2
    cut = len(lines) - LINES_MAX
    shown = lines if cut <= 0 else [*lines[:half], *lines[-half:]]
    made = bullets((_line(line, names) for line in shown), "ol", "story")
    if cut > 0:
        made.insert(half, tag("li", f"Lines that are left out here: {cut}.", class_="doubt"))
    return made


def _line(line: Line, names: Names) -> Element:
    who = line.who
    owner = tag("span", names.brief(who), class_=f"owner t{names.hue(who)}") if who else None
    refused = line.tone is Tone.REFUSED
    return tag(
        "span",
        tag("span", f"{ms(line.at_ns)} ms", class_="at"),
        tag("span", line.life.node, class_="node"),
        tag("span", line.chapter, class_="chapter"),
        tag("span", owner, class_="whose"),
        tag("span", f"✗ {line.words}" if refused else line.words, class_="bad" if refused else ""),
        class_="line",
    )
