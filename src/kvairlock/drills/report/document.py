"""What the report's page says of the drills: what came out, what was covered, what was cleaned up.

It is made from the JSON document alone. A field that is not there is shown as not stated, and never
counts as good.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any
from xml.etree.ElementTree import Element

from kvairlock.core.guards import Guard
from kvairlock.drills.library.drill import Level, Round
from kvairlock.drills.report.tables import MISSING, shown
from kvairlock.pictures.markup import Inside, tag
from kvairlock.pictures.parts import bullets, section, table

Document = Mapping[str, Any]

COLUMNS = (
    "drill",
    "round",
    "level",
    "guards off",
    "result",
    "expected",
    "saw",
    "recorded by",
    "client got",
    "seconds",
)


class Result(StrEnum):
    """What a row of the document comes to."""

    HELD = "held"
    LEAKED = "did not hold"
    FAILED = "failed as it must"
    SHADOWED = "did not fail"
    UNSTATED = "not stated"


GOOD = frozenset({Result.HELD, Result.FAILED})
"""Only these came out as they must."""


def result_of(row: Mapping[str, Any]) -> Result:
    """Judge a row: with its guards it must hold, without them it must fail."""
    held, failed = row.get("held"), row.get("failed_as_expected", MISSING)
    if failed is None and isinstance(held, bool):
        return Result.HELD if held else Result.LEAKED
    if isinstance(failed, bool):
        return Result.FAILED if failed else Result.SHADOWED
    return Result.UNSTATED


def summary(document: Document) -> Element:
    """Return what came out of all, in one line."""
    rows = _rows(document)
    good = sum(result_of(row) in GOOD for row in rows)
    fine = document.get("ok") is True and good == len(rows) > 0
    words = "Everything came out as it must" if fine else "Not everything came out as it must"
    glyph, style = ("✓", "good") if fine else ("✗", "bad")
    line = f"{glyph} {words}: {good} of {len(rows)} runs."
    return tag("p", line, *_doubts(document, fine), class_=f"summary {style}")


def _doubts(document: Document, fine: bool) -> Iterator[str]:
    if not _rows(document):
        yield " Nothing was carried out."
    if "ok" not in document:
        yield " The document does not say whether all is well."
    elif document["ok"] is True and not fine:
        yield " The document says that all is well; its rows do not."
    skipped = len(document.get("skipped") or ())
    if skipped:
        yield f" Skipped: {skipped}."
    if "seed" in document:
        yield f" Canaries are drawn from seed {document['seed']}."


def results(document: Document) -> Element:
    """Return the table of what came out."""
    rows = (_cells(row) for row in _rows(document))
    about = "A drill must hold with its guards, and must be seen to fail without them."
    found = table("Each drill and run: what had to be seen, and what was", COLUMNS, rows)
    return section("results", "What came out", tag("p", about), found)


def _rows(document: Document) -> Sequence[Mapping[str, Any]]:
    rows = document.get("rows") or ()
    return [row for row in rows if isinstance(row, Mapping)]


def _cells(row: Mapping[str, Any]) -> list[Inside]:
    off = row.get("guards_off", MISSING)
    result = result_of(row)
    mark, style = ("✓", "good") if result in GOOD else ("✗", "bad")
    message = row.get("message")
    saw = tag("span", _text(row, "saw"), tag("em", f" {message}") if message else None)
    got = " ".join(str(row[k]) for k in ("http_status", "refusal") if row.get(k) is not None)
    return [
        _text(row, "drill"),
        _text(row, "round"),
        "beside" if "level" in row and row["level"] is None else _text(row, "level"),
        "none" if off in ([], ()) else off if isinstance(off, str) else ", ".join(map(str, off)),
        tag("span", f"{mark} {result}", class_=style),
        _text(row, "expected"),
        saw,
        row.get("recorded_by") or "nobody",
        got or "nothing",
        _text(row, "seconds"),
    ]


def _text(row: Mapping[str, Any], name: str) -> str:
    value = row.get(name)
    return MISSING if value is None else str(value)


def coverage(document: Document) -> Element:
    """Return which rounds and levels were tried, and which guards were seen to be missed."""
    rows = _rows(document)
    levels = _with_known(map(str, Level), (_level(row) for row in rows))
    rounds = _with_known(Round, (_text(row, "round") for row in rows))
    tried = Counter((_text(row, "round"), _level(row)) for row in rows)
    good = Counter((_text(r, "round"), _level(r)) for r in rows if result_of(r) in GOOD)
    cells = (
        [name, *(_share(good[name, level], tried[name, level]) for level in levels)]
        for name in rounds
    )
    heads = ["round", *(f"level {x}" if x.isdigit() else x for x in levels)]
    return section(
        "coverage",
        "What was covered",
        table("Runs that came out as they must, of those carried out", heads, cells),
        *_guards(rows),
        *_skipped(document),
    )


def _with_known(known: Iterable[str], found: Iterable[str]) -> list[str]:
    """Return what there is to try, tried or not, and what else was tried."""
    return list(dict.fromkeys([*known, *sorted(found)]))


def _level(row: Mapping[str, Any]) -> str:
    return "beside the levels" if row.get("level") is None else str(row["level"])


def _share(good: int, tried: int) -> str:
    return f"{good} of {tried}" if tried else "no run"


def _guards(rows: Sequence[Mapping[str, Any]]) -> Iterator[Element]:
    off = {str(g) for row in rows if result_of(row) is Result.FAILED for g in _off(row)}
    seen = [str(guard) for guard in Guard if guard in off]
    unseen = [str(guard) for guard in Guard if guard not in off]
    yield tag("p", f"Guards that were off in a run that was seen to fail: {_listed(seen)}.")
    if unseen:
        yield tag("p", f"No run shows what happens without: {_listed(unseen)}.", class_="doubt")


def _off(row: Mapping[str, Any]) -> Sequence[Any]:
    off = row.get("guards_off")
    return off if isinstance(off, list | tuple) else ()


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"


def _skipped(document: Document) -> Iterator[Element]:
    skipped = [s for s in document.get("skipped") or () if isinstance(s, Mapping)]
    if skipped:
        rows = ([_text(s, "drill"), _text(s, "why")] for s in skipped)
        yield table("Skipped: nothing is shown by these", ("drill", "why"), rows)


def cleanup(document: Document) -> Element:
    """Return what is left of the canaries, as the document says it."""
    said = document.get("cleanup")
    stated = isinstance(said, Mapping) and said.get("verified") is True
    line = (
        "✓ Verified: nothing is left." if stated else "✗ It is not verified that nothing is left."
    )
    note = tag("p", line, class_="good" if stated else "bad")
    return section("cleanup", "What is left of it", note, tag("div", shown(said)))


def not_proven(document: Document) -> Element:
    """Return what canaries do not prove."""
    lines = [str(line) for line in document.get("canaries_do_not_prove") or ()]
    inside = bullets(lines) if lines else tag("p", f"The document says nothing of it: {MISSING}.")
    return section("not-proven", "What canaries do not prove", inside)
