"""Two real ends joined in memory, with bytes: what a guard keeps out can be seen in a page.

Real `DecodeNode` and `PrefillNode` machines, each wrapped in a `Node`, sit on fake hosts that carry
effects out in order and in small, named steps, so that a test arranges every order of events. The
fake engine fills a slot with [tag of the prompt, position, token, filler]. A read that finds the
tag of another prompt is a *leak*; a slot that is not what its reader computed is a *corruption*.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from kvairlock.core.effects import (
    OpenWindow,
)
from kvairlock.core.ends import End
from kvairlock.core.errors import Refusal
from kvairlock.core.events import (
    DecodeFinished,
    Granted,
    PeerGone,
    PeerLost,
    PeerUp,
    Presented,
    Submitted,
    Told,
)
from kvairlock.core.guards import GuardSet
from kvairlock.core.messages import (
    Cancel,
    Ended,
    Message,
    RequestTicket,
)
from kvairlock.core.promise.capacity import CapacityReport
from kvairlock.core.protocol.decode import DecodeNode
from kvairlock.core.protocol.prefill import PrefillNode
from kvairlock.core.terms import (
    NS_PER_MS,
    Claimant,
    Incarnation,
    Instant,
    NodeName,
    Owner,
    Pages,
    Peer,
    Role,
    TransferId,
    WindowId,
)
from tests.core.ends_engine import Host, PromptHost
from tests.core.ends_hosts import DecodeHost, PrefillHost
from tests.core.ends_parts import (
    GATEWAY,
    LAYOUT,
    PAGE_TOKENS,
    SAMPLE_SEED,
    UNIX_S,
    GrantParcel,
    Parcel,
    Read,
    Request,
    Setup,
    Task,
    WindowFile,
    page_keys,
    slot_bytes,
)

AUTOMATIC = frozenset({"digest", "land", "scrub", "probe", "write failed", "window failed"})


@dataclass(slots=True)
class _Counters:
    tag: int = 0
    window: int = 0
    incarnation: int = 1


class World:
    """Both ends, the wires between them, and the time."""

    def __init__(self, setup: Setup | None = None) -> None:
        self.setup = setup or Setup()
        self.now = Instant(1_000 * NS_PER_MS)
        self.set_back_s = 0
        """How far the wall clock was set back; the boot clock never is."""
        self.manual: set[str] = set()
        """Kinds of tasks that wait until the test runs them."""
        self.tamper: dict[type, Callable[[Any], list[Any]]] = {}
        """What becomes of a message of a type when it is sent."""
        self.wires: dict[tuple[NodeName, NodeName], deque[Parcel]] = {}
        self.cut: set[NodeName] = set()
        self.answers: list[Message] = []
        self.requests: dict[TransferId, Request] = {}
        self.by_digest: dict[bytes, Request] = {}
        self.files: dict[WindowId, WindowFile] = {}
        self.reads: list[Read] = []
        self._next = _Counters()
        self._is_working = False
        self.decode = self._decode_host()
        self.prefills: dict[str, PrefillHost] = {}
        for name in self.setup.prefills:
            self.start_prefill(name)

    @property
    def prefill(self) -> PrefillHost:
        return next(iter(self.prefills.values()))

    @property
    def hosts(self) -> tuple[PromptHost, ...]:
        return (self.decode, *self.prefills.values())

    # Building

    def _report(self, peer: Peer, pages: int, landing: int) -> CapacityReport:
        context = self.setup.context_tokens
        return CapacityReport(
            node=peer.node,
            role=peer.role,
            incarnation=peer.incarnation,
            epoch=0,
            fingerprint="f",
            basis=None,
            page_tokens=PAGE_TOKENS,
            pages=pages,
            landing_pages=landing,
            windows=0,
            context_tokens=context,
            groups=(),
        )

    def _decode_host(self) -> DecodeHost:
        peer = Peer(NodeName("d"), Role.DECODE, Incarnation("d-1"))
        setup = self.setup
        machine = DecodeNode(
            self._report(peer, setup.decode_pages, setup.tenant_pages),
            GuardSet(setup.off_decode, setup.relaxed),
            setup.decode_limits,
            setup.policy,
            LAYOUT,
        )
        return DecodeHost(self, peer, machine)

    def start_prefill(self, name: str) -> None:
        """Start a prefill node, or start it again as a new incarnation."""
        setup = self.setup
        life = f"{name}-{self._next.incarnation}"
        self._next.incarnation += 1
        peer = Peer(NodeName(name), Role.PREFILL, Incarnation(life))
        report = self._report(peer, setup.prefill_pages, 0)
        guards = GuardSet(setup.off_prefill, setup.relaxed)
        machine = PrefillNode(report, guards, setup.prefill_limits, setup.prefill_layout)
        self.prefills[name] = PrefillHost(self, peer, machine)
        self.join(name)

    # Requests

    def make(
        self,
        tenant: str,
        name: str,
        tokens: tuple[int, ...] | int = 6,
        *,
        max_tokens: int = 2,
        choices: int = 1,
        scope: str = "",
        attempt: int = 1,
    ) -> Request:
        """Make a request and its ticket; nothing is submitted."""
        self._next.tag += 1
        if isinstance(tokens, int):
            tokens = tuple((self._next.tag * 17 + i) % 251 for i in range(tokens))
        owner = Owner(tenant, name, attempt)
        digest = f"{tenant} {name} {attempt} {self._next.tag}".encode()
        ticket = RequestTicket(
            owner,
            digest,
            len(tokens),
            max_tokens,
            choices,
            scope,
            UNIX_S + 60,
            name,
            self.decode.peer,
        )
        request = Request(owner.transfer, tokens, digest, self._next.tag, ticket)
        self.requests[request.transfer] = self.by_digest[digest] = request
        return request

    def submit(
        self,
        request: Request,
        *,
        ticket: RequestTicket | Refusal | None = None,
        tenant: str | None = None,
        digest: bytes | None = None,
        prompt_tokens: int | None = None,
        prefill: str | None = None,
        nonce: str = "n",
    ) -> Request:
        """Submit a request, or what somebody makes of it."""
        self._next.window += 1
        presented = Presented(
            ticket or request.ticket,
            request.tenant if tenant is None else tenant,
            request.digest if digest is None else digest,
            len(request.tokens) if prompt_tokens is None else prompt_tokens,
            self.unix_s,
        )
        claimant = Claimant(GATEWAY.node, GATEWAY.incarnation, nonce)
        chosen = NodeName(prefill or self.setup.prefills[0])
        window = WindowId(f"w{self._next.window}")
        asked = Submitted(
            transfer=request.transfer,
            presented=presented,
            claimant=claimant,
            gateway=GATEWAY,
            prefill=chosen,
            max_tokens=request.ticket.max_tokens,
            choices=request.ticket.choices,
            window=window,
            seed=self._next.window,
            sample_seed=SAMPLE_SEED + self._next.window,
        )
        self.decode.tell(asked)
        return request

    def ask(self, tenant: str, name: str, tokens: tuple[int, ...] | int = 6, **how: Any) -> Request:
        """Make a request and submit it."""
        prefill = how.pop("prefill", None)
        return self.submit(self.make(tenant, name, tokens, **how), prefill=prefill)

    def cancel(self, request: Request) -> None:
        """The client leaves."""
        self.decode.tell(Told(GATEWAY, Cancel(request.transfer)))

    @property
    def unix_s(self) -> int:
        return UNIX_S + self.now // (1_000 * NS_PER_MS) - self.set_back_s

    def granted(self, decode: Peer, effect: OpenWindow, count: int) -> Granted:
        """The event that a grant becomes at the prefill node."""
        reception = self.decode.machine.receptions[effect.transfer]
        ticket = reception.ticket
        content = self.by_digest[reception.asked.presented.input_digest]
        presented = Presented(
            ticket, ticket.owner.tenant, content.digest, len(content.tokens), self.unix_s
        )
        return Granted(
            transfer=effect.transfer,
            presented=presented,
            decode=decode,
            window=effect.window,
            window_pages=count,
            generations=effect.generations,
            layout=LAYOUT,
            seed=effect.seed,
            patience_ms=effect.patience_ms,
            page_keys=page_keys(content.tokens),
        )

    # Wires

    def post(self, sender: Peer, to: NodeName, content: Message | GrantParcel) -> None:
        """Put a message on its wire; what goes to the gateway arrives at once."""
        if to == GATEWAY.node:
            assert not isinstance(content, GrantParcel)
            self.answers.append(content)
            return
        if {sender.node, to} & self.cut:
            return
        change = self.tamper.get(type(content))
        for changed in change(content) if change else [content]:
            self.wires.setdefault((sender.node, to), deque()).append(Parcel(sender, changed))

    def in_flight(self, kind: type) -> list[Any]:
        """All messages of a type that have not arrived."""
        parcels = [p for wire in self.wires.values() for p in wire]
        return [p.content for p in parcels if isinstance(p.content, kind)]

    def repeat(self, content: Message | GrantParcel, sender: Peer, to: NodeName) -> None:
        """Let a message arrive (again), whatever is on the wire."""
        self._host(to).hear(Parcel(sender, content))

    def deliver(self, src: str, dst: str) -> bool:
        """Let the first message of a wire arrive."""
        wire = self.wires.get((NodeName(src), NodeName(dst)))
        if not wire:
            return False
        self._host(NodeName(dst)).hear(wire.popleft())
        return True

    def deliver_all(self) -> None:
        while any(self.deliver(src, dst) for src, dst in list(self.wires)):
            pass

    def _host(self, name: NodeName) -> Host:
        return self.decode if name == self.decode.peer.node else self.prefills[name]

    # Peers

    def join(self, name: str) -> None:
        """A prefill node and the decode node are connected."""
        host = self.prefills[name]
        self.cut.discard(host.peer.node)
        self.decode.tell(PeerUp(host.peer))
        host.tell(PeerUp(self.decode.peer))

    def lose(self, name: str) -> None:
        """The link to a prefill node breaks: nothing crosses any more, writes still may land."""
        host = self.prefills[name]
        self.cut.add(host.peer.node)
        for ends, wire in self.wires.items():
            if host.peer.node in ends:
                wire.clear()
        self.decode.tell(PeerLost(host.peer))
        host.tell(PeerLost(self.decode.peer))

    def kill(self, name: str) -> None:
        """The process of a prefill node ends, and with it its engine and its writes."""
        host = self.prefills.pop(name)
        self.cut.add(host.peer.node)
        for ends, wire in self.wires.items():
            if host.peer.node in ends:
                wire.clear()
        for writing in host.writing:
            writing.file.mapped = False
        for file in host.windows.values():
            file.mapped = False
        self.decode.tell(PeerLost(host.peer))
        self.decode.tell(PeerGone(host.peer))

    # Time and work

    def advance(self, ms: int) -> None:
        """Let time pass, and handle what is due."""
        self.now = Instant(self.now + ms * NS_PER_MS)
        for host in self.hosts:
            deadline = host.node.deadline()
            if deadline is None or deadline > self.now:
                continue
            host.tick()
            later = host.node.deadline()
            assert later is None or later > self.now, "a deadline that is past would spin the host"

    def work(self) -> None:
        """Run the tasks that nobody holds back."""
        if self._is_working:
            return
        self._is_working = True
        try:
            while task := self._next_task(AUTOMATIC - self.manual):
                task.run()
        finally:
            self._is_working = False

    def run(self, kind: str) -> None:
        """Run all tasks of a kind that were held back."""
        while task := self._next_task(frozenset({kind})):
            task.run()

    def _next_task(self, kinds: frozenset[str]) -> Task | None:
        for host in self.hosts:
            for task in host.tasks:
                if task.kind in kinds:
                    host.tasks.remove(task)
                    return task
        return None

    @property
    def jobs(self) -> list[tuple[PromptHost, TransferId]]:
        """Prompts that wait for a chunk, or have one under way, and where."""
        return [(host, name) for host in self.hosts for name in host.computing]

    def compute_all(self) -> bool:
        jobs = self.jobs
        for host, transfer in jobs:
            if transfer in host.computing:
                if not host.computing[transfer].begun:
                    host.compute_begin(transfer)
                host.compute_end(transfer)
        return bool(jobs)

    def write_all(self) -> bool:
        writes = [(h, w.transfer) for h in self.prefills.values() for w in h.writing]
        for host, transfer in writes:
            host.write_all(transfer)
        return bool(writes)

    def settle(self) -> None:
        """Deliver, compute, write and land until all is quiet; no decode step, no time."""
        busy = True
        while busy:
            self.work()
            self.deliver_all()
            busy = self.compute_all()
            busy = self.write_all() or busy
            busy = busy or any(self.wires.values())

    def heal(self) -> None:
        """Let everything come to its end, and then all deadlines pass."""
        self.let_end()
        self.advance(10_000)
        self.settle()

    @property
    def is_quiet(self) -> bool:
        """Whether nothing is open any more."""
        return not self.decode.machine.receptions and not self.decode.machine.windows

    def let_end(self) -> None:
        """Let everything come to its end: what runs finishes, what is held back or lost comes."""
        self.manual.clear()
        self.work()
        for _ in range(200):
            self.settle()
            if self.decode.stepping:
                self.decode.step_end()
            for name in list(self.decode.running):
                self.decode.tell(DecodeFinished(name))
                self.decode.running.pop(name, None)
            if self.is_quiet:
                break
            self.advance(101)
        self.settle()

    # Judging

    def judge(self, host: DecodeHost, name: TransferId, choice: int, table: Pages) -> Read:
        """Compare the prompt's slots that a table names with what their reader may find."""
        reader = self.requests[name]
        foreign, missing = set(), []
        for position, token in enumerate(reader.tokens):
            slot = host.slot(int(table[position // PAGE_TOKENS]), position % PAGE_TOKENS)
            owner = self._owner(int(slot[0]))
            may = owner is not None and self._may_read(reader, owner, position)
            if owner is not None and not may:
                foreign.add(owner.transfer)
            tag = owner.tag if owner is not None and may else reader.tag
            if not np.array_equal(slot, slot_bytes(tag, position, token)):
                missing.append(position)
        return Read(name, choice, frozenset(foreign), tuple(missing))

    def _owner(self, tag: int) -> Request | None:
        return next((r for r in self.by_digest.values() if r.tag == tag), None)

    def _may_read(self, reader: Request, owner: Request, position: int) -> bool:
        """Own content, or a full page of an equal beginning in the same declared scope."""
        if owner.tag == reader.tag:
            return True
        end = (position // PAGE_TOKENS + 1) * PAGE_TOKENS
        same = owner.tokens[:end] == reader.tokens[:end] and len(reader.tokens) >= end
        return same and bool(reader.ticket.scope) and owner.ticket.scope == reader.ticket.scope

    @property
    def leaks(self) -> set[tuple[str, str]]:
        """Who read whose bytes."""
        return {(read.reader, other) for read in self.reads for other in read.foreign}

    @property
    def corruptions(self) -> set[str]:
        """Who did not find what it had computed, and no foreign bytes either."""
        return {read.reader for read in self.reads if read.missing and not read.foreign}

    def ended(self, request: Request) -> Ended:
        """The one end that the gateway was told."""
        found = [a for a in self.answers if isinstance(a, Ended)]
        mine = [a for a in found if a.transfer == request.transfer]
        assert len(mine) == 1, mine
        return mine[0]

    def refusal(self, request: Request) -> Refusal:
        """Why a request was refused."""
        refusal = self.ended(request).refusal
        assert refusal is not None
        return refusal

    def is_running(self, request: Request) -> bool:
        return request.transfer in self.decode.running

    def pages_free(self) -> int:
        return self.decode.machine.books.pool.pages_free

    def complete(self, request: Request) -> None:
        """Serve a submitted request to its end."""
        self.settle()
        assert self.is_running(request), self.answers
        self.decode.step()
        self.decode.finish(request)
        self.settle()
        assert self.ended(request).end is End.COMPLETED

    def assert_baseline(self, *, scrubbed: bool = True) -> None:
        """Everything came back: pages, windows, requests, holds, and zeroed bytes."""
        self._assert_decode_baseline()
        for host in self.prefills.values():
            self._assert_prefill_baseline(host)
        for node in self.hosts:
            assert node.counters.get("invariant_broken", 0) == 0, node.records
            assert not node.faults
            assert not node.tasks
            if scrubbed:
                free = node.node.machine.books.pool.free_list
                assert not node.memory[free].any(), "a free page holds bytes"

    def _assert_decode_baseline(self) -> None:
        machine, books = self.decode.machine, self.decode.machine.books
        assert not machine.receptions
        assert not machine.queue
        assert not machine.holding
        assert not books.drain.waiting
        assert len(machine.windows) == 0
        assert machine.windows.pages() == 0
        assert not books.pool.leases
        assert books.pool.pages_free == books.pool.pages - books.pool.pages_withdrawn
        assert not self.decode.windows
        assert not self.decode.running
        assert not self.decode.computing
        assert machine.deadline() is None

    def _assert_prefill_baseline(self, host: PrefillHost) -> None:
        machine, books = host.machine, host.machine.books
        kept = machine.prefixes.pages
        assert not machine.jobs
        assert not machine.queue
        assert not machine.closing
        assert not books.drain.waiting
        assert all(entry.users == 0 for entry in machine.prefixes.entries)
        held = {entry.lease.id for entry in machine.prefixes.entries}
        assert set(books.pool.leases) == held
        assert all(not lease.holds for lease in books.pool.leases.values())
        assert books.pool.pages_free == books.pool.pages - books.pool.pages_withdrawn - kept
        assert not host.windows
        assert not host.writing
        assert not host.computing
