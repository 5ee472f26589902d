"""Parts of a page: tables, sections and lists, each with what a screen reader needs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from xml.etree.ElementTree import Element

from kvairlock.pictures.markup import Inside, tag


def table(caption: str, columns: Sequence[str], rows: Iterable[Sequence[Inside]]) -> Element:
    """Return a table that can be scrolled sideways, by keyboard too.

    Args:
        caption: What it shows.
        columns: The heads of its columns.
        rows: The cells of each row; the first one is the row's head.
    """
    heads = (tag("th", column, scope="col") for column in columns)
    made = tag("table", tag("caption", caption), tag("thead", tag("tr", *heads)))
    made.append(tag("tbody", *(_row(cells) for cells in rows)))
    return scrolled(made, caption)


def _row(cells: Sequence[Inside]) -> Element:
    head, *others = cells
    return tag("tr", tag("th", head, scope="row"), *(tag("td", cell) for cell in others))


def scrolled(inside: Element, label: str) -> Element:
    """Return a region in which something wide can be scrolled."""
    region = {"role": "region", "aria_label": label}
    return tag("div", inside, class_="wide", tabindex=0, **region)


def section(uid: str, title: str, *inside: Inside) -> Element:
    """Return a section of the page with its heading."""
    heading = tag("h2", title, id=f"{uid}-title")
    return tag("section", heading, *inside, id=uid, aria_labelledby=f"{uid}-title")


def folded(summary: Sequence[Inside], *inside: Inside, unfolded: bool = False) -> Element:
    """Return what is shown on request, or from the start."""
    made = tag("details", tag("summary", *summary), *inside)
    if unfolded:
        made.set("open", "")
    return made


def bullets(lines: Iterable[Inside], name: str = "ul", style: str = "") -> Element:
    """Return a list of lines."""
    attributes = {"class_": style} if style else {}
    return tag(name, *(tag("li", line) for line in lines), **attributes)


def left_out(count: int, what: str) -> Element | None:
    """Say how many there are more than there is room for; nothing if there are no more."""
    return tag("p", f"{what}: {count:,}.", class_="doubt") if count > 0 else None
