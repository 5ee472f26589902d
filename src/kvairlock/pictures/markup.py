"""Elements of HTML and SVG as a tree, so that no text of anybody else's can become markup.

Text goes in as text and is escaped when the tree is written out. Characters that no document may
hold are replaced, and text has a bound.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from xml.etree.ElementTree import Element, tostring

TEXT_MAX = 2_000
_NEVER = re.compile(
    "[^\\t\\n\\x20-\\x7e\\xa0-\\ud7ff\\ue000-\\ufdcf\\ufdf0-\\ufffd\U00010000-\U0010fffd]"
)
_TURNING = re.compile("[\\u200e\\u200f\\u202a-\\u202e\\u2066-\\u2069]")

Inside = Element | str | None


def tag(name: str, *inside: Inside, **attributes: str | float) -> Element:
    """Make an element.

    Args:
        name: Of the element.
        inside: Elements and text, in order; None is nothing.
        attributes: Without a trailing underscore, and with hyphens for underscores.
    """
    made = Element(name, {_name(key): _value(value) for key, value in attributes.items()})
    put(made, inside)
    return made


def put(into: Element, inside: Iterable[Inside]) -> None:
    """Add elements and text at the end of an element."""
    for part in inside:
        if isinstance(part, Element):
            into.append(part)
        elif part is not None and len(into):
            into[-1].tail = (into[-1].tail or "") + clean(part)
        elif part is not None:
            into.text = (into.text or "") + clean(part)


def clean(text: str) -> str:
    """Return text that a document may hold: bounded, nothing invisible that turns its direction."""
    bounded = text if len(text) <= TEXT_MAX else f"{text[:TEXT_MAX]} … (cut)"
    return _TURNING.sub("\ufffd", _NEVER.sub("\ufffd", bounded))


def written(element: Element) -> str:
    """Return an element as HTML that is well-formed XML too; none here is of the void ones."""
    return tostring(element, encoding="unicode", short_empty_elements=False)


def _name(key: str) -> str:
    return key.rstrip("_").replace("_", "-")


def _value(value: str | float) -> str:
    return clean(value) if isinstance(value, str) else f"{value:.1f}".removesuffix(".0")
