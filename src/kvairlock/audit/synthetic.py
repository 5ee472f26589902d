"""Histories that never happened: records of a stack, event for event as a real one writes them.

A history is played by a small stack of names, numbers and free lists. Requests are conversations
that take turns, so their records interleave on each process, while pages go from owner to owner
with their generations. How conversations go is told in `kvairlock.audit.stories`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from http import HTTPStatus
from typing import Any

from kvairlock.core.evidence import ENVELOPE, EVENTS, SCHEMA_VERSION
from kvairlock.core.guards import Guard
from kvairlock.core.terms import Fence, LandingPolicy, Role, pages_for

PAGE_TOKENS = 16
PAGE_BYTES = 45_056
STEP_NS = 50_000
BEAT_NS = 5_000_000_000
BOOTED_UNIX_NS = 1_790_000_000_000_000_000
STARTED_BOOT_NS = 1_000_000_000_000
CHECKED = tuple(
    str(guard)
    for guard in (
        Guard.OUTCOME,
        Guard.IDENTITY,
        Guard.INPUT,
        Guard.LAYOUT,
        Guard.RANGE,
        Guard.PAGE_INDEX,
        Guard.GENERATION,
        Guard.INTEGRITY,
    )
)

Row = dict[str, Any]
Story = Generator[None, None, None]
"""A conversation as it is played: between its steps others take their turns."""
Change = Callable[["Conversation", Row], Row]


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
            landing = self.landing if process.role is Role.DECODE else ""
            self.record(
                process,
                "node_started",
                guards_off=[],
                landing=str(landing),
                pool_pages=process.pages,
                fingerprint=digest(process.node)[:16],
                relaxed=[],
            )
        for prefill in self.prefills:
            self._meet(self.decode, prefill)
        for node in (self.decode, *self.prefills):
            self._meet(self.gateway, node)

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
            said = {"records": len(process.rows), "relaxed": [], "points": []}
            self.record(process, "beat", **said, leases=sorted(process.open))

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


class Conversation:
    """One request and what all processes record about it.

    Args:
        stack: Where it is.
        prompt_tokens: What is asked.
        max_tokens: What is asked.
        prefill: Which prefill node computes it.
        odd: For an event: what of its record is not as it should be.
        unsaid: Events that are never recorded.
    """

    def __init__(
        self,
        stack: Stack,
        prompt_tokens: int = 120,
        max_tokens: int = 17,
        *,
        prefill: int = 0,
        odd: Mapping[str, Change] | None = None,
        unsaid: Iterable[str] = (),
    ) -> None:
        stack.names += 1
        self.stack, self.odd, self.unsaid = stack, odd or {}, frozenset(unsaid)
        self.request = digest(stack.seed, "request", stack.names)
        self.tenant = digest(stack.seed, "tenant", stack.names % 5)
        self.scope = digest(stack.seed, "scope", stack.names % 5)
        self.window = digest(stack.seed, "window", stack.names)[:16]
        self.prompt_tokens, self.max_tokens = prompt_tokens, max_tokens
        self.gateway, self.decode = stack.gateway, stack.decode
        self.prefill = stack.prefills[prefill]
        self.lease = self.source = self.prefix = Lease(0, [], [])
        self.table: list[int] = []

    def of(self, other: Conversation) -> Conversation:
        """Make it a request of the same tenant as another, and return it."""
        self.tenant, self.scope = other.tenant, other.scope
        return self

    @property
    def prompt_pages(self) -> int:
        """How many pages the prompt has."""
        return pages_for(self.prompt_tokens, PAGE_TOKENS)

    @property
    def landed(self) -> Row:
        """The pages of the prompt on decode, in their moment."""
        count = self.prompt_pages
        return {"pages": self.lease.pages[:count], "generations": self.lease.generations[:count]}

    def say(self, process: Process, event: str, **fields: Any) -> None:
        """Record something about this request."""
        if event in self.unsaid:
            return
        if event in self.odd:
            fields |= self.odd[event](self, fields)
        self.stack.record(process, event, tenant=self.tenant, request=self.request, **fields)

    def enter(self) -> None:
        """The gateway admits it, and so does decode."""
        asked = {"prompt_tokens": self.prompt_tokens, "max_tokens": self.max_tokens}
        self.say(self.gateway, "request_admitted", stage="gateway", **asked)
        self.say(self.decode, "request_admitted", stage="decode_admission", **asked)

    def reserve(self) -> None:
        """Decode gives it pages."""
        total = pages_for(self.prompt_tokens + self.max_tokens, PAGE_TOKENS)
        self.lease = self.stack.reserve(self.decode, total)
        self.say(self.decode, "pages_allocated", **_moment(self.lease))

    def grant(self) -> None:
        """Decode grants a window, and prefill admits the prompt."""
        pages = self.landed["pages"]
        peer = self.prefill.node
        self.say(self.decode, "window_granted", window=self.window, peer=peer, pages=pages)
        asked = {"prompt_tokens": self.prompt_tokens, "max_tokens": self.max_tokens}
        self.say(self.prefill, "request_admitted", stage="prefill_admission", **asked)

    def compute(self, creator: Conversation | None = None) -> None:
        """Prefill computes the prompt, or what is behind the prefix that a creator left."""
        shared = creator.prefix.pages if creator else []
        self.source = self.stack.reserve(self.prefill, self.prompt_pages - len(shared))
        self.table = [*shared, *self.source.pages]
        self.say(self.prefill, "pages_allocated", **_moment(self.source))
        if creator:
            self.reuse(creator.prefix, creator)
        said = {"start": len(shared) * PAGE_TOKENS, "stop": self.prompt_tokens}
        self.say(self.prefill, "range_computed", **said, **_span(self.source))

    def write(self) -> None:
        """Prefill writes into the window."""
        self.say(
            self.prefill,
            "write_ended",
            window=self.window,
            pages=self.table,
            bytes_written=len(self.table) * PAGE_BYTES,
            status="done",
        )

    def state(self) -> None:
        """Prefill states what it did."""
        stop = self.prompt_tokens
        self.say(self.prefill, "receipt_sent", outcome="completed", start=0, stop=stop)

    def judge(self, outcome: str = "admitted") -> None:
        """Decode rules."""
        self.say(
            self.decode,
            "verdict",
            outcome=outcome,
            checks=list(CHECKED),
            observed=[],
            policy="full",
            verified=self.landed["pages"],
            start=0,
            stop=self.prompt_tokens,
            expected_tokens=self.prompt_tokens,
            **self.landed,
        )

    def fence(self, fence: Fence = Fence.ACKNOWLEDGED) -> None:
        """The window has no writer any more."""
        written = self.prompt_pages * PAGE_BYTES
        said = {"window": self.window, "fence": str(fence), "bytes_written": written}
        self.say(self.decode, "window_fenced", **said, wait_ms=0)

    def read(self, event: str = "read_started") -> None:
        """Decode begins to read, or has read."""
        self.say(self.decode, event, **_span(self.lease))

    def settle(self, end: str = "completed") -> None:
        """Prefill ends its part."""
        self._ended(self.prefill, end, 0)
        self.drain(self.prefill, self.source, end)

    def end(self, end: str = "completed", *, read: bool = True) -> None:
        """Decode ends the request."""
        if end != "completed":
            unsaid = {"asked": None, "limit": None, "limit_name": None}
            self.say(self.decode, "request_refused", stage="gateway", reason=end, **unsaid)
        self._ended(self.decode, end, self.max_tokens if read else 0, read=read)

    def _ended(self, process: Process, end: str, generated: int, *, read: bool = True) -> None:
        self.say(
            process,
            "request_ended",
            end=end,
            reason="" if end == "completed" else end,
            computed_tokens=self.prompt_tokens if read else 0,
            generated_tokens=generated,
            reused_tokens=0,
        )

    def retire(self, process: Process, lease: Lease, cause: str = "completed") -> None:
        """End a lease: the generations of its pages turn."""
        for page in lease.pages:
            process.generation[page] += 1
        said = {"lease": lease.number, "pages": lease.pages, "cause": cause}
        self.say(process, "drain_began", **said)

    def free(self, process: Process, lease: Lease, fence: Fence = Fence.LOCAL) -> None:
        """Give the pages of an ended lease back."""
        said = {"lease": lease.number, "pages": lease.pages, "fence": str(fence)}
        self.say(process, "drain_ended", **said, wait_ms=0)
        process.free.extend(lease.pages)
        process.open.discard(lease.number)

    def drain(self, process: Process, lease: Lease, cause: str = "completed") -> None:
        """End a lease, and give its pages back at once."""
        self.retire(process, lease, cause)
        self.free(process, lease)

    def respond(self, status: int = 200) -> None:
        """The gateway tells the client; what is no answer states no usage."""
        stated = (self.prompt_tokens, self.max_tokens) if status == HTTPStatus.OK else (0, 0)
        self.say(
            self.gateway,
            "response_sent",
            http_status=status,
            finish=["length"] if status == HTTPStatus.OK else [],
            prompt_tokens=stated[0],
            generated_tokens=stated[1],
        )

    def keep(self) -> None:
        """Prefill keeps the full pages of the prompt for later ones of its scope."""
        count = self.prompt_tokens // PAGE_TOKENS
        lease, self.prefix = (
            self.source,
            self.stack.lease(self.prefill, *_cut(self.source, 0, count)),
        )
        self.source = Lease(lease.number, *_cut(lease, count, len(lease.pages)))
        self.say(self.prefill, "prefix_kept", **_moment(self.prefix))

    def reuse(self, prefix: Lease, creator: Conversation) -> None:
        """Prefill takes pages that another has computed."""
        self.say(
            self.prefill,
            "prefix_reused",
            tokens=len(prefix.pages) * PAGE_TOKENS,
            creator=creator.tenant,
            scope=self.scope,
            creator_scope=creator.scope,
            **_span(prefix),
        )

    def hand_over(self) -> None:
        """All from the grant to the first step."""
        self.grant()
        self.compute()
        self.write()
        self.state()
        self.judge()
        self.fence()
        self.read()


def _span(lease: Lease) -> Row:
    return {"pages": lease.pages, "generations": lease.generations}


def _cut(lease: Lease, since: int, until: int) -> tuple[list[int], list[int]]:
    return lease.pages[since:until], lease.generations[since:until]


def _moment(lease: Lease) -> Row:
    return {"lease": lease.number, **_span(lease)}
