"""Values of the JSON document as parts of the page, whatever they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from xml.etree.ElementTree import Element

from kvairlock.pictures.markup import Inside, put, tag
from kvairlock.pictures.parts import table

MISSING = "not stated"
"""What is shown in place of a field that is not there; it never counts as good."""


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
