"""What the evidence of a cost run says: what was sent to nodes, and how long drains took.

Records are counted for the load during which they were made; loads do not overlap. A node that was
killed has not written its last ones, so drains that it began are not among those that ended. The
gateway's file must be whole, since it says what was sent.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kvairlock.core.errors import Stage
from kvairlock.core.terms import Instant, Role
from kvairlock.drills.records import Entry
from kvairlock.drills.soak.evidence import lost_in
from kvairlock.drills.stack import DrillFailed
from kvairlock.sink.reading import read_lives

MEMORY = {"drain_ended": "pages", "window_fenced": "window"}
"""The events that say how long memory waited, and what kind of memory that was."""


@dataclass(frozen=True, slots=True, order=True)
class Cause:
    """On what a release rests.

    Args:
        memory: What was released: `pages` or a `window`.
        fence: The evidence that nobody could write any more.
    """

    memory: str
    fence: str


@dataclass(slots=True)
class Heard:
    """What was recorded during one load.

    Args:
        submits: Requests that the gateway sent to nodes.
        second_attempts: Those of them that were not the first attempt.
        page_ms_drained: Pages times the time for which they waited after the end of their request.
        waits_ms: How long memory waited after the end of its request, by what released it.
    """

    submits: int = 0
    second_attempts: int = 0
    page_ms_drained: int = 0
    waits_ms: Mapping[Cause, list[int]] = field(default_factory=lambda: defaultdict(list))

    def take(self, record: Entry) -> None:
        """Take one record."""
        match record["event"]:
            case "request_admitted" if record["stage"] == Stage.GATEWAY:
                self.submits += 1
            case "request_retried":
                self.second_attempts += 1
            case "drain_ended" | "window_fenced" as event:
                wait_ms = record["wait_ms"]
                self.waits_ms[Cause(MEMORY[event], record["fence"])].append(wait_ms)
                self.page_ms_drained += wait_ms * len(record.get("pages", ()))


def read_all(folder: Path) -> list[Entry]:
    """Return all records of a stack that has stopped.

    Args:
        folder: Where its processes wrote.

    Raises:
        DrillFailed: Records of the gateway are missing.
    """
    lives: list[list[Entry]] = read_lives(folder)
    gateway = [life for life in lives if life[0]["role"] == Role.GATEWAY]
    if not gateway or any(lost_in(life) for life in gateway):
        raise DrillFailed("the gateway's evidence is not whole, so nobody knows what it sent")
    return [record for life in lives for record in life]


def hear(records: Iterable[Entry], spans: Sequence[tuple[Instant, Instant]]) -> list[Heard]:
    """Sort records into spans of time.

    Args:
        records: In any order.
        spans: From when to when each load was played, on the clock of this machine.

    Returns:
        What was recorded in each span.
    """
    heard = [Heard() for _ in spans]
    for record in records:
        for (began, ended), each in zip(spans, heard, strict=True):
            if began <= record["at_boot_ns"] < ended:
                each.take(record)
    return heard
