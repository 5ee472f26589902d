"""How to read the page, and what no audit can see."""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree.ElementTree import Element

from kvairlock.audit.page.words import ABOUT, DIGITS, GLYPHS, GRADES
from kvairlock.audit.report import Report
from kvairlock.pictures.legend import legend
from kvairlock.pictures.markup import put, tag
from kvairlock.pictures.parts import bullets, section

NAMES = (
    f"Tenants and requests are keyed digests, here by their first {DIGITS} digits. Unfold one, or "
    "point at it, for the whole, which is what other commands take. In pictures they are as short "
    "as tells them apart: request, then tenant, then the generation in which the request had the "
    "pages, as in g3. Each tenant of a picture has a colour."
)
TIME = (
    "Times of a picture are counted from the first record about its requests. The order of events "
    "is exact within a node, and between nodes of one machine; between machines it is as good as "
    "their clocks agree. Longer times are drawn shorter, so that short steps can be seen."
)
BLIND = (
    "Bytes. No record holds what was in a page: an affected request could have read what was "
    "another's; what came of it is not in the evidence.",
    "What was not recorded. A request of which there is no record at all is in none of the lists.",
    "A process that lied. Records are what processes said of themselves; one that was taken over "
    "can have said anything, as far as no other process contradicts it.",
    "Other paths. Memory outside of the page pools, logs, and whatever else shares a machine is "
    "not looked at.",
    "The time between records of different machines, beyond what their clocks agree on.",
)


def reading() -> Element:
    """Return what a reader needs to know."""
    return section(
        "reading",
        "How to read it",
        _terms({f"{GLYPHS[name]} {name}": words for name, words in ABOUT.items()}),
        tag("p", "A finding has a grade, and a request that of its best finding:"),
        _terms({str(grade): words for grade, words in GRADES.items()}),
        tag("p", NAMES),
        tag("p", TIME),
        tag("h3", "Pictures"),
        legend(),
    )


def _terms(words: dict[str, str]) -> Element:
    made = tag("dl")
    for term, about in words.items():
        put(made, [tag("dt", term), tag("dd", about)])
    return made


def limits(report: Report) -> Element:
    """Return what the audit could not see, in general and in this case."""
    return section(
        "limits",
        "What this audit can't see",
        bullets([*_here(report), *BLIND], style="doubt"),
    )


def _here(report: Report) -> Iterator[str]:
    seen = report.coverage
    if seen.missing:
        nodes = ", ".join(sorted({missing.node for missing in seen.missing}))
        yield f"Lives of {nodes}, of which there is no evidence."
    if seen.spans:
        yield f"What is in the {len(seen.spans):,} gaps that the coverage above names."
    left = sum(each.records for each in seen.unreadable)
    if left:
        yield f"At least {left:,} records that were found and can't be judged."
