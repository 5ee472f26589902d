"""What the processes' own evidence says about a soak: every end once, and no record lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kvairlock.core.errors import Stage
from kvairlock.core.terms import NS_PER_MS, Role
from kvairlock.drills.records import Entry
from kvairlock.sink.reading import read_lives

WAIT_MS_MIN = 10


@dataclass(frozen=True, slots=True)
class Witness:
    """What the evidence of a stack that has stopped in order says.

    Args:
        files: How many lives of processes there is evidence of.
        records: How many records there are.
        records_lost: How many numbers are missing in them.
        files_open: Lives without a close marker: what came last in them is not known.
        ends_missing: Requests that the gateway let pass, and that no decode node ended.
        ends_repeated: Ends of a request on a node after the first.
        waited: Requests that waited at least 10 ms for pages, because others held them.
        wait_ms_max: The longest such wait.
    """

    files: int
    records: int
    records_lost: int
    files_open: int
    ends_missing: int
    ends_repeated: int
    waited: int
    wait_ms_max: int


def hear(folder: Path) -> Witness:
    """Read the evidence of a stack that has stopped.

    Args:
        folder: Where its processes wrote.
    """
    lives: list[list[Entry]] = read_lives(folder)
    records = [record for life in lives for record in life]
    decode = [record for record in records if record["role"] == Role.DECODE]
    waits_ms = _waits_ms(decode)
    return Witness(
        files=len(lives),
        records=len(records),
        records_lost=sum(lost_in(life) for life in lives),
        files_open=sum(life[-1]["event"] != "node_closed" for life in lives),
        ends_missing=len(_admitted(records, Stage.GATEWAY) - {r for _, r in _ends(decode)}),
        ends_repeated=sum(count - 1 for count in _ends(records).values()),
        waited=sum(wait_ms >= WAIT_MS_MIN for wait_ms in waits_ms),
        wait_ms_max=max(waits_ms, default=0),
    )


def lost_in(life: Sequence[Entry]) -> int:
    """Return how many numbers are missing: a writer gives one to all, also to what it drops."""
    return int(life[-1]["sequence"]) - len(life)


def _admitted(records: Sequence[Entry], stage: Stage) -> set[str]:
    found = (r for r in records if r["event"] == "request_admitted" and r["stage"] == stage)
    return {record["request"] for record in found}


def _ends(records: Sequence[Entry]) -> Counter[tuple[str, str]]:
    """Count ends by node and request; a request that does not enter a decode node is refused."""
    entered = _admitted(records, Stage.DECODE_ADMISSION)
    return Counter(
        (record["node"], record["request"])
        for record in records
        if record["event"] == "request_ended"
        or (record["event"] == "request_refused" and _turned_away(record, entered))
    )


def _turned_away(record: Entry, entered: set[str]) -> bool:
    return record["role"] == Role.DECODE and record["request"] not in entered


def _waits_ms(decode: Sequence[Entry]) -> list[int]:
    """How long each request waited on its decode node from admission to its pages."""
    admitted = {r["request"]: r["at_boot_ns"] for r in decode if r["event"] == "request_admitted"}
    granted = {r["request"]: r["at_boot_ns"] for r in decode if r["event"] == "pages_allocated"}
    return [
        (at_ns - admitted[request]) // NS_PER_MS
        for request, at_ns in granted.items()
        if request in admitted
    ]
