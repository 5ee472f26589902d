"""The whole page: its parts in the order in which somebody who was called at night needs them."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from xml.etree.ElementTree import Element

from kvairlock.audit.page.affected import affected
from kvairlock.audit.page.coverage import coverage
from kvairlock.audit.page.others import excluded, insufficient
from kvairlock.audit.page.reading import limits, reading
from kvairlock.audit.page.summary import summary
from kvairlock.audit.page.timelines import timelines
from kvairlock.audit.report import Report
from kvairlock.audit.story import Story
from kvairlock.pictures import shell
from kvairlock.pictures.markup import tag
from kvairlock.pictures.svg import patterns

TITLE = "audit"


def write(report: Report, story: Story, path: Path) -> None:
    """Write the page.

    Args:
        report: What the audit says.
        story: What there is to tell about it.
        path: The file to write; one that is there is replaced.

    Raises:
        OSError: The page cannot be written.
    """
    path.write_text(html(report, story), encoding="utf-8")


def html(report: Report, story: Story) -> str:
    """Return the page; the same report and story give the same page, byte for byte."""
    own_style = files(__package__).joinpath("audit.css").read_text(encoding="utf-8")
    return shell.html(TITLE, _parts(report, story), own_style)


def _parts(report: Report, story: Story) -> Iterator[Element]:
    sections = [
        coverage(report, story),
        affected(report, story),
        timelines(story),
        insufficient(report),
        excluded(report),
        reading(),
        limits(report),
    ]
    yield patterns()
    yield tag("h1", f"kvairlock: {TITLE}")
    yield summary(report)
    yield shell.contents(sections)
    yield from sections
