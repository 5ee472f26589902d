"""The smallest sink that keeps its promises: lines for a collector, handed over by a thread."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Mapping
from threading import Condition, Thread

from kvairlock.core.errors import InvariantBroken
from kvairlock.core.evidence import EVENTS, SCHEMA_VERSION, Kind
from kvairlock.core.terms import Owner, Peer
from kvairlock.runtime import clock
from kvairlock.runtime.recording import Value
from kvairlock.wire.keys import Keyring
from kvairlock.wire.pseudonyms import Pseudonyms

TYPES = {Kind.TEXT: str, Kind.INTEGER: int, Kind.INTEGERS: tuple, Kind.TEXTS: tuple}


class Forwarding:
    """Evidence of one process for a collector; `put` takes a line, or raises OSError."""

    WAITING_MAX = 1_000

    def __init__(self, peer: Peer, ring: Keyring, put: Callable[[bytes], None]) -> None:
        self.peer, self.put = peer, put
        self.pseudonyms = Pseudonyms.of_ring(ring)
        self.waiting: deque[bytes] = deque()
        self.changed = Condition()
        self.sequence = self.lost = self.told = 0
        self.closing = False
        self.thread = Thread(target=self.run, daemon=True)
        self.thread.start()

    @property
    def records(self) -> int:
        return self.sequence

    def pseudonym(self, kind: str, name: str) -> str:
        return self.pseudonyms.of(kind, name)

    def record(self, event: str, owner: Owner | None, fields: Mapping[str, Value]) -> None:
        self.check(event, owner, fields)
        with self.changed:
            self.confess()
            if len(self.waiting) < self.WAITING_MAX:
                self.queue(event, {**self.who(owner), **fields})
            else:
                self.lose(1)
            self.changed.notify()

    def close(self, *, in_order: bool = True) -> None:
        if self.closing:
            return
        if in_order:
            with self.changed:
                self.changed.wait_for(lambda: len(self.waiting) < self.WAITING_MAX - 1)
            self.record("node_closed", None, {"records": self.sequence})
        with self.changed:
            self.closing = True
            self.changed.notify()
        self.thread.join()

    def check(self, event: str, owner: Owner | None, fields: Mapping[str, Value]) -> None:
        """Refuse what does not fit its row of the schema."""
        row = EVENTS.get(event, {})
        given = {*fields, *(() if owner is None else ("tenant", "request"))}
        typed = all(
            v is None or isinstance(v, TYPES[row[n].kind]) for n, v in fields.items() if n in row
        )
        if event not in EVENTS or given != set(row) or not typed:
            raise InvariantBroken("evidence", f"{event} does not fit its row")

    def who(self, owner: Owner | None) -> dict[str, Value]:
        """Whose it is, as digests."""
        if owner is None:
            return {}
        request = f"{owner.request}/{owner.attempt}"
        return {
            "tenant": self.pseudonym("tenant", owner.tenant),
            "request": self.pseudonym("request", request),
        }

    def number(self) -> int:
        self.sequence += 1
        return self.sequence

    def queue(self, event: str, fields: Mapping[str, Value]) -> None:
        record = {
            "schema": SCHEMA_VERSION,
            "event": event,
            "node": self.peer.node,
            "role": self.peer.role,
            "incarnation": self.peer.incarnation,
            "sequence": self.number(),
            "at_unix_ns": time.time_ns(),
            "at_boot_ns": clock.now(),
            **fields,
        }
        self.waiting.append(json.dumps(record).encode() + b"\n")

    def lose(self, records: int) -> None:
        """Count a record that takes a number and is not written."""
        self.number()
        self.lost += records

    def confess(self) -> None:
        """Record what was lost, as soon as there is room for that and one record more."""
        if self.lost > self.told and len(self.waiting) < self.WAITING_MAX - 1:
            self.queue("evidence_lost", {"records": self.lost - self.told})
            self.told = self.lost

    def run(self) -> None:
        while (line := self.next_line()) is not None:
            try:
                self.put(line)
            except OSError:
                self.failed(line)

    def next_line(self) -> bytes | None:
        with self.changed:
            self.changed.wait_for(lambda: self.waiting or self.closing)
            self.changed.notify_all()
            return self.waiting.popleft() if self.waiting else None

    def failed(self, line: bytes) -> None:
        """Count a line that the collector did not take; a count that it held is told again."""
        record = json.loads(line)
        with self.changed:
            self.lost += 1
            self.told -= record["records"] if record["event"] == "evidence_lost" else 0
