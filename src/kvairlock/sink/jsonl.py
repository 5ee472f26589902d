"""Evidence as JSON lines: one file per incarnation, checked against the schema, numbered.

Recording never blocks and never fails the serving path: records wait in bounded memory for a thread
that writes them; what does not fit, or cannot be written, is counted and itself recorded. A file
that was closed in order ends with `node_closed`; one without it has lost its tail.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from kvairlock.core.errors import InvariantBroken, KvairlockError
from kvairlock.core.evidence import ENVELOPE, EVENTS, SCHEMA_VERSION, SCHEMAS_READ, Kind
from kvairlock.core.terms import Owner, Peer
from kvairlock.runtime import clock
from kvairlock.wire import keys
from kvairlock.wire.keys import Keyring

WAITING_MAX = 20_000

Value = str | int | tuple[int, ...] | tuple[str, ...] | None

_PYTHON = {
    Kind.TEXT: str,
    Kind.INTEGER: int,
    Kind.INTEGERS: tuple,
    Kind.TEXTS: tuple,
}


class SchemaUnknown(KvairlockError):
    """Evidence of a schema that is not understood here; the message says which."""

    code = "evidence_schema_unknown"


class JsonLines:
    """The evidence of one process.

    Args:
        directory: Where the file goes; made if absent, for its owner only.
        peer: Who records, in which life.
        ring: The cluster's keys: tenants and requests are recorded as keyed digests, equal in
            every process of the cluster, so that an audit can join them.
    """

    def __init__(self, directory: Path, peer: Peer, ring: Keyring) -> None:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.path = directory / f"{peer.node}-{peer.incarnation}.jsonl"
        self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._peer = peer
        self._ring = ring
        self._waiting: deque[bytes] = deque()
        self._wake = threading.Condition()
        self._sequence = self._lost = 0
        self._closing = self._torn = False
        self._thread = threading.Thread(target=self._run, name="evidence", daemon=True)
        self._thread.start()

    @property
    def records(self) -> int:
        """How many records were numbered so far."""
        return self._sequence

    def pseudonym(self, kind: str, name: str) -> str:
        """Return the keyed digest that stands for a tenant or request in the evidence."""
        return keys.pseudonym(self._ring, kind, name)

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
            if self._lost and len(self._waiting) < WAITING_MAX - 1:
                lost, self._lost = self._lost, 0
                self._queue("evidence_lost", {"records": lost})
            if len(self._waiting) >= WAITING_MAX:
                self._sequence += 1
                self._lost += 1
            else:
                self._queue(event, {**who, **fields})
            self._wake.notify()

    def close(self, *, in_order: bool = True) -> None:
        """Write what waits, and close the file; idempotent.

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
        os.close(self._file)

    def _wait_for_room(self) -> None:
        """A close in order is recorded, whatever waits, and so is what was lost before it."""
        with self._wake:
            self._wake.wait_for(lambda: len(self._waiting) < WAITING_MAX - 1)

    def _who(self, owner: Owner) -> dict[str, Value]:
        request = f"{owner.request}/{owner.attempt}"
        return {
            "tenant": self.pseudonym("tenant", owner.tenant),
            "request": self.pseudonym("request", request),
        }

    def _queue(self, event: str, fields: Mapping[str, Value]) -> None:
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
        self._waiting.append(json.dumps(record, separators=(",", ":")).encode() + b"\n")

    def _run(self) -> None:
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._waiting or self._closing)
                batch = list(self._waiting)
                self._waiting.clear()
                self._wake.notify_all()
                if not batch:
                    return
            self._write(batch)

    def _write(self, batch: list[bytes]) -> None:
        """Write whole lines; after a failure the next ones begin on a line of their own.

        A full disk must not stop serving: the audit will see the gap, and the count.
        """
        data = memoryview((b"\n" if self._torn else b"") + b"".join(batch))
        try:
            while data:
                data = data[os.write(self._file, data) :]
            self._torn = False
        except OSError:
            self._torn = True
            with self._wake:
                self._lost += len(batch)


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


def read(path: Path) -> list[dict[str, object]]:
    """Read a file of evidence; a torn line is passed over, and shows as a gap in the numbers.

    Args:
        path: A file that `JsonLines` wrote, or is writing, of this release or of an earlier one.

    Raises:
        SchemaUnknown: A record has a schema that is not read here: its fields may mean anything.
    """
    records: list[dict[str, object]] = []
    for line in path.read_bytes().split(b"\n"):
        with suppress(ValueError):
            record = json.loads(line)
            if isinstance(record, dict) and set(ENVELOPE) <= set(record):
                records.append(record)
    for record in records:
        if record["schema"] not in SCHEMAS_READ:
            known = ", ".join(map(str, SCHEMAS_READ))
            raise SchemaUnknown(f"{path.name} is of schema {record['schema']!r}; read are {known}")
    return records
