"""What happened to the pages of each affected request: in words, as a picture, as a table.

A picture has bounds of its own. Together they have one as well, so that the file can still be sent
to somebody; what is over it is told in words only.
"""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree.ElementTree import Element

from kvairlock.audit.page.affected import exposed
from kvairlock.audit.page.caption import caption
from kvairlock.audit.page.words import DIGITS, FINDS, digest, spaced, utc
from kvairlock.audit.story import Story, Told
from kvairlock.pictures.markup import Inside, tag, written
from kvairlock.pictures.parts import bullets, folded, left_out, section
from kvairlock.pictures.pen import Numbered
from kvairlock.pictures.scenes import Picture, picture
from kvairlock.pictures.view import scene_view

BYTES_MAX = 3_000_000
"""All pictures of the page together."""
SCENES_MAX = 3

ABOUT = (
    "Each row is pages with one history, each bar the time for which one request held them. Those "
    "who had the pages before and after are drawn too. Hatched and numbered is what records show "
    "and must not be."
)


def timelines(story: Story) -> Element:
    """Return the section with the pages of all affected requests that are told of."""
    return section(
        "pages",
        "What happened to their pages",
        tag("p", ABOUT if story.told else "There is no affected request to draw."),
        *_bounded(story),
        left_out(story.left_out, "Affected requests whose pages are not drawn"),
    )


NOTHING_TO_DRAW = "No record of it is about pages, so there is no picture."


def _bounded(story: Story) -> Iterator[Element]:
    left = BYTES_MAX
    for number, told in enumerate(story.told, start=1):
        drawn = list(_pictures(told, f"request-{number}"))
        left -= sum(len(written(part)) for part in drawn)
        if left < 0:
            drawn = [tag("p", "There was no room for its picture.", class_="doubt")]
        yield _request(number, told, drawn)


def _request(number: int, told: Told, drawn: list[Element]) -> Element:
    uid, verdict = f"request-{number}", told.verdict
    head = tag("h3", f"Request {verdict.request[:DIGITS]}", id=f"{uid}-title")
    since = f", first recorded {utc(verdict.since_unix_ns)} UTC. Times are counted from "
    about = tag("p", "Tenant ", digest(verdict.tenant), f"{since}{utc(_since(told))}.")
    return tag(
        "article",
        head,
        about,
        bullets(map(_reason, verdict.reasons), style="reasons"),
        tag("p", " ".join(caption(told))),
        tag("div", "Exposed to: ", exposed(told.exposures)),
        left_out(told.others_left_out, "Requests that had some of its pages, and are not drawn"),
        *drawn,
        folded(["Names in full"], _names(told)),
        id=uid,
        aria_labelledby=f"{uid}-title",
    )


def _reason(name: str) -> Element:
    return tag("span", tag("strong", spaced(name)), f": {FINDS[name]}")


def _since(told: Told) -> int:
    """When the picture begins: its times are counted from the first record about a request."""
    times = (row["at_unix_ns"] for row in told.records if "request" in row)
    return min(times, default=told.verdict.since_unix_ns)


def _pictures(told: Told, uid: str) -> Iterator[Element]:
    seen = picture(told.records, about=told.verdict.request)
    numbered = [Numbered(n, found) for n, found in enumerate(seen.findings, start=1)]
    for place, scene in enumerate(seen.scenes[:SCENES_MAX], start=1):
        yield from scene_view(scene, seen.names, numbered, f"{uid}-{place}", lines_open=0)
    if not any(row.get("pages") for row in told.records):
        yield tag("p", NOTHING_TO_DRAW)
    yield from _not_drawn(seen)


def _not_drawn(seen: Picture) -> Iterator[Element]:
    later = len(seen.scenes) - SCENES_MAX + seen.scenes_left_out
    for part in (
        left_out(later, "Later parts that are not drawn"),
        left_out(seen.misfits, "Records that do not fit the schema, and are not drawn"),
        left_out(seen.repeated, "Records with the number of another one, which are not drawn"),
    ):
        if part is not None:
            yield part


def _names(told: Told) -> Element:
    tenants = {row["request"]: row.get("tenant", "") for row in told.records if "request" in row}
    names: Iterator[Inside] = (
        tag(
            "span",
            "request ",
            tag("code", request, class_="whole"),
            " of tenant ",
            tag("code", tenants.get(request) or "unknown", class_="whole"),
        )
        for request in (told.verdict.request, *told.others)
    )
    return bullets(names)
