"""What must hold of every page that is written: for browsers, for readers, for whoever keeps it."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from itertools import pairwise
from xml.etree import ElementTree
from xml.etree.ElementTree import Element


def main_of(html: str) -> Element:
    """Return the body of a page as a tree: it is well-formed XML too."""
    body = html[html.index("<main>") : html.index("</main>") + len("</main>")]
    return ElementTree.fromstring(body)  # noqa: S314 - made by the code under test


def words(element: Element) -> str:
    return " ".join(" ".join(element.itertext()).split())


class Seen(HTMLParser):
    """What a browser would make of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str]] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(name, value or "") for name, value in attrs]


HARMLESS = """
    html head meta title style body main nav section article details summary h1 h2 h3 h4
    p a em strong code span div
    ul ol li dl dt dd table caption thead tbody tr th td
    svg desc pattern path circle g rect line text
"""


def assert_harmless(html: str) -> None:
    """Nothing runs, nothing is fetched, nothing leads elsewhere."""
    seen = Seen(html)
    assert seen.tags <= set(HARMLESS.split())
    for name, value in seen.attributes:
        assert not name.startswith("on"), name
        assert name not in ("src", "srcset", "style", "action", "xlink:href"), name
        assert name != "href" or value.startswith("#"), value
    sheet = html.split("<style>")[1].split("</style>")[0]
    assert set(re.findall(r"url\(([^)]*)\)", sheet)) <= {
        "#kv-landing",
        "#kv-shared",
        "#kv-draining",
        "#kv-hatch",
    }
    assert "@import" not in sheet
    assert "default-src 'none'" in html


def assert_served(main: Element) -> None:
    """Whoever reads it aloud, or with keys, is served."""
    ids = [part.get("id") for part in main.iter() if part.get("id")]
    assert len(ids) == len(set(ids))
    for part in main.iter():
        for target in (part.get("aria-labelledby") or "").split():
            assert target in ids, target
        href = part.get("href")
        assert href is None or href[1:] in ids, href
    for table in main.iter("table"):
        assert table[0].tag == "caption"
        assert words(table[0])
        assert all(head.get("scope") in ("col", "row") for head in table.iter("th"))
        assert all(row[0].tag == "th" for row in table.iterfind("tbody/tr"))
    for svg in main.iter("svg"):
        told = svg.get("role") == "img" and svg[0].tag == "title" and svg[1].tag == "desc"
        assert told or svg.get("aria-hidden") == "true"
    for region in main.iterfind(".//div[@class='wide']"):
        assert region.get("tabindex") == "0"
        assert region.get("aria-label")


def assert_in_levels(main: Element) -> None:
    """Headings leave no level out."""
    levels = [int(part.tag[1]) for part in main.iter() if re.fullmatch(r"h\d", part.tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
