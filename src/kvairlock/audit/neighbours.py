"""Records of others that a request's verdict rests on, with nothing in them but that.

A page that a request was given had an owner before it, and one after. That the one is gone and the
other not yet there is what excludes the request, so these records have to be shown with its own:

    page 7:   [ another: lease 3 ]--drain | [ the request ]--drain | [ another: lease 9 ]
                ^ from here on                                         ^ up to here

What is shown of others is when they had *these* pages and how they gave them back. All names are
replaced by digests that exist in one bundle only, and pages that the request did not have are left
out, so that nobody can be followed from one bundle to the next, nor counted.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ibis import Table

from kvairlock.audit.explaining import Record, in_order
from kvairlock.core.evidence import ENVELOPE, EVENTS, Sensitivity

SHOWN = ("lease", "pages", "generations", "fence", "status")
"""Fields of others' records that are kept; all others become null."""
GIVEN = "pages_allocated"
PAGED = (GIVEN, "drain_began", "drain_ended", "read_started", "read_ended", "write_ended")
FENCED = "window_fenced"
SOMEBODY = "another tenant or request"

Life = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Names:
    """Digests of one bundle, which nobody can join with anything else.

    Args:
        own: Digests that stay as they are: the request's own.
        key: What the others are digested with; it is never written anywhere.
    """

    own: frozenset[str]
    key: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)

    def of(self, digest: str) -> str:
        """Return what stands for a digest in this bundle."""
        if digest in self.own:
            return digest
        return hmac.new(self.key, digest.encode(), hashlib.sha256).hexdigest()[:24]


@dataclass(frozen=True, slots=True)
class Reach:
    """The part of one life's records that concerns one page of a request.

    Args:
        since: The number of the allocation before the request's first record of the page.
        until: That of the allocation after its last.
    """

    since: int
    until: int


def own_records(records: Iterable[Record], names: Names) -> list[Record]:
    """Return a request's records, in which digests of others are replaced."""
    return [_renamed(record, names) for record in records]


def neighbours(records: Table, own: Sequence[Record], names: Names) -> list[Record]:
    """Return what is on record of others who had a request's pages right before and after it.

    Args:
        records: The wide table.
        own: The request's own records.
        names: How others are called.
    """
    found: list[Record] = []
    for life in sorted({(record["node"], record["incarnation"]) for record in own}):
        mine = [r for r in own if (r["node"], r["incarnation"]) == life and r.get("pages")]
        if mine:
            found += _of_life(_on(records, life), mine, names)
    return found


def _on(records: Table, life: Life) -> Table:
    return records.filter((records.node == life[0]) & (records.incarnation == life[1]))


def _of_life(records: Table, mine: Sequence[Record], names: Names) -> list[Record]:
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
    return [_blinded(record, names) for record in (*shown, *fences)]


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


def _blinded(record: Record, names: Names) -> Record:
    """Return a record of another of which only what matters is left."""
    kept = (*ENVELOPE, *SHOWN)
    blind = {name: value if name in kept else None for name, value in record.items()}
    return {**blind, "tenant": names.of(SOMEBODY), "request": names.of(record["request"])}


def _renamed(record: Record, names: Names) -> Record:
    fields = EVENTS[record["event"]]
    return {
        name: names.of(value) if _is_other(fields, name, value) else value
        for name, value in record.items()
    }


def _is_other(fields: dict[str, Any], name: str, value: object) -> bool:
    pseudonym = name in fields and fields[name].sensitivity is Sensitivity.PSEUDONYM
    return pseudonym and isinstance(value, str) and bool(value)
