"""What a decode node keeps, and what all its steps share."""

from __future__ import annotations

from functools import partial

from kvairlock.core.effects import Effect
from kvairlock.core.errors import Reason, Refusal, Stage
from kvairlock.core.guards import Guard, GuardMode, GuardSet
from kvairlock.core.memory.pool import Hold, Lease
from kvairlock.core.memory.windows import Windows
from kvairlock.core.promise.budget import Budget
from kvairlock.core.promise.capacity import CapacityReport
from kvairlock.core.promise.fair import FairQueue
from kvairlock.core.protocol.claims import Claims
from kvairlock.core.protocol.decode.reception import DecodeLimits, Reception, refusal_for_wait
from kvairlock.core.protocol.handoff import HandoffStage
from kvairlock.core.protocol.ledger import Ledger
from kvairlock.core.terms import (
    LandingPolicy,
    NodeName,
    PageSpan,
    Peer,
    Route,
    TransferId,
)


class DecodeState:
    """The books of one decode node and everything that is under way on it.

    Args:
        report: What the node measured; `landing_pages` in it is what one request may land.
        guards: How all guards are set.
        limits: Deadlines and caps.
        policy: How remote writes become pages.
        layout: Digest of the node's page layout.
    """

    def __init__(
        self,
        report: CapacityReport,
        guards: GuardSet,
        limits: DecodeLimits,
        policy: LandingPolicy,
        layout: str,
    ) -> None:
        self.books = Ledger(report, guards)
        self.me = Peer(report.node, report.role, report.incarnation)
        self.limits, self.policy, self.layout = limits, policy, layout
        self.receptions: dict[TransferId, Reception] = {}
        self.holding: dict[tuple[TransferId, Hold], Lease] = {}
        self.queue = FairQueue()
        self.windows = Windows(self.books.out, self.books.drain.window_fences)
        self.claims = Claims()
        self.budget = Budget(limits.recompute_tokens_per_min)
        self.peers: dict[NodeName, Peer] = {}

    def on(self, guard: Guard) -> bool:
        """Whether a guard that acts is to do so."""
        return self.books.on(guard)

    def emit(self, effect: Effect) -> None:
        """Add an effect to those of this turn."""
        self.books.out.append(effect)

    def hold(self, name: TransferId, lease: Lease, kind: Hold) -> None:
        """Keep a request's pages while the host works on them, whatever becomes of the request."""
        lease.hold(kind)
        self.holding[name, kind] = lease

    def let_go(self, name: TransferId, kind: Hold) -> None:
        """The host has ended its work on a request's pages."""
        lease = self.holding.pop((name, kind), None)
        if lease is not None:
            lease.release(kind)

    def pages_draining(self, tenant: str | None = None) -> int:
        """Pages of windows whose request has ended and of leases in the drain, of one or all."""
        return self.windows.pages_draining(tenant) + self.books.drain.pages_of(tenant)

    def route_of(self, reception: Reception) -> Route:
        """Return the route of a request."""
        return self.books.route_with(reception.asked.prefill)

    def judge_size(self, reception: Reception) -> Refusal | None:
        """Judge by this node's figures of now whether a request can ever have its pages."""
        return self.books.judge_size(self.route_of(reception), reception.owner, reception.demand)

    def within_share(self, reception: Reception) -> bool:
        """Whether a request may land: with it its tenant has no more than its share in windows."""
        return self._over_share(reception) is None

    def note_share(self, reception: Reception) -> None:
        """Note that a request will land over its tenant's share, where `share` only observes."""
        landing = partial(self._judge_landing, reception)
        self.books.judge(Guard.SHARE, self.route_of(reception), reception.owner, landing)

    def _over_share(self, reception: Reception) -> Refusal | None:
        mode = self.books.guards.mode(Guard.SHARE, self.route_of(reception))
        return self._judge_landing(reception) if mode is GuardMode.ENFORCING else None

    def _judge_landing(self, reception: Reception) -> Refusal | None:
        limit = self.books.report.landing_pages
        landing = self.windows.pages(reception.owner.tenant)
        total = landing + reception.demand.prompt_pages(self.books.report.page_tokens)
        if reception.lands_nothing or total <= limit:
            return None
        message = f"this tenant's requests kept their {limit} landing pages in use"
        stage, name = Stage.DECODE_ADMISSION, "tenant_landing_pages"
        return Refusal(Reason.TENANT_SHARE, stage, message, total, limit, name)

    def refusal_for_wait(self, reception: Reception) -> Refusal:
        """Say why a request whose deadline has passed is refused."""
        over = self._over_share(reception)
        if reception.stage is HandoffStage.OFFERED and over is not None:
            return over
        return refusal_for_wait(reception, self.limits, self.pages_draining())

    def record_reading(self, event: str, reception: Reception, span: PageSpan) -> None:
        """Note that a request begins or ends to read pages."""
        pages, generations = tuple(span.pages.tolist()), tuple(span.generations.tolist())
        self.books.record(event, reception.owner, pages=pages, generations=generations)
