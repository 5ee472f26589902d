"""The shell of a page: one HTML file that needs no network, no script and no other file.

    parts --> written out --> page.html, with the styles of pages and pictures inside

Such a page can be kept with an incident's records, and read years later. The policy in its head
forbids a browser to load or run anything, whatever a record managed to bring in.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib.resources import files
from string import Template
from xml.etree.ElementTree import Element

from kvairlock.pictures.markup import tag, written
from kvairlock.pictures.parts import bullets
from kvairlock.pictures.svg import style


def html(title: str, parts: Iterable[Element], extra_style: str = "") -> str:
    """Return a whole page.

    Args:
        title: Of the document, as plain words of ours.
        parts: What is inside of its main landmark, in order.
        extra_style: Style sheet of what only this kind of page has.
    """
    folder = files(__package__)
    template = Template(folder.joinpath("page.html").read_text(encoding="utf-8"))
    return template.substitute(
        title=title,
        style=style() + folder.joinpath("page.css").read_text(encoding="utf-8") + extra_style,
        body="\n".join(written(part) for part in parts),
    )


def contents(sections: Sequence[Element]) -> Element:
    """Return links to sections, made by `kvairlock.pictures.parts.section`."""
    links = (tag("a", part[0].text, href=f"#{part.get('id')}") for part in sections)
    return tag("nav", bullets(links), aria_label="Contents")
