"""Evidence of runs that never were, as records: each fits its row of the schema."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import Any

from kvairlock.core.evidence import EVENTS, SCHEMA_VERSION, Kind
from kvairlock.core.terms import Role
from kvairlock.pictures.edges import Who

Evidence = dict[str, Any]

ACME = Who("aaaa1111", "a0a0a0a0")
BRAVO = Who("bbbb2222", "b0b0b0b0")
MS = 1_000_000
EPOCH_NS = 1_790_000_000_000_000_000
EMPTY: dict[Kind, Any] = {Kind.TEXT: "", Kind.INTEGER: 0, Kind.INTEGERS: [], Kind.TEXTS: []}


@dataclass
class Node:
    """One life of a process; its records may be made in any order, and are numbered by time."""

    name: str
    role: Role
    life: str = "1"
    records: list[Evidence] = field(default_factory=list)

    def record(self, at_ms: float, event: str, who: Who | None = None, **fields: Any) -> None:
        """Record an event; fields that are not given are empty."""
        row = EVENTS[event]
        known = {} if who is None else {"tenant": who.tenant, "request": who.request}
        unknown = (set(fields) | set(known)) - set(row)
        assert not unknown, unknown
        made: Evidence = {
            "schema": SCHEMA_VERSION,
            "event": event,
            "node": self.name,
            "role": self.role.value,
            "incarnation": f"{self.name}-{self.life}",
            "at_unix_ns": EPOCH_NS + round(at_ms * MS),
            "at_boot_ns": round(at_ms * MS),
            **{name: EMPTY[about.kind] for name, about in row.items()},
            **known,
            **fields,
        }
        place = bisect_right(self.records, made["at_boot_ns"], key=lambda r: r["at_boot_ns"])
        self.records.insert(place, made)
        for number in range(place, len(self.records)):
            self.records[number]["sequence"] = number + 1

    def start(self, landing: str = "", pages: int = 64, guards_off: tuple[str, ...] = ()) -> None:
        """Record that the process has started."""
        off = list(guards_off)
        self.record(0, "node_started", landing=landing, pool_pages=pages, guards_off=off)

    def close(self, at_ms: float) -> None:
        """Record that the process ended in order."""
        self.record(at_ms, "node_closed", records=len(self.records))


def decode(landing: str = "copy") -> Node:
    """A decode node that has started."""
    node = Node("decode-0", Role.DECODE)
    node.start(landing)
    return node


def prefill() -> Node:
    """A prefill node that has started."""
    node = Node("prefill-0", Role.PREFILL)
    node.start()
    return node


def received(node: Node, at_ms: float, who: Who, pages: list[int], window: str) -> None:
    """A request on decode, from its pages to its reading: 4 ms, of which 1 between two edges."""
    node.record(at_ms, "pages_allocated", who, lease=1, pages=pages)
    node.record(at_ms + 1, "window_granted", who, window=window, peer="prefill-0", pages=pages)
    confirmed = {"start": 0, "stop": 90, "expected_tokens": 90}
    node.record(at_ms + 2, "verdict", who, outcome="admitted", pages=pages, **confirmed)
    node.record(at_ms + 3, "window_fenced", who, window=window, fence="acknowledged")
    node.record(at_ms + 4, "read_started", who, pages=pages)


def ended(
    node: Node, at_ms: float, who: Who, pages: list[int], fence: str = "acknowledged"
) -> None:
    """The end of a request on decode: 3 ms."""
    node.record(at_ms, "read_ended", who, pages=pages)
    node.record(at_ms + 1, "request_ended", who, end="completed")
    node.record(at_ms + 2, "drain_began", who, lease=1, pages=pages)
    node.record(at_ms + 3, "drain_ended", who, lease=1, pages=pages, fence=fence)


def computed(node: Node, at_ms: float, who: Who, pages: list[int], window: str) -> None:
    """A prompt on prefill, from its pages to its receipt: 3 ms."""
    node.record(at_ms, "pages_allocated", who, lease=1, pages=pages)
    node.record(at_ms + 1, "range_computed", who, start=0, stop=90, pages=pages)
    node.record(at_ms + 2, "write_ended", who, window=window, pages=pages, status="done")
    node.record(at_ms + 3, "receipt_sent", who, outcome="completed", start=0, stop=90)


def all_of(*nodes: Node) -> list[Evidence]:
    """Return the records of some nodes, not in order."""
    return [record for node in reversed(nodes) for record in node.records]
