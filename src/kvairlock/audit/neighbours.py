"""Records of others that a request's verdict rests on, with nothing in them but that.

A page that a request was given had an owner before it, and one after. That the one is gone and the
other not yet there is what excludes the request, so these records have to be shown with its own:

    page 7:   [ another: lease 3 ]--drain | [ the request ]--drain | [ another: lease 9 ]
                ^ from here on                                         ^ up to here

Pages that the request did not have are left out. What else would tell whose the records are is
taken off in `kvairlock.audit.blinding`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ibis import Table

from kvairlock.audit.explaining import Record, in_order

GIVEN = "pages_allocated"
PAGED = (GIVEN, "drain_began", "drain_ended", "read_started", "read_ended", "write_ended")
FENCED = "window_fenced"
REPEATED = "write_repeated"

Life = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Reach:
    """The part of one life's records that concerns one page of a request.

    Args:
        since: The number of the allocation before the request's first record of the page.
        until: That of the allocation after its last.
    """

    since: int
    until: int


def neighbours(records: Table, own: Sequence[Record]) -> list[Record]:
    """Return what is on record of others who had a request's pages right before and after it.

    Args:
        records: The wide table.
        own: The request's own records.
    """
    found: list[Record] = []
    for life in sorted({(record["node"], record["incarnation"]) for record in own}):
        mine = [r for r in own if (r["node"], r["incarnation"]) == life and r.get("pages")]
        if mine:
            found += _of_life(_on(records, life), mine)
    return found


def repeated_writes(records: Table, own: Iterable[Record]) -> list[Record]:
    """Return what is on record of writes that ran again into windows of a request.

    Args:
        records: The wide table.
        own: The request's own records; these name no request, and are its own all the same.
    """
    windows = {record["window"] for record in own if record["event"] == "window_granted"}
    again = records.filter((records.event == REPEATED) & records.window.isin(tuple(windows)))
    return in_order(again) if windows else []


def _on(records: Table, life: Life) -> Table:
    return records.filter((records.node == life[0]) & (records.incarnation == life[1]))


def _of_life(records: Table, mine: Sequence[Record]) -> list[Record]:
    request = mine[0]["request"]
    others = records.filter((records.request != request) & records.event.isin((*PAGED, FENCED)))
    given = others.filter(others.event == GIVEN).select("sequence", "pages", "generations")
    reach = _reach(given.order_by("sequence").to_pyarrow().to_pylist(), mine)
    low = min(each.since for each in reach.values())
    high = max(each.until for each in reach.values())
    near = in_order(others.filter(others.sequence.between(low, high)))
    shown = [cut for record in near if (cut := _cut(record, reach))]
    concerned = {record["request"] for record in shown}
    fences = [r for r in near if r["event"] == FENCED and r["request"] in concerned]
    return [*shown, *fences]


def _reach(given: Iterable[Record], mine: Iterable[Record]) -> dict[int, Reach]:
    """Return for each page of a request from where to where others' records of it matter."""
    spans, turns = _mentions(mine)
    before: dict[int, int] = {}
    meant: dict[int, int] = {}
    after: dict[int, int] = {}
    for record in given:
        at = record["sequence"]
        for page, generation in zip(record["pages"], record["generations"], strict=False):
            if page not in spans:
                continue
            first, last = spans[page]
            if at < first:
                before[page] = at
                if generation in turns[page]:
                    meant.setdefault(page, at)
            elif at > last:
                after.setdefault(page, at)
    return {
        page: Reach(meant.get(page, before.get(page, 0)), after.get(page, last))
        for page, (_, last) in spans.items()
    }


def _mentions(
    mine: Iterable[Record],
) -> tuple[dict[int, tuple[int, int]], dict[int, set[int]]]:
    """Return from where to where a request's records name each page, and in which generations."""
    spans: dict[int, tuple[int, int]] = {}
    turns: dict[int, set[int]] = {}
    for record in mine:
        at = record["sequence"]
        for page in record["pages"]:
            first, last = spans.get(page, (at, at))
            spans[page] = (min(first, at), max(last, at))
            turns.setdefault(page, set())
        for page, generation in zip(record["pages"], record.get("generations") or (), strict=False):
            turns[page].add(generation)
    return spans, turns


def _cut(record: Record, reach: dict[int, Reach]) -> Record | None:
    """Return a record of another with the pages that matter only; None if there are none."""
    if record["event"] not in PAGED or not record["pages"]:
        return None
    at = record["sequence"]
    kept = [
        i
        for i, page in enumerate(record["pages"])
        if page in reach and reach[page].since <= at <= reach[page].until
    ]
    if not kept:
        return None
    lists = [name for name in ("pages", "generations") if record.get(name)]
    return record | {name: [record[name][i] for i in kept] for name in lists}
