"""The evidence of one process: records are checked, numbered, and written by a thread of its own.

    any thread ---record---> waiting records (bounded) ---evidence thread---> segments, sealed

Recording never blocks and never fails the serving path. What does not fit into the bounded memory,
or can't be written, is counted, and the count is itself recorded. Converting a full segment is done
by the same thread; what is recorded meanwhile waits. Evidence that was closed in order ends with
`node_closed`; without it the tail is lost.
"""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from kvairlock.core.errors import InvariantBroken
from kvairlock.core.evidence import EVENTS, SCHEMA_VERSION, Kind
from kvairlock.core.terms import Owner, Peer
from kvairlock.runtime import clock
from kvairlock.runtime.evidence_settings import EvidenceSettings
from kvairlock.runtime.recording import Value
from kvairlock.sink.seals import Seals
from kvairlock.sink.segments import Segments
from kvairlock.wire.keys import Keyring
from kvairlock.wire.pseudonyms import Pseudonyms

WAITING_MAX = 20_000
WAITING_BYTES_MAX = 32 * 1024 * 1024

_PYTHON = {
    Kind.TEXT: str,
    Kind.INTEGER: int,
    Kind.INTEGERS: tuple,
    Kind.TEXTS: tuple,
}


class _Waiting(NamedTuple):
    """A line that waits to be written, and how many lost records it tells of."""

    line: bytes
    tells: int


class Recorder:
    """The evidence of one process.

    Args:
        folder: Where the files go; made if absent, for its owner only.
        peer: Who records, in which life.
        ring: The cluster's keys, which seal.
        pseudonyms: The key of tenants and requests, equal in every process of the cluster, so that
            an audit can join them; the one that signs if left out.
        settings: How evidence is kept.

    Raises:
        OSError: The folder or the first file can't be made.
    """

    def __init__(
        self,
        folder: Path,
        peer: Peer,
        ring: Keyring,
        pseudonyms: Pseudonyms | None = None,
        settings: EvidenceSettings | None = None,
    ) -> None:
        seals = Seals(folder, peer.node, ring)
        self._segments = Segments(folder, peer, seals, settings or EvidenceSettings())
        self._peer = peer
        self._pseudonyms = pseudonyms or Pseudonyms.of_ring(ring)
        self._waiting: deque[_Waiting] = deque()
        self._waiting_bytes = 0
        self._wake = threading.Condition()
        self._sequence = self._lost = self._told = 0
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="evidence", daemon=True)
        self._thread.start()

    @property
    def path(self) -> Path:
        """The newest file: the one that is open, or what it became when it was sealed."""
        return self._segments.path

    @property
    def records(self) -> int:
        """How many records were numbered so far."""
        return self._sequence

    @property
    def lost(self) -> int:
        """How many of them could not be written so far."""
        return self._lost

    def pseudonym(self, kind: str, name: str) -> str:
        """Return the keyed digest that stands for a tenant or request in the evidence."""
        self._pseudonyms = self._pseudonyms.at(time.time())
        return self._pseudonyms.of(kind, name)

    def record(self, event: str, owner: Owner | None, fields: Mapping[str, Value]) -> None:
        """Number a record and queue it for writing; returns at once.

        Args:
            event: A row of the evidence schema.
            owner: For events about a request: whose.
            fields: Exactly the other fields of that row.

        Raises:
            InvariantBroken: The record does not fit its row.
        """
        _check(event, owner, fields)
        who = {} if owner is None else self._who(owner)
        with self._wake:
            if self._lost > self._told and self._has_room(2):
                untold, self._told = self._lost - self._told, self._lost
                self._queue("evidence_lost", {"records": untold}, tells=untold)
            if self._has_room(1):
                self._queue(event, {**who, **fields})
            else:
                self._sequence += 1
                self._lost += 1
            self._wake.notify()

    def close(self, *, in_order: bool = True) -> None:
        """Write what waits, and seal the last file; idempotent.

        Args:
            in_order: Whether nothing was left undone: only then is there a close marker.
        """
        if self._closing:
            return
        if in_order:
            self._wait_for_room()
            self.record("node_closed", None, {"records": self._sequence})
        with self._wake:
            self._closing = True
            self._wake.notify()
        self._thread.join()

    def _wait_for_room(self) -> None:
        """A close in order is recorded, whatever waits, and so is what was lost before it."""
        with self._wake:
            self._wake.wait_for(lambda: self._has_room(2))

    def _has_room(self, lines: int) -> bool:
        fits = len(self._waiting) + lines <= WAITING_MAX
        return fits and self._waiting_bytes < WAITING_BYTES_MAX

    def _who(self, owner: Owner) -> dict[str, Value]:
        request = f"{owner.request}/{owner.attempt}"
        return {
            "tenant": self.pseudonym("tenant", owner.tenant),
            "request": self.pseudonym("request", request),
        }

    def _queue(self, event: str, fields: Mapping[str, Value], tells: int = 0) -> None:
        self._sequence += 1
        record = {
            "schema": SCHEMA_VERSION,
            "event": event,
            "node": self._peer.node,
            "role": self._peer.role,
            "incarnation": self._peer.incarnation,
            "sequence": self._sequence,
            "at_unix_ns": time.time_ns(),
            "at_boot_ns": clock.now(),
            **fields,
        }
        waiting = _Waiting(_line(record), tells)
        self._waiting.append(waiting)
        self._waiting_bytes += len(waiting.line)

    def _run(self) -> None:
        self._segments.begin()
        while batch := self._batch():
            lost = self._segments.write(b"".join(waiting.line for waiting in batch))
            if lost:
                self._lose(batch[-lost:])
            self._segments.turn()
        self._segments.close()

    def _lose(self, lines: list[_Waiting]) -> None:
        """A full disk must not stop serving: the audit will see the gap, and the count.

        A count that was itself lost is told again.
        """
        with self._wake:
            self._lost += len(lines)
            self._told -= sum(waiting.tells for waiting in lines)

    def _batch(self) -> list[_Waiting]:
        """Wait for records, and take all that wait; none if it was closed and all are written."""
        with self._wake:
            self._wake.wait_for(lambda: self._waiting or self._closing)
            batch = list(self._waiting)
            self._waiting.clear()
            self._waiting_bytes = 0
            self._wake.notify_all()
            return batch


def _line(record: Mapping[str, Value]) -> bytes:
    try:
        return msgspec.json.encode(record) + b"\n"
    except UnicodeEncodeError:  # half of a surrogate pair, which only an escape can say
        return json.dumps(record, separators=(",", ":")).encode() + b"\n"


def _check(event: str, owner: Owner | None, fields: Mapping[str, Value]) -> None:
    row = EVENTS.get(event)
    if row is None:
        raise InvariantBroken("evidence", f"{event} is not in the schema")
    given = set(fields) | ({"tenant", "request"} if owner is not None else set())
    if given != set(row):
        odd = ", ".join(sorted(given ^ set(row)))
        raise InvariantBroken("evidence", f"{event}: fields do not fit the schema: {odd}")
    for name, value in fields.items():
        if value is not None and not isinstance(value, _PYTHON[row[name].kind]):
            raise InvariantBroken("evidence", f"{event}.{name} is not {row[name].kind}")
