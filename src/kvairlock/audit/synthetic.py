"""Histories that never happened: records of a stack, event for event as a real one writes them.

A history is played by a small stack of names, numbers and free lists. Requests are conversations
that take turns, so their records interleave on each process, while pages go from owner to owner
with their generations. What is recorded of one request is in `kvairlock.audit.conversations`, how
requests go in `kvairlock.audit.stories`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from kvairlock.core.evidence import ENVELOPE, EVENTS, SCHEMA_VERSION
from kvairlock.core.terms import LandingPolicy, Role

STEP_NS = 50_000
BEAT_NS = 5_000_000_000
BOOTED_UNIX_NS = 1_790_000_000_000_000_000
STARTED_BOOT_NS = 1_000_000_000_000
Row = dict[str, Any]
Story = Generator[None, None, None]
"""A conversation as it is played: between its steps others take their turns."""


def digest(*words: object) -> str:
    """Return a made-up pseudonym, as long as real ones."""
    return blake2b(repr(words).encode(), digest_size=12).hexdigest()


@dataclass(slots=True)
class Process:
    """One life of a process: what it recorded, and what its pool has given away.

    Args:
        node: Its name.
        role: What it is.
        incarnation: Which life.
        pages: Pages of its pool.
        rows: What it recorded.
        free: Its free list.
        generation: The generation of each page.
        leases: How many leases it gave.
        open: Those of them that have pages.
    """

    node: str
    role: Role
    incarnation: str
    pages: int
    rows: list[Row] = field(default_factory=list)
    free: deque[int] = field(default_factory=deque)
    generation: list[int] = field(default_factory=list)
    leases: int = 0
    open: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Fill the pool."""
        self.free.extend(range(self.pages))
        self.generation = [0] * self.pages


@dataclass(slots=True)
class Lease:
    """Pages of one pool in their moment."""

    number: int
    pages: list[int]
    generations: list[int]


class Stack:
    """A gateway, prefill nodes and one decode node that record.

    Args:
        seed: What all names are drawn from.
        prefills: How many prefill nodes there are.
        pages: Pages of each pool.
        landing: How writes land on decode.
    """

    def __init__(
        self,
        seed: int = 0,
        *,
        prefills: int = 2,
        pages: int = 256,
        landing: LandingPolicy = LandingPolicy.COPY,
    ) -> None:
        self.seed, self.landing, self.now = seed, landing, STARTED_BOOT_NS
        self.beats_at = self.now + BEAT_NS
        self.gateway = self._process("gateway", Role.GATEWAY, 0)
        self.decode = self._process("decode-0", Role.DECODE, pages)
        self.prefills = [
            self._process(f"prefill-{i}", Role.PREFILL, pages) for i in range(prefills)
        ]
        self.names = 0

    @property
    def processes(self) -> list[Process]:
        """All processes."""
        return [self.gateway, self.decode, *self.prefills]

    def _process(self, node: str, role: Role, pages: int) -> Process:
        return Process(node, role, digest(self.seed, "life", node)[:16], pages)

    def record(self, process: Process, event: str, **fields: Any) -> None:
        """Number a record and note it; every field of its event must be there."""
        if set(fields) != set(EVENTS[event]):
            raise ValueError(f"{event}: {sorted(set(fields) ^ set(EVENTS[event]))}")
        self.now += STEP_NS
        envelope = (
            SCHEMA_VERSION,
            event,
            process.node,
            str(process.role),
            process.incarnation,
            len(process.rows) + 1,
            BOOTED_UNIX_NS + self.now,
            self.now,
        )
        process.rows.append(dict(zip(ENVELOPE, envelope, strict=True)) | fields)

    def start(self) -> None:
        """Record how every process starts, and that they have found each other."""
        for process in self.processes:
            has = {"pool_pages": process.pages, "fingerprint": digest(process.node)[:16]}
            self.record(process, "node_started", **has, **self._stated(process))
        for prefill in self.prefills:
            self._meet(self.decode, prefill)
        for node in (self.decode, *self.prefills):
            self._meet(self.gateway, node)

    def _stated(self, process: Process) -> Row:
        """How guards are set and writes land, as every start and every beat states it."""
        landing = self.landing if process.role is Role.DECODE else ""
        return {"guards_off": [], "landing": str(landing), "relaxed": []}

    def _meet(self, one: Process, other: Process) -> None:
        for here, there in ((one, other), (other, one)):
            names = {"peer": there.node, "peer_incarnation": there.incarnation}
            self.record(here, "channel_opened", **names, messages=2)
            self.record(here, "peer_up", **names)

    def play(self, stories: Iterable[Story], at_once: int = 8) -> None:
        """Let conversations take turns until all have ended."""
        waiting, active = deque(stories), deque[Story]()
        while waiting or active:
            while waiting and len(active) < at_once:
                active.append(waiting.popleft())
            story = active.popleft()
            if next(story, self) is None:
                active.append(story)
            if self.now > self.beats_at:
                self.beat()

    def beat(self) -> None:
        """Let every process beat."""
        self.beats_at = self.now + BEAT_NS
        for process in self.processes:
            said = {"records": len(process.rows), "points": [], "leases": sorted(process.open)}
            self.record(process, "beat", **said, **self._stated(process))

    def close(self) -> None:
        """Close every process in order."""
        for process in self.processes:
            self.record(process, "node_closed", records=len(process.rows))

    def rows(self) -> list[Row]:
        """Return all records, process by process."""
        return [row for process in self.processes for row in process.rows]

    def reserve(self, process: Process, pages: int) -> Lease:
        """Take pages off the free list."""
        taken = [process.free.popleft() for _ in range(pages)]
        return self.lease(process, taken, [process.generation[page] for page in taken])

    def lease(self, process: Process, pages: list[int], generations: list[int]) -> Lease:
        """Number a lease."""
        process.leases += 1
        process.open.add(process.leases)
        return Lease(process.leases, pages, generations)
