"""The report of drills as one HTML page: it needs no network, no script and no other file.

    document --> what came out, what was covered, what is left, what is not proven
    evidence --> pictures of pages: who held what when, and the story of each run

The page can be kept with an incident's records, and read years later. The same input gives the same
page, byte for byte. Texts of documents and records are never taken for markup.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element

from kvairlock.drills.report import document as said
from kvairlock.drills.report.runs import runs_section
from kvairlock.drills.runs.rows import RunEvidence
from kvairlock.pictures.legend import legend
from kvairlock.pictures.markup import tag
from kvairlock.pictures.parts import section
from kvairlock.pictures.shell import contents, html
from kvairlock.pictures.svg import patterns

TITLE = "Drill report"


def write_page(path: Path, document: Mapping[str, Any], runs: Sequence[RunEvidence]) -> None:
    """Write the report.

    Args:
        path: The file to write; one that is there is replaced.
        document: The JSON document of the drills.
        runs: The evidence of each stack; one whose folder is gone is shown as without evidence.

    Raises:
        OSError: The page cannot be written, or a file of evidence cannot be read.
    """
    path.write_text(page(document, runs), encoding="utf-8")


def page(document: Mapping[str, Any], runs: Sequence[RunEvidence]) -> str:
    """Return the report as HTML; the arguments are those of `write_page`."""
    return html(TITLE, _body(document, runs))


def _body(document: Mapping[str, Any], runs: Sequence[RunEvidence]) -> Iterator[Element]:
    yield patterns()
    yield tag("h1", f"kvairlock: {TITLE.lower()}")
    yield said.summary(document)
    parts = [
        said.results(document),
        said.coverage(document),
        section("legend", "How to read the pictures", legend()),
        runs_section(runs),
        said.cleanup(document),
        said.not_proven(document),
    ]
    yield contents(parts)
    yield from parts
