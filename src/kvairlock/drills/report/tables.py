"""Tables, lists and pieces of the report's page, each with what a screen reader needs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from xml.etree.ElementTree import Element

from kvairlock.drills.pictures.markup import Inside, put, tag

MISSING = "not stated"
"""What is shown in place of a field that is not there; it never counts as good."""


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


def shown(value: Any, name: str = "") -> Inside:
    """Return any value of a JSON document: what has names as a list, many alike as a table.

    Args:
        value: The value.
        name: What it is called.
    """
    if isinstance(value, Mapping):
        return _pairs(value)
    if isinstance(value, list | tuple) and any(isinstance(part, Mapping) for part in value):
        return _alike(value, name)
    return brief(value)


def brief(value: Any) -> str:
    """Return any value of a JSON document in one line."""
    match value:
        case None:
            return MISSING
        case bool():
            return "yes" if value else "no"
        case Mapping():
            return ", ".join(f"{_spaced(name)} {brief(part)}" for name, part in value.items())
        case list() | tuple():
            return ", ".join(map(brief, value)) or "none"
        case _:
            return str(value)


def _pairs(values: Mapping[str, Any]) -> Element:
    made = tag("dl")
    for name, value in values.items():
        put(made, [tag("dt", _spaced(name)), tag("dd", shown(value, name))])
    return made


def _alike(values: Sequence[Any], name: str) -> Element:
    """Return mappings as a table, with a column for each name that any of them has."""
    each = [value if isinstance(value, Mapping) else {name: value} for value in values]
    names = list(dict.fromkeys(key for value in each for key in value))
    rows = ([brief(value.get(key)) for key in names] for value in each)
    return table(_spaced(name) or "values", [_spaced(key) for key in names], rows)


def _spaced(name: object) -> str:
    return str(name).replace("_", " ")
