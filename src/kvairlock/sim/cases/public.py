"""The shipped cases: public failures by their ids, and those that this world cannot say."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from kvairlock.sim.cases.case import Case, Telling
from kvairlock.sim.cases.expectations import EXPECTATIONS
from kvairlock.sim.cases.reader import read
from kvairlock.sim.cases.steps import STEPS
from kvairlock.sim.cases.words import CaseError, Vocabulary
from kvairlock.sim.cases.worlds import WORLD

FOLDER = files("kvairlock.sim.cases") / "public"
SUFFIX, NOT_REPLAYED = ".case", "not_replayed"


def shipped() -> list[Case]:
    """Read all shipped cases, in the order of their ids."""
    texts = (entry for entry in FOLDER.iterdir() if entry.name.endswith(SUFFIX))
    cases = (read(entry.read_text(), entry.name) for entry in texts)
    return sorted(cases, key=lambda case: number_of(case.ids[0]))


def not_replayed() -> dict[str, str]:
    """Return why this world cannot say some cases, by their ids.

    Raises:
        CaseError: A line is no `ID: reason`.
    """
    reasons = {}
    for number, line in enumerate((FOLDER / NOT_REPLAYED).read_text().splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        name, colon, reason = line.partition(": ")
        if not colon:
            raise CaseError(NOT_REPLAYED, number, "expected `ID: reason`")
        reasons[name] = reason
    return reasons


def number_of(name: str) -> int:
    """Return the number in an id, to sort by."""
    return int(name.rpartition("-")[2])


# What the docs show


def rows() -> list[tuple[str, str, str, str, str]]:
    """Return what docs show of each case: ids, title, right outcome, without what, what shows."""
    return [_row(case) for case in shipped()]


def reasons() -> list[tuple[str, str]]:
    """Return what docs show of cases that are not replayed: id and reason."""
    return list(not_replayed().items())


def language() -> dict[str, list[tuple[str, str]]]:
    """Return what docs show of the language: phrases and what they do, for each section."""
    tables: dict[str, Vocabulary[Any]] = {
        "world": WORLD,
        "steps": STEPS,
        "expectations": EXPECTATIONS,
    }
    return {
        name: [(phrase.words, phrase.does) for phrase in vocabulary.rows]
        for name, vocabulary in tables.items()
    }


def _row(case: Case) -> tuple[str, str, str, str, str]:
    without = ", ".join(case.failing.without) if case.failing else "built in"
    shows = _expected(case.failing) if case.failing else case.built_in
    return ", ".join(case.ids), case.title, _expected(case.right[0]), without, shows


def _expected(telling: Telling) -> str:
    return "; ".join(each.line.text for each in telling.expected)
