"""What came out, first: three counts, the time window, and how much of it is covered."""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree.ElementTree import Element

from kvairlock.audit.page.words import ABOUT, GLYPHS, counted, lasted, utc
from kvairlock.audit.report import Class, Coverage, Report
from kvairlock.pictures.markup import tag
from kvairlock.pictures.parts import bullets

ROUTES_MAX = 12


def summary(report: Report) -> Element:
    """Return the head of the page."""
    counts = report.counts()
    return tag(
        "section",
        tag("h2", "Summary", id="summary-title"),
        tag("p", _headline(counts), class_=f"summary {_tone(counts)}"),
        tag("div", *(_card(name, counts[name]) for name in Class), class_="cards"),
        bullets(_lines(report.coverage), style="facts"),
        id="summary",
        aria_labelledby="summary-title",
    )


def _headline(counts: dict[Class, int]) -> str:
    total = sum(counts.values())
    if not total:
        return "? No request is named in what was read: that shows nothing about anybody."
    if counts[Class.AFFECTED]:
        count = counts[Class.AFFECTED]
        return f"✗ {count:,} of {total:,} requests {'is' if count == 1 else 'are'} affected."
    if counts[Class.INSUFFICIENT]:
        count = counts[Class.INSUFFICIENT]
        return f"? Nobody is found affected; of {count:,} of {total:,} requests nobody can tell."
    return f"✓ All {total:,} requests are excluded: none read what was not its own."


def _tone(counts: dict[Class, int]) -> str:
    clean = counts[Class.EXCLUDED] and not counts[Class.AFFECTED] + counts[Class.INSUFFICIENT]
    return "good" if clean else "bad" if counts[Class.AFFECTED] else "unsure"


def _card(name: Class, count: int) -> Element:
    return tag(
        "a",
        tag("span", f"{count:,}", class_="count"),
        tag("span", f"{GLYPHS[name]} {name}", class_="class"),
        tag("span", ABOUT[name], class_="about"),
        class_=f"card {name}",
        href=f"#{name}",
    )


def _lines(seen: Coverage) -> Iterator[str]:
    if seen.records:
        window = f"{utc(seen.from_unix_ns)} to {utc(seen.to_unix_ns)} UTC"
        yield f"Time window: {window}, {lasted(seen.from_unix_ns, seen.to_unix_ns)}."
    lives = counted(len(seen.lives), "process life", "process lives")
    yield f"Records: {seen.records:,} from {lives}, in {counted(seen.files, 'file')}."
    yield f"Routes: {_routes(seen.routes)}."
    yield from _not_covered(seen)


def _routes(routes: tuple[str, ...]) -> str:
    more = f" and {len(routes) - ROUTES_MAX} more" if len(routes) > ROUTES_MAX else ""
    return (", ".join(routes[:ROUTES_MAX]) or "none that evidence is there of") + more


def _not_covered(seen: Coverage) -> Iterator[str]:
    """Say what is missing; if nothing is known to be, that is a statement too."""
    lives = len({span.life for span in seen.spans})
    left = sum(each.records for each in seen.unreadable)
    parts = [
        f"{counted(len(seen.spans), 'gap')} in {counted(lives, 'life', 'lives')}" if lives else "",
        f"{counted(len(seen.missing), 'life', 'lives')} without any evidence"
        if seen.missing
        else "",
        f"at least {left:,} records that can't be judged" if left else "",
    ]
    said = ", ".join(part for part in parts if part)
    yield f"Not covered: {said or 'nothing that the evidence itself would show'}."
