"""What a world is made of: its requests, what goes wrong with them, the figures of its nodes.

A setup is a value. Whatever an outsider, a client or a broken engine does beside the faults that
are moves is said here, so that a world with the same setup and budget is the same world.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from kvairlock.core.guards import Guard
from kvairlock.core.messages import RequestTicket
from kvairlock.core.promise.capacity import CapacityReport, Demand
from kvairlock.core.protocol.decode.reception import DecodeLimits
from kvairlock.core.protocol.prefill.job import PrefillLimits
from kvairlock.core.terms import (
    Claimant,
    Incarnation,
    LandingPolicy,
    NodeName,
    Owner,
    Peer,
    Reader,
    Role,
    TransferId,
)

LAYOUT, OTHER_LAYOUT = "layout", "another layout"
UNIX_S = 1_000_000
TICKET_S = 1_000_000
GATEWAY = Peer(NodeName("gateway"), Role.GATEWAY, Incarnation("gateway.1"))

DECODE_LIMITS = DecodeLimits(
    queue_ms=1_000,
    prefill_ms=2_000,
    landing_ms=3_000,
    decode_ms=4_000,
    landing_pages=8,
    queue_max=4,
)
PREFILL_LIMITS = PrefillLimits(verdict_ms=5_000, prefix_pages=2)
OFFER_MS, REPEAT_MS = 1_500, 200


class Flaw(StrEnum):
    """What a prefill node does wrong with a request. No guard relies on that it does not."""

    NONE = "none"
    REJECTED = "reports a rejected prompt of which it computed nothing"
    IDLE = "computes nothing and reports success"
    OTHERS_REQUEST = "computes and states another request"
    OTHERS_INPUT = "computes another prompt and states its digest"
    LAYOUT = "stores pages of another layout"
    SHORT = "computes all but the last token"
    ORDER = "writes the pages in another order"
    TORN = "a foreign byte lands with the last page"
    PADDED = "fills the last page with slots of its batch neighbour"
    EARLY = "reports before its write has ended"
    HANGS = "its write does not end before its process does"


class Theft(StrEnum):
    """How somebody else's ticket is presented."""

    BY_CLIENT = "in the transfer parameters of a client's request"
    BY_ROUTER = "by a router that reaches the node, with the thief's tenant and input"
    WITH_ALL = "by a router, with the tenant and the input that it was issued for"


class Direction(StrEnum):
    """Who moves the bytes."""

    PUSH = "push"
    PULL = "pull"


@dataclass(frozen=True, slots=True)
class Ask:
    """One request of a world.

    Args:
        tenant: Who asks.
        request: Its name.
        tokens: Length of its prompt.
        max_tokens: Tokens to generate.
        scope: Who may share its pages; empty for nobody.
        content: Requests of equal content have equal prompts; 0 for one of its own.
        attempt: Counts its tries; a later one starts when the one before has ended uncompleted.
        flaw: What prefill does wrong with it.
        stolen: Transfer whose ticket is presented in place of its own; empty for none.
        theft: How that is presented.
        decode: Which decode node serves it, from 0.
        prefill: Which prefill node, from 0.
    """

    tenant: str
    request: str
    tokens: int
    max_tokens: int = 1
    scope: str = ""
    content: int = 0
    attempt: int = 1
    flaw: Flaw = Flaw.NONE
    stolen: str = ""
    theft: Theft = Theft.BY_CLIENT
    decode: int = 0
    prefill: int = 0

    @property
    def owner(self) -> Owner:
        """The identity that its pages are allocated to."""
        return Owner(self.tenant, self.request, self.attempt)

    @property
    def transfer(self) -> TransferId:
        """The name of its transfer."""
        return self.owner.transfer

    @property
    def digest(self) -> bytes:
        """Stands for the keyed digest of its prompt: equal only for the same attempt."""
        return f"input of {self.transfer}".encode()

    @property
    def demand(self) -> Demand:
        """What it needs from a route."""
        return Demand(self.tokens, self.max_tokens)

    @property
    def claimant(self) -> Claimant:
        """Who presents its ticket."""
        return Claimant(GATEWAY.node, GATEWAY.incarnation, f"nonce of {self.transfer}")


@dataclass(frozen=True, slots=True)
class Setup:
    """A whole world, before anything happens in it.

    Args:
        asks: Its requests, in the order of their tags.
        direction: Push or pull.
        page_tokens: Token slots of a page.
        prefill_pages: Pages of each prefill node.
        decode_pages: Pages of each decode node.
        tenant_pages: What one tenant may have in windows.
        policy: How remote writes become pages.
        reader: Whether a borrower asks after its reads (pull).
        guards_off: Which guards do not enforce, on all nodes and at the gateway.
        decode_limits: Deadlines and caps of decode nodes.
        prefill_limits: Deadlines and caps of prefill nodes.
        context_tokens: Longest context of the model.
        deaf_engine: Whether decode engines keep their batch until they are asked at a step.
        copies: Whether the transport keeps a copy of an ended write that may land once more.
        slow_scrubs: Whether pages are zeroed some time after their fence, or at once.
        decodes: How many decode nodes there are.
        prefills: How many prefill nodes.
    """

    asks: tuple[Ask, ...]
    direction: Direction = Direction.PUSH
    page_tokens: int = 2
    prefill_pages: int = 3
    decode_pages: int = 3
    tenant_pages: int = 2
    policy: LandingPolicy = LandingPolicy.COPY
    reader: Reader = Reader.VALIDATING
    guards_off: frozenset[Guard] = frozenset()
    decode_limits: DecodeLimits = DECODE_LIMITS
    prefill_limits: PrefillLimits = PREFILL_LIMITS
    context_tokens: int = 64
    deaf_engine: bool = False
    copies: bool = False
    slow_scrubs: bool = False
    decodes: int = 1
    prefills: int = 1

    def ask(self, transfer: TransferId) -> Ask:
        """Return the request of a transfer."""
        return next(ask for ask in self.asks if ask.transfer == transfer)

    def asked_with(self, digest: bytes) -> Ask:
        """Return the request whose prompt has this digest."""
        return next(ask for ask in self.asks if ask.digest == digest)

    def tag(self, ask: Ask) -> int:
        """Return the mark of a request's bytes, from 1."""
        return self.asks.index(ask) + 1

    def other(self, ask: Ask) -> Ask:
        """Return a request of another tenant, for who mixes them up."""
        return next(other for other in self.asks if other.tenant != ask.tenant)

    def on(self, guard: Guard) -> bool:
        """Whether a guard enforces."""
        return guard not in self.guards_off

    def report(self, peer: Peer) -> CapacityReport:
        """Return what a node measured about itself."""
        prefill = peer.role is Role.PREFILL
        return CapacityReport(
            node=peer.node,
            role=peer.role,
            incarnation=peer.incarnation,
            epoch=0,
            fingerprint="",
            basis=None,
            page_tokens=self.page_tokens,
            pages=self.prefill_pages if prefill else self.decode_pages,
            landing_pages=0 if prefill else self.tenant_pages,
            windows=0,
            context_tokens=self.context_tokens,
            groups=(),
        )


def peer_of(role: Role, number: int, life: int) -> Peer:
    """Return the name of one life of a node; the first of a role has its role's name."""
    name = NodeName(f"{role}-{number + 1}" if number else str(role))
    return Peer(name, role, Incarnation(f"{name}.{life}"))


def ticket_for(ask: Ask, receiver: Peer) -> RequestTicket:
    """Return what the gateway vouches for."""
    return RequestTicket(
        owner=ask.owner,
        input_digest=ask.digest,
        prompt_tokens=ask.tokens,
        max_tokens=ask.max_tokens,
        choices=1,
        scope=ask.scope,
        expires_unix_s=UNIX_S + TICKET_S,
        salt=ask.request,
        receiver=receiver,
    )


def page_keys(ask: Ask, page_tokens: int) -> tuple[bytes, ...]:
    """Return the keys of the full pages of a prompt: equal for equal contents."""
    whose = f"content {ask.content}" if ask.content else f"content of {ask.transfer}"
    return tuple(f"{whose}, page {page}".encode() for page in range(ask.tokens // page_tokens))
