"""What the report's page shows of each run: its processes, what stands out, pictures, the story.

Pictures and words say the same: for each picture there is a table of who held what from when until
when, and a list of what happened. Both are cut where they become too long to be read, and say so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from xml.etree.ElementTree import Element

from kvairlock.drills.runs.rows import RunEvidence
from kvairlock.pictures.accounts import Account
from kvairlock.pictures.findings import sentence
from kvairlock.pictures.gaps import gaps
from kvairlock.pictures.markup import tag
from kvairlock.pictures.names import Names, span_ms
from kvairlock.pictures.parts import bullets, folded, left_out, section, table
from kvairlock.pictures.pen import Numbered
from kvairlock.pictures.scenes import Picture, picture
from kvairlock.pictures.view import scene_view
from kvairlock.sink.reading import read_folder

FINDINGS_MAX = 60
ABOUT = (
    "Drawn from the nodes' own evidence. Each row is pages with one history; each bar is the time "
    "for which one owner held them, with the owner's pseudonyms: request, then tenant; each tenant "
    "has a colour. The order of events is exact; longer times are drawn shorter, so that short "
    "steps can be seen. What must not be, and can be told from records, is hatched and numbered. "
    "Wrong bytes cannot: only a canary shows them. With all guards on nothing must be hatched."
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
        left_out(len(runs) - RUNS_MAX, "Runs that are not drawn"),
    )


def _run(number: int, run: RunEvidence, unfolded: bool) -> Element:
    seen = picture(read_folder(run.folder))
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


def _inside(number: int, seen: Picture, numbered: Sequence[Numbered]) -> Iterator[Element | None]:
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
        yield from scene_view(scene, seen.names, numbered, f"run-{number}-{place}")


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


def _findings(numbered: Sequence[Numbered], names: Names) -> Iterator[Element | None]:
    if not numbered:
        yield tag("p", "Nothing does, in what was recorded.")
        return
    lines = [sentence(n.finding, names) for n in numbered[:FINDINGS_MAX]]
    yield bullets(lines, "ol", "findings")
    yield left_out(len(numbered) - FINDINGS_MAX, "Findings that are not listed")
