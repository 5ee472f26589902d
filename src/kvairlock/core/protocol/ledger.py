"""What both kinds of nodes keep: pool, drain, claims on tickets, counters, and effects to come."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from kvairlock.core.checks import Cover
from kvairlock.core.effects import Effect, Record, Value
from kvairlock.core.ends import End
from kvairlock.core.errors import InvariantBroken, Reason, Refusal, Stage
from kvairlock.core.events import Presented
from kvairlock.core.guards import Guard, GuardMode, GuardSet
from kvairlock.core.memory.drain import Drain
from kvairlock.core.memory.page import Verb
from kvairlock.core.memory.pool import Lease, Pool
from kvairlock.core.messages import RequestTicket
from kvairlock.core.promise import admission
from kvairlock.core.promise.capacity import CapacityReport, Cause, Demand
from kvairlock.core.protocol.claims import Claims
from kvairlock.core.terms import NodeName, Owner, Peer, Role, Route

VIOLATIONS = frozenset(
    {
        Reason.IDENTITY,
        Reason.COMPUTED_INPUT,
        Reason.MODEL_LAYOUT,
        Reason.PAGE_INDEX,
        Reason.RANGE,
        Reason.GENERATION,
        Reason.INTEGRITY,
        Reason.MISSING_EVIDENCE,
        Reason.INVARIANT,
    }
)
"""Reasons after which pages are quarantined: their bytes are not what anybody vouched for."""


class Ledger:
    """The books of one node.

    Args:
        report: What the node measured about itself; another takes its place when it is resized.
        guards: How all guards are set.
    """

    def __init__(self, report: CapacityReport, guards: GuardSet) -> None:
        self.report = report
        self.guards = guards
        self.out: list[Effect] = []
        self.pool = Pool(report.pages, report.page_tokens, report.incarnation)
        self.drain = Drain(self.pool, guards, self.out)
        self.counters: Counter[str] = Counter()
        self.reads: Counter[tuple[Route, Cover]] = Counter()
        """Pages of prompts that steps have read, by what vouched for them."""

    def on(self, guard: Guard) -> bool:
        """Whether a guard that acts is to do so."""
        return self.guards.on(guard)

    def judge(
        self, guard: Guard, route: Route, owner: Owner, check: Callable[[], Refusal | None]
    ) -> Refusal | None:
        """Let a guard that compares judge: return what is refused, if anything is.

        Where it observes, what it finds is noted and nothing is refused; where it is disabled, it
        does not look.

        Args:
            guard: The guard.
            route: On which route.
            owner: Whose request it is.
            check: Compares; returns what is to be refused.
        """
        mode = self.guards.mode(guard, route)
        if mode is GuardMode.DISABLED:
            return None
        refusal = check()
        if refusal is None or mode is GuardMode.ENFORCING:
            return refusal
        self.record_observed(guard, route, owner, refusal)
        return None

    def judge_size(self, route: Route, owner: Owner, demand: Demand) -> Refusal | None:
        """Judge by this node's figures of now whether it can ever hold what a request needs.

        Args:
            route: On which route.
            owner: Whose request it is.
            demand: What it needs.
        """
        fits = partial(admission.judge, self.report, demand)
        return self.judge(Guard.CAPACITY, route, owner, fits)

    def route_with(self, peer: NodeName) -> Route:
        """Return the route that this node makes with another."""
        here = self.report.node
        return Route(here, peer) if self.report.role is Role.PREFILL else Route(peer, here)

    def set_guards(self, guards: GuardSet) -> None:
        """Take how guards are set from now on.

        Raises:
            InvariantBroken: Others are disabled than before: that is for the whole life of a node.
        """
        if guards.off != self.guards.off:
            raise InvariantBroken("guards", "what is disabled changed in the life of a node")
        self.guards = guards

    def resize(self, pages: int) -> bool:
        """Give requests another number of pages, and report that from now on.

        Admission goes by the new figure at once, also while pages are still to be given back.

        Args:
            pages: How many; what the node cannot have is recorded and changes nothing.

        Returns:
            Whether the figures have changed.
        """
        if not 0 <= pages <= self.pool.pages:
            self.record_ignored(None, "resize", f"{pages} pages, of {self.pool.pages} mapped")
            return False
        if pages == self.report.pages:
            return False
        self.pool.resize(pages)
        self.report = replace(self.report, pages=pages, epoch=self.report.epoch + 1)
        self.record("capacity_reported", None, **self.report.figures(Cause.RESIZED))
        return True

    def record(self, event: str, owner: Owner | None, **fields: Value) -> None:
        """Note an event of the evidence schema."""
        self.out.append(Record(event, owner, fields))

    def record_allocated(self, lease: Lease) -> None:
        """Note which pages a lease was given."""
        self.record(
            "pages_allocated",
            lease.owner,
            lease=lease.id,
            pages=tuple(lease.pages.tolist()),
            generations=tuple(lease.generations.tolist()),
        )

    def record_peer(self, event: str, peer: Peer) -> None:
        """Note that a peer is up or lost."""
        self.record(event, None, peer=peer.node, peer_incarnation=peer.incarnation)

    def record_refusal(self, owner: Owner, refusal: Refusal) -> None:
        """Note and count a refusal."""
        self.counters[f"refused.{refusal.stage}.{refusal.reason}"] += 1
        self.record(
            "request_refused",
            owner,
            stage=refusal.stage,
            reason=refusal.reason,
            asked=refusal.asked,
            limit=refusal.limit,
            limit_name=refusal.limit_name,
        )

    def record_observed(self, guard: Guard, route: Route, owner: Owner, refusal: Refusal) -> None:
        """Note and count what a guard found that only observes."""
        self.counters[f"would_refuse.{guard}.{refusal.reason}"] += 1
        self.record(
            "would_refuse",
            owner,
            guard=guard,
            route=str(route),
            stage=refusal.stage,
            reason=refusal.reason,
            asked=refusal.asked,
            limit=refusal.limit,
            limit_name=refusal.limit_name,
        )

    def record_ignored(self, owner: Owner | None, message: str, reason: str) -> None:
        """Note a message for which nothing is open: it changes nothing."""
        self.counters["ignored"] += 1
        self.record("message_ignored", owner or Owner("", "", 0), message=message, reason=reason)

    def record_late(self, owner: Owner, end: End) -> None:
        """Note an end that came after the first: it changes nothing."""
        self.record("end_came_later", owner, end=end)

    def take(self) -> list[Effect]:
        """Return the effects since the last call."""
        effects = self.out.copy()
        self.out.clear()
        return effects


def verb_for(refusal: Refusal | None) -> Verb:
    """Return how a lease ends: in quarantine after a violation, else retired."""
    return Verb.QUARANTINE if refusal and refusal.reason in VIOLATIONS else Verb.RETIRE


def cause_of(refusal: Refusal | None) -> str:
    """Return why a lease ends, in one word."""
    return refusal.reason if refusal else End.COMPLETED


def judge_ticket(
    books: Ledger,
    route: Route,
    presented: Presented,
    receiver: Peer,
    claims: Claims,
    stage: Stage,
) -> tuple[RequestTicket | None, Refusal | None]:
    """Judge a ticket and what came with it: the tenant, the receiver, the input, the time.

    A wrong signature vouches for nobody, so it is refused however the guard is set.

    Args:
        books: Those of the judging node.
        route: The route of the request.
        presented: The ticket as far as its signature vouches for it.
        receiver: The decode node to which it was presented, in its present life.
        claims: Which tickets the judging node remembers, and so what has expired for it.
        stage: Where it is judged.
    """
    ticket = presented.ticket
    if isinstance(ticket, Refusal):
        return None, ticket
    terms = partial(_judge_terms, ticket, presented, receiver, claims, stage)
    return ticket, books.judge(Guard.TICKET, route, ticket.owner, terms)


def _judge_terms(
    ticket: RequestTicket, presented: Presented, receiver: Peer, claims: Claims, stage: Stage
) -> Refusal | None:
    if presented.tenant != ticket.owner.tenant:
        return Refusal(Reason.TENANT, stage, "the ticket was issued to another tenant")
    if ticket.receiver != receiver:
        message = "the ticket was issued for another node, or for another life of this one"
        return Refusal(Reason.REPLAYED, stage, message)
    matches = presented.input_digest == ticket.input_digest
    if not matches or presented.prompt_tokens != ticket.prompt_tokens:
        return Refusal(Reason.INPUT, stage, "the ticket was issued for another input")
    if claims.has_expired(ticket, presented.now_unix_s):
        return Refusal(Reason.EXPIRED, stage, "the ticket has expired")
    return None
