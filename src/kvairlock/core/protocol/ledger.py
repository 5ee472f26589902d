"""What both kinds of nodes keep: pool, drain, claims on tickets, counters, and effects to come."""

from __future__ import annotations

from collections import Counter

from kvairlock.core.effects import Effect, Record, Value
from kvairlock.core.ends import End
from kvairlock.core.errors import Reason, Refusal, Stage
from kvairlock.core.events import Presented
from kvairlock.core.guards import Guard, GuardSet
from kvairlock.core.memory.drain import Drain
from kvairlock.core.memory.page import Verb
from kvairlock.core.memory.pool import Lease, Pool
from kvairlock.core.messages import RequestTicket
from kvairlock.core.promise.capacity import CapacityReport
from kvairlock.core.protocol.claims import Claims
from kvairlock.core.terms import Owner, Peer

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
        report: What the node measured about itself.
        guards: Which guards enforce.
    """

    def __init__(self, report: CapacityReport, guards: GuardSet) -> None:
        self.report = report
        self.guards = guards
        self.out: list[Effect] = []
        self.pool = Pool(report.pages, report.page_tokens, report.incarnation)
        self.drain = Drain(self.pool, guards, self.out)
        self.counters: Counter[str] = Counter()

    def on(self, guard: Guard) -> bool:
        """Whether a guard enforces."""
        return self.guards.on(guard)

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


def judge_ticket(
    presented: Presented, receiver: Peer, claims: Claims, guards: GuardSet, stage: Stage
) -> tuple[RequestTicket | None, Refusal | None]:
    """Judge a ticket and what came with it: the tenant, the receiver, the input, the time.

    Args:
        presented: The ticket as far as its signature vouches for it.
        receiver: The decode node to which it was presented, in its present life.
        claims: Which tickets the judging node remembers, and so what has expired for it.
        guards: `ticket` may be off in drills.
        stage: Where it is judged.
    """
    ticket = presented.ticket
    if isinstance(ticket, Refusal):
        return None, ticket
    if not guards.on(Guard.TICKET):
        return ticket, None
    if presented.tenant != ticket.owner.tenant:
        return ticket, Refusal(Reason.TENANT, stage, "the ticket was issued to another tenant")
    if ticket.receiver != receiver:
        message = "the ticket was issued for another node, or for another life of this one"
        return ticket, Refusal(Reason.REPLAYED, stage, message)
    matches = presented.input_digest == ticket.input_digest
    if not matches or presented.prompt_tokens != ticket.prompt_tokens:
        return ticket, Refusal(Reason.INPUT, stage, "the ticket was issued for another input")
    if claims.has_expired(ticket, presented.now_unix_s):
        return ticket, Refusal(Reason.EXPIRED, stage, "the ticket has expired")
    return ticket, None
