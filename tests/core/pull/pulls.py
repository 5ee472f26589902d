"""A real borrower and real lenders joined in memory, with bytes: the pull half of `ends`.

The wires, the clients, the time and the judging are those of `tests.core.ends`; only who is at the
wires' ends differs. A request is `order`ed at a lender, and `refer`red to the borrower once its
offer stands.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kvairlock.core.errors import Refusal
from kvairlock.core.events import (
    Asked,
    PeerGone,
    PeerLost,
    PeerUp,
    Presented,
    Referred,
)
from kvairlock.core.guards import GuardSet
from kvairlock.core.messages import RequestTicket, TransferTicket
from kvairlock.core.protocol.pull.borrower import BorrowerLimits, BorrowerNode
from kvairlock.core.protocol.pull.lender import LenderLimits, LenderNode
from kvairlock.core.terms import (
    Claimant,
    Incarnation,
    NodeName,
    Peer,
    Reader,
    Role,
    TransferId,
    WindowId,
)
from tests.core.ends import World
from tests.core.ends_engine import Host, PromptHost
from tests.core.ends_parts import GATEWAY, LAYOUT, SAMPLE_SEED, Request, Setup, page_keys
from tests.core.pull.pulls_hosts import BorrowerHost, LenderHost

BORROWER_LIMITS = BorrowerLimits(
    queue_ms=1_000,
    prefill_ms=2_000,
    landing_ms=3_000,
    decode_ms=4_000,
    landing_pages=64,
    queue_max=16,
    repeat_ms=200,
)
LENDER_LIMITS = LenderLimits(verdict_ms=5_000, prefix_pages=4, offer_ms=6_000)
PATIENCE_MS = 2_000


@dataclass(frozen=True, slots=True)
class PullSetup(Setup):
    """How a world of pull is built."""

    reader: Reader = Reader.VALIDATING
    borrower_limits: BorrowerLimits = BORROWER_LIMITS
    lender_limits: LenderLimits = LENDER_LIMITS


ORDINARY = PullSetup()


class PullWorld(World):
    """Both ends of pull, the wires between them, and the time."""

    decode: BorrowerHost

    def __init__(self, setup: PullSetup = ORDINARY) -> None:
        self.pull = setup
        self.lenders: dict[NodeName, LenderHost] = {}
        self.tickets: dict[bytes, TransferTicket | Refusal] = {}
        """What each transfer ticket vouches for, by its bytes."""
        self.offers: dict[TransferId, TransferTicket] = {}
        super().__init__(setup)

    @property
    def lender(self) -> LenderHost:
        return next(iter(self.lenders.values()))

    @property
    def hosts(self) -> tuple[PromptHost, ...]:
        return (self.decode, *self.lenders.values())

    def _host(self, name: NodeName) -> Host:
        return self.decode if name == self.decode.peer.node else self.lenders[name]

    # Building

    def _decode_host(self) -> BorrowerHost:
        peer = Peer(NodeName("d"), Role.DECODE, Incarnation("d-1"))
        setup = self.pull
        machine = BorrowerNode(
            self._report(peer, setup.decode_pages, setup.tenant_pages),
            GuardSet(setup.off_decode, setup.relaxed),
            setup.borrower_limits,
            LAYOUT,
            setup.reader,
        )
        return BorrowerHost(self, peer, machine)

    def start_prefill(self, name: str) -> None:
        """Start a lender, or start it again as a new incarnation."""
        setup = self.pull
        life = Incarnation(f"{name}-{self._next.incarnation}")
        self._next.incarnation += 1
        peer = Peer(NodeName(name), Role.PREFILL, life)
        report = self._report(peer, setup.prefill_pages, 0)
        guards = GuardSet(setup.off_prefill, setup.relaxed)
        machine = LenderNode(report, guards, setup.lender_limits, setup.prefill_layout)
        self.lenders[peer.node] = LenderHost(self, peer, machine)
        self.join(name)

    # Requests

    def order(
        self,
        request: Request,
        *,
        lender: str = "p",
        ticket: RequestTicket | Refusal | None = None,
        tenant: str | None = None,
        nonce: str = "router",
    ) -> Request:
        """Ask a lender for the prompt of a request."""
        presented = Presented(
            ticket or request.ticket,
            request.tenant if tenant is None else tenant,
            request.digest,
            len(request.tokens),
            self.unix_s,
        )
        asked = Asked(
            transfer=request.transfer,
            presented=presented,
            claimant=Claimant(GATEWAY.node, GATEWAY.incarnation, nonce),
            seed=request.tag,
            patience_ms=PATIENCE_MS,
            page_keys=page_keys(request.tokens),
        )
        host = self.lenders[NodeName(lender)]
        host.asked.setdefault(request.transfer, asked)
        host.tell(asked)
        return request

    def offered(self, lender: Peer, transfer: TransferId, receiver: Peer) -> None:
        """The lender's host makes a transfer ticket of an offer."""
        ticket = TransferTicket(transfer, lender, receiver)
        self.offers[transfer] = ticket
        self.tickets[repr(ticket).encode()] = ticket

    def refer(
        self,
        request: Request,
        *,
        offer: TransferTicket | Refusal | None = None,
        ticket: RequestTicket | None = None,
        prefill: str = "p",
        nonce: str = "n",
    ) -> Request:
        """Submit a request together with its transfer ticket, or with what somebody has of one."""
        self._next.window += 1
        shown = offer or self.offers[request.transfer]
        presented = Presented(
            ticket or request.ticket,
            request.tenant,
            request.digest,
            len(request.tokens),
            self.unix_s,
        )
        self.tickets[repr(shown).encode()] = shown
        self.decode.tell(
            Referred(
                transfer=request.transfer,
                presented=presented,
                claimant=Claimant(GATEWAY.node, GATEWAY.incarnation, nonce),
                gateway=GATEWAY,
                prefill=NodeName(prefill),
                max_tokens=request.ticket.max_tokens,
                choices=request.ticket.choices,
                window=WindowId(f"c{self._next.window}"),
                seed=self._next.window,
                sample_seed=SAMPLE_SEED + self._next.window,
                offer=shown,
            )
        )
        return request

    def ask(self, tenant: str, name: str, tokens: tuple[int, ...] | int = 6, **how: Any) -> Request:
        """Make a request, have it computed and offered, and refer it: its claim is on the wire."""
        lender = how.pop("lender", "p")
        request = self.order(self.make(tenant, name, tokens, **how), lender=lender)
        self.compute_all()
        return self.refer(request, prefill=lender)

    def ticket_bytes(self, transfer: TransferId) -> bytes:
        return transfer.encode()

    def offer_bytes(self, asked: Referred) -> bytes:
        return repr(asked.offer).encode()

    # Peers

    def join(self, name: str) -> None:
        host = self.lenders[NodeName(name)]
        self.cut.discard(host.peer.node)
        self.decode.tell(PeerUp(host.peer))
        host.tell(PeerUp(self.decode.peer))

    def _cut(self, host: LenderHost) -> None:
        self.cut.add(host.peer.node)
        for ends, wire in self.wires.items():
            if host.peer.node in ends:
                wire.clear()

    def lose(self, name: str) -> None:
        """The link to a lender breaks: no message crosses any more, reads still go on."""
        host = self.lenders[NodeName(name)]
        self._cut(host)
        self.decode.tell(PeerLost(host.peer))
        host.tell(PeerLost(self.decode.peer))

    def kill(self, name: str) -> None:
        """The process of a lender ends: reads of its memory fail from now on."""
        host = self.lenders.pop(NodeName(name))
        host.dead = True
        self._cut(host)
        self.decode.tell(PeerLost(host.peer))
        self.decode.tell(PeerGone(host.peer))

    # Time and work

    def read_all(self) -> bool:
        names = [r.effect.transfer for r in self.decode.reading]
        for name in names:
            self.decode.read_all(name)
        return bool(names)

    def write_all(self) -> bool:
        """Nothing is written in pull: the work of the transport is to read."""
        return self.read_all()

    @property
    def is_quiet(self) -> bool:
        borrower, lenders = self.decode.machine, [h.machine for h in self.lenders.values()]
        open_here = borrower.receptions or borrower.loans or len(borrower.windows)
        return not open_here and not any(m.jobs or m.loans for m in lenders)

    def heal(self) -> None:
        """Let everything come to its end."""
        self.let_end()

    def assert_baseline(self, *, scrubbed: bool = True) -> None:
        super().assert_baseline(scrubbed=scrubbed)
        assert not self.decode.machine.loans
        assert not self.decode.reading
        for host in self.lenders.values():
            self._assert_lender_baseline(host)

    def _assert_lender_baseline(self, host: LenderHost) -> None:
        machine, books = host.machine, host.machine.books
        assert not machine.jobs
        assert not machine.loans
        assert not machine.queue
        assert not machine.closing
        assert not books.drain.waiting
        assert not host.computing
        assert all(entry.users == 0 for entry in machine.prefixes.entries)
        assert set(books.pool.leases) == {e.lease.id for e in machine.prefixes.entries}
        withdrawn = books.pool.pages_withdrawn
        assert books.pool.pages_free == books.pool.pages - withdrawn - machine.prefixes.pages
        assert machine.deadline() is None

    def lent_pages(self, request: Request) -> tuple[int, ...]:
        """The lender's pages of an open loan."""
        return tuple(self.lender.machine.loans[request.transfer].span.pages.tolist())

    def events(self, host: Host, event: str, request: Request) -> list[dict[str, Any]]:
        """The fields of a host's records of one event about one request."""
        owner = request.ticket.owner
        return [r.fields for r in host.records if r.event == event and r.owner == owner]
