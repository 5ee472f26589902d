"""Records become edges: on one clock, in one order, and what could not be read is counted.

Evidence is read as it was found: a file may be torn, old, copied twice, or not be ours at all. A
record that does not fit its row of the schema is left out and counted, never guessed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain, groupby
from typing import Any, cast

from kvairlock.core.evidence import (
    ENVELOPE,
    EVENTS,
    RENAMED,
    SCHEMA_VERSION,
    SCHEMAS_READ,
    Field,
    Kind,
    Sensitivity,
)
from kvairlock.core.terms import NS_PER_MS, Role

TEXT_MAX = 200
"""Characters of a text field: a longer one is none that we wrote."""

ONE_MACHINE_MS = 1_000
"""By how much wall and boot clock may differ between processes that share both."""


class Clock(StrEnum):
    """What the times of a run count."""

    BOOT = "boot"
    """All processes ran on one machine: the order is exact."""
    WALL = "wall"
    """They did not: the order between machines is as good as their clocks agree."""


@dataclass(frozen=True, slots=True, order=True)
class Who:
    """An owner as evidence names it: by two pseudonyms.

    Args:
        tenant: Keyed digest of the tenant.
        request: Keyed digest of request and attempt.
    """

    tenant: str
    request: str


@dataclass(frozen=True, slots=True, order=True)
class Life:
    """One incarnation of one node: what numbered the records, and what pages belong to."""

    node: str
    role: Role
    incarnation: str


@dataclass(frozen=True, slots=True)
class Edge:
    """One record that fits the schema.

    Args:
        at_ns: When, since the first record of the run.
        life: Who recorded it.
        sequence: Its number in that life.
        event: Its row of the schema.
        who: Whose it is, for events about a request.
        fields: The other fields of its row; None is not recorded, as all are that an older schema
            does not have.
    """

    at_ns: int
    life: Life
    sequence: int
    event: str
    who: Who | None
    fields: Mapping[str, Any]

    @property
    def pages(self) -> tuple[int, ...]:
        """The pages that it names, in the order of the owner's tokens."""
        return tuple(self.fields["pages"] or ())


@dataclass(frozen=True, slots=True)
class Log:
    """The records of a run.

    Args:
        edges: In order of time; within one life in the order of their numbers.
        clock: What their times count.
        misfits: Records that do not fit the schema.
        repeated: Records whose number was there before.
    """

    edges: tuple[Edge, ...]
    clock: Clock
    misfits: int
    repeated: int


def read_edges(records: Iterable[Mapping[str, object]], of_requests: bool = False) -> Log:
    """Put the records of one run in order.

    Args:
        records: From all processes of the run, in any order.
        of_requests: Whether times are counted from the first record about a request, and what a
            process did before that is put there too.
    """
    given = [_by_newest_names(record) for record in records]
    fitting = sorted((record for record in given if _fits(record)), key=_place)
    single = [next(same) for _, same in groupby(fitting, key=_place)]
    clock = _clock(single)
    since = [record for record in single if "request" in record] if of_requests else single
    start_ns = min((_time_ns(record, clock) for record in since or single), default=0)
    edges = chain.from_iterable(
        _edges_of_life(life, clock, start_ns) for _, life in groupby(single, key=_life)
    )
    return Log(
        edges=tuple(sorted(edges, key=_order)),
        clock=clock,
        misfits=len(given) - len(fitting),
        repeated=len(fitting) - len(single),
    )


def _by_newest_names(record: Mapping[str, object]) -> Mapping[str, object]:
    schema, event = record.get("schema"), record.get("event")
    if not isinstance(schema, int) or not isinstance(event, str):
        return record
    newer = RENAMED.get((schema, event), {})
    return {newer.get(name, name): value for name, value in record.items()} if newer else record


def _fits(record: Mapping[str, object]) -> bool:
    row = EVENTS.get(str(record.get("event")))
    if row is None or record.get("schema") not in SCHEMAS_READ:
        return False
    if str(record.get("role")) not in set(Role):
        return False
    return all(_holds(record, name, field) for name, field in (ENVELOPE | row).items())


def _holds(record: Mapping[str, object], name: str, field: Field) -> bool:
    """Whether a record has a field as its row names it.

    Who, where and when are always there. A figure may be none, as that of a refusal without a
    limit; and what an older schema did not have yet was not recorded.
    """
    needed = name in ENVELOPE or field.sensitivity is Sensitivity.PSEUDONYM
    if name not in record:
        return not needed and record["schema"] != SCHEMA_VERSION
    value = record[name]
    if value is None:
        return not needed and field.kind in (Kind.TEXT, Kind.INTEGER)
    match field.kind:
        case Kind.TEXT:
            return _is_text(value)
        case Kind.INTEGER:
            return _is_number(value)
        case Kind.TEXTS:
            return isinstance(value, list | tuple) and all(map(_is_text, value))
        case Kind.INTEGERS:
            return isinstance(value, list | tuple) and all(map(_is_count, value))


def _is_text(value: object) -> bool:
    return isinstance(value, str) and len(value) <= TEXT_MAX


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _number(record: Mapping[str, object], name: str) -> int:
    return cast("int", record[name])  # The record fits its row.


def _life(record: Mapping[str, object]) -> Life:
    return Life(str(record["node"]), Role(str(record["role"])), str(record["incarnation"]))


def _place(record: Mapping[str, object]) -> tuple[Life, int]:
    return _life(record), _number(record, "sequence")


def _clock(records: Iterable[Mapping[str, object]]) -> Clock:
    """Processes of one machine see the same wall clock at the same boot clock."""
    apart_ns = [_number(r, "at_unix_ns") - _number(r, "at_boot_ns") for r in records]
    spread_ns = max(apart_ns, default=0) - min(apart_ns, default=0)
    return Clock.BOOT if spread_ns <= ONE_MACHINE_MS * NS_PER_MS else Clock.WALL


def _time_ns(record: Mapping[str, object], clock: Clock) -> int:
    return _number(record, "at_boot_ns" if clock is Clock.BOOT else "at_unix_ns")


def _edges_of_life(
    records: Iterable[Mapping[str, object]], clock: Clock, start_ns: int
) -> Iterator[Edge]:
    """Make the edges of one life; a wall clock that was set back does not turn their order."""
    latest_ns = 0
    for record in records:
        latest_ns = max(latest_ns, _time_ns(record, clock) - start_ns)
        yield _edge(record, latest_ns)


def _edge(record: Mapping[str, object], at_ns: int) -> Edge:
    event = str(record["event"])
    row = EVENTS[event]
    return Edge(
        at_ns=at_ns,
        life=_life(record),
        sequence=_number(record, "sequence"),
        event=event,
        who=Who(str(record["tenant"]), str(record["request"])) if "request" in row else None,
        fields={name: record.get(name) for name in row},
    )


def _order(edge: Edge) -> tuple[int, Life, int]:
    return edge.at_ns, edge.life, edge.sequence
