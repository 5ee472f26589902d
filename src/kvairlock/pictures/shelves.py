"""Pages as rows of a picture: those with one history share a row, the rows of a node are a shelf.

decode-0   pages 0-8    one history      <- row
pages 9-17   another
prefill-0  pages 3-20   ...              <- another shelf
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from kvairlock.core.terms import Role
from kvairlock.pictures.edges import Life
from kvairlock.pictures.finders import Histories
from kvairlock.pictures.findings import Finding
from kvairlock.pictures.history import History

ROWS_MAX = 24
"""Rows of one node in one scene."""

NOTHING = History((), (), ())

ORDER = (Role.DECODE, Role.PREFILL, Role.GATEWAY)
"""Decode first: there it shows whether pages were read that should not have been."""


@dataclass(frozen=True, slots=True)
class Row:
    """Pages of one node that have the same history in a scene.

    Args:
        pages: Which, in order.
        history: Of each of them.
        generations: For each stay of the history, the generations in which its owner had the pages,
            in order; empty if no record says.
    """

    pages: tuple[int, ...]
    history: History
    generations: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Shelf:
    """The rows of one node.

    Args:
        life: Whose pages they are.
        rows: In order of their first page; if there is not room for all, those with findings come
            first, then those on which something began.
        pages_left_out: Pages that have a history too, and no row.
    """

    life: Life
    rows: tuple[Row, ...]
    pages_left_out: int


def shelves_of(
    histories: Histories, began_ns: int, ended_ns: int, findings: tuple[Finding, ...]
) -> tuple[Shelf, ...]:
    """Return the shelves of all nodes that held pages between two times.

    Args:
        histories: Of every page, for each life.
        began_ns: From when.
        ended_ns: Until when.
        findings: Of the run: pages that they are about come first where there is not room for all.
    """
    shelves = []
    for life in sorted(histories, key=lambda life: (ORDER.index(life.role), life)):
        marked = {
            page
            for found in findings
            if found.life == life and found.began_ns <= ended_ns and found.ended_ns >= began_ns
            for page in found.pages
        }
        rows = _rows(histories[life], began_ns, ended_ns)
        rows.sort(key=lambda row: (marked.isdisjoint(row.pages), _rests(row, began_ns), row.pages))
        if rows:
            shelves.append(_shelf(life, rows))
    return tuple(shelves)


def _rests(row: Row, began_ns: int) -> bool:
    """Whether nothing began on these pages in the scene; what was kept before is still there."""
    return all(stay.began_ns < began_ns for stay in row.history.stays)


def _rows(histories: Mapping[int, History], began_ns: int, ended_ns: int) -> list[Row]:
    alike: defaultdict[History, list[tuple[int, History]]] = defaultdict(list)
    for page, history in histories.items():
        within = history.within(began_ns, ended_ns)
        alike[within].append((page, within))
    alike.pop(NOTHING, None)
    return [_row(history, pages) for history, pages in alike.items()]


def _row(history: History, pages: list[tuple[int, History]]) -> Row:
    """Put pages with one history together; what may differ is the generation of each stay."""
    stays = zip(*(of.stays for _, of in pages), strict=True)
    known = ({s.generation for s in of if s.generation is not None} for of in stays)
    return Row(
        pages=tuple(page for page, _ in pages),
        history=history,
        generations=tuple(tuple(sorted(of)) for of in known),
    )


def _shelf(life: Life, rows: list[Row]) -> Shelf:
    """Put up as many rows as there is room for, the most telling ones first."""
    left_out = sum(len(row.pages) for row in rows[ROWS_MAX:])
    return Shelf(life, tuple(sorted(rows[:ROWS_MAX], key=lambda row: row.pages)), left_out)
