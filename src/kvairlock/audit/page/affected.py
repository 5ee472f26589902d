"""The list of affected requests: reasons, grade, and whose pages they could have read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from xml.etree.ElementTree import Element

from kvairlock.audit.page.words import FINDS, counted, digest, digest_on_demand, spaced, utc
from kvairlock.audit.report import Class, Exposure, Report, Verdict
from kvairlock.audit.rules import AFFECTED
from kvairlock.audit.selecting import by_reason, first_of, of_class
from kvairlock.audit.story import Story
from kvairlock.pictures.markup import Inside, tag
from kvairlock.pictures.names import generation_words, page_ranges
from kvairlock.pictures.parts import bullets, folded, left_out, section, table

REQUESTS_MAX = 1_000
OTHERS_MAX = 8
RANGES_MAX = 6
HEADS = ("request", "tenant", "grade", "reasons", "on", "first recorded, UTC", "exposed to")

Exposures = Mapping[str, Sequence[Exposure]]


def affected(report: Report, story: Story) -> Element:
    """Return the section of affected requests.

    Args:
        report: What the audit says.
        story: What the page draws of it: those requests have links.
    """
    found = of_class(report, Class.AFFECTED)
    uid, title = str(Class.AFFECTED), "Affected"
    if not found.num_rows:
        return section(uid, title, tag("p", "No request is found affected, in what was recorded."))
    links = {told.verdict.request: n for n, told in enumerate(story.told, start=1)}
    exposures = _by_request(report.exposures)
    rows = [_row(v, links, exposures) for v in first_of(report, found, REQUESTS_MAX)]
    fired = by_reason(found, AFFECTED)
    reasons = {name: requests.num_rows for name, requests in fired.items()}
    return section(
        uid,
        title,
        reasons_table(reasons, "Why requests are affected; one may have several reasons"),
        table("Affected requests, by the time at which they began", HEADS, rows),
        left_out(found.num_rows - REQUESTS_MAX, "Affected requests that are not listed"),
    )


def reasons_table(counts: Mapping[str, int], caption: str) -> Element:
    """Return a table of rules, what each has found, and for how many requests.

    Args:
        counts: Names of rules that may have fired, with their requests.
        caption: Of the table.
    """
    rows = ([spaced(name), FINDS[name], f"{count:,}"] for name, count in counts.items() if count)
    return table(caption, ("reason", "what it finds", "requests"), rows)


def _by_request(exposures: Sequence[Exposure]) -> Exposures:
    found: defaultdict[str, list[Exposure]] = defaultdict(list)
    for exposure in exposures:
        found[exposure.request].append(exposure)
    return found


def _row(verdict: Verdict, links: Mapping[str, int], exposures: Exposures) -> list[Inside]:
    number = links.get(verdict.request)
    link = tag("a", "its pages", href=f"#request-{number}") if number else None
    return [
        tag("div", digest_on_demand(verdict.request), link),
        digest(verdict.tenant),
        verdict.grade,
        ", ".join(map(spaced, verdict.reasons)),
        tag("span", *_apart(verdict.nodes)),
        utc(verdict.since_unix_ns),
        exposed(exposures.get(verdict.request, ())),
    ]


def _apart(nodes: Sequence[str]) -> Iterator[Inside]:
    for place, node in enumerate(nodes):
        yield ", " if place else None
        yield tag("span", node, class_="whole-name")


def exposed(exposures: Sequence[Exposure]) -> Element:
    """Return whose pages a request could have read: a sum, and who, on request."""
    if not exposures:
        return tag("span", "nobody whom records name")
    pages = sum(len(exposure.pages) for exposure in exposures)
    others = len({exposure.other for exposure in exposures})
    total = f"{counted(pages, 'page')} of {counted(others, 'request')}"
    most = sorted(exposures, key=lambda e: (-len(e.pages), e.other))
    return folded(
        [total],
        bullets(_exposure(exposure) for exposure in most[:OTHERS_MAX]),
        left_out(len(most) - OTHERS_MAX, "More"),
    )


def _exposure(found: Exposure) -> Element:
    generations = generation_words(sorted(set(found.generations)))
    where = f", {page_ranges(found.pages, RANGES_MAX)} of {found.node}, {generations}"
    return tag("span", "request ", tag("code", found.other, class_="whole"), where)
