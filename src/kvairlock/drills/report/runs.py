"""What the report's page shows of each run: its processes, what stands out, pictures, the story.

Pictures and words say the same: for each picture there is a table of who held what from when until
when, and a list of what happened. Both are cut where they become too long to be read, and say so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from xml.etree.ElementTree import Element

from kvairlock.drills.pictures.accounts import Account
from kvairlock.drills.pictures.findings import sentence
from kvairlock.drills.pictures.gaps import gaps
from kvairlock.drills.pictures.history import REACHES, Stay, Touch
from kvairlock.drills.pictures.markup import Inside, tag
from kvairlock.drills.pictures.names import Names, ms, page_ranges, span_ms
from kvairlock.drills.pictures.pen import Numbered, ending
from kvairlock.drills.pictures.scenes import Picture, Row, Scene, picture
from kvairlock.drills.pictures.story import Line, Tone, tell
from kvairlock.drills.pictures.svg import draw, is_within
from kvairlock.drills.report.tables import bullets, folded, scrolled, section, table
from kvairlock.drills.runs.rows import RunEvidence
from kvairlock.sink.jsonl import read

LINES_MAX = 240
"""Lines of one story; the middle is left out of a longer one."""
LINES_OPEN = 48
"""A story of more lines is folded."""
ROWS_MAX = 400
FINDINGS_MAX = 60
ABOUT = (
    "Drawn from the nodes' own evidence. Each row is pages with one history; each bar is the time "
    "for which one owner held them, with the owner's pseudonyms: request, then tenant; each tenant "
    "has a colour. The order of events is exact; longer times are drawn shorter, so that short "
    "steps can be seen. What must not be, and can be told from records, is hatched and numbered. "
    "Wrong bytes cannot: only a canary shows them. With all guards on nothing must be hatched but "
    "prefixes that tenants share, since records do not say that their scope was declared."
)
RUNS_MAX = 64
RUNS_OPEN = 2
"""So many runs are unfolded from the start, if there are no more."""


def runs_section(runs: Sequence[RunEvidence]) -> Element:
    """Return the section with all runs.

    Args:
        runs: In order.
    """
    drawn = list(enumerate(runs[:RUNS_MAX], start=1))
    unfolded = len(drawn) <= RUNS_OPEN
    links = (tag("a", run.title, href=f"#run-{number}") for number, run in drawn)
    return section(
        "runs",
        "Who held which pages",
        tag("p", ABOUT),
        None if runs else tag("p", "No evidence was kept: there is nothing to draw."),
        None if unfolded else bullets(links, "ol", "runs"),
        *(_run(number, run, unfolded) for number, run in drawn),
        *_left_out(len(runs) - RUNS_MAX, "Runs that are not drawn"),
    )


def _left_out(count: int, what: str) -> Iterator[Element]:
    """Say how many there are more than there is room for."""
    if count > 0:
        yield tag("p", f"{what}: {count}.", class_="doubt")


def _run(number: int, run: RunEvidence, unfolded: bool) -> Element:
    seen = picture(_records(run.folder))
    numbered = [Numbered(n, found) for n, found in enumerate(seen.findings, start=1)]
    head = [tag("h3", run.title, id=f"run-{number}"), _note(seen)]
    made = folded(head, *_inside(number, seen, numbered), unfolded=unfolded)
    made.set("class", "run")
    return made


def _note(seen: Picture) -> Element:
    """Say beside the title of a run whether something stands out, or could not be seen."""
    count = len(seen.findings)
    words = f"{count} findings" if count != 1 else "1 finding"
    if not seen.accounts:
        words = "no evidence"
    elif gaps(seen):
        words += ", and gaps in the evidence"
    return tag("span", words, class_="bad" if count or gaps(seen) else "quiet")


def _records(folder: Path) -> Iterator[Mapping[str, object]]:
    for path in sorted(folder.glob("*.jsonl")):
        yield from read(path)


def _inside(number: int, seen: Picture, numbered: Sequence[Numbered]) -> Iterator[Element]:
    if seen.accounts:
        yield _accounts(seen.accounts)
    missing = gaps(seen)
    if missing:
        yield tag("h4", "What the evidence does not say")
        yield bullets(missing, style="doubt")
    yield tag("h4", "What stands out")
    yield from _findings(numbered, seen.names)
    for place, scene in enumerate(seen.scenes, start=1):
        heading = f"Scene {place}: {span_ms(scene.began_ns, scene.ended_ns)}"
        yield tag("h4", heading if len(seen.scenes) > 1 else "Pages over time")
        yield from _scene(scene, seen.names, numbered, f"run-{number}-{place}")


def _accounts(accounts: Sequence[Account]) -> Element:
    heads = ("node", "role", "life", "pages", "landing", "guards off", "records", "missing", "end")
    rows = ([cell or "none" for cell in _account(account)] for account in accounts)
    return table("The processes, by their own records", heads, rows)


def _account(account: Account) -> Iterator[str]:
    yield account.life.node
    yield account.life.role
    yield account.life.incarnation[:8]
    yield "not recorded" if account.pages is None else str(account.pages)
    yield "not recorded" if account.landing is None else account.landing
    yield "not recorded" if account.guards_off is None else ", ".join(account.guards_off)
    yield str(account.records)
    yield str(account.missing)
    yield account.close


def _findings(numbered: Sequence[Numbered], names: Names) -> Iterator[Element]:
    if not numbered:
        yield tag("p", "Nothing does, in what was recorded.")
        return
    lines = [sentence(n.finding, names) for n in numbered[:FINDINGS_MAX]]
    yield bullets(lines, "ol", "findings")
    yield from _left_out(len(numbered) - FINDINGS_MAX, "Findings that are not listed")


def _scene(scene: Scene, names: Names, numbered: Sequence[Numbered], uid: str) -> Iterator[Element]:
    if scene.shelves:
        seen = [n for n in numbered if is_within(n.finding, scene)]
        drawn = draw(scene, names, seen, uid)
        yield scrolled(drawn, f"Picture: {span_ms(scene.began_ns, scene.ended_ns)}")
        yield folded(["The same as a table"], _stays(scene, names))
    else:
        yield tag("p", "No page was held.")
    lines = tell(scene.edges)
    head = [f"The story, {len(lines)} lines"]
    yield folded(head, _story(lines, names), unfolded=len(lines) <= LINES_OPEN)


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
    both: list[Stay | Touch] = [*row.history.stays, *row.history.touches]
    for each in sorted(both, key=lambda each: each.began_ns):
        times = [ms(each.began_ns), ms(each.ended_ns)]
        if isinstance(each, Touch):
            yield [names.brief(each.who), REACHES[each.reach].does, *times, ""]
        else:
            stages = ", ".join(f"{p.stage.name.lower()} {ms(p.began_ns)}" for p in each.parts)
            yield [names.brief(each.who), f"holds: {stages}", *times, ending(each)]


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
