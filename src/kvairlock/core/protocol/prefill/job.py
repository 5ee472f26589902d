"""One prompt on a prefill node, as data."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kvairlock.core.ends import End
from kvairlock.core.errors import InvariantBroken
from kvairlock.core.events import Granted
from kvairlock.core.memory.pool import Hold, Lease
from kvairlock.core.memory.prefixes import Match
from kvairlock.core.messages import RequestTicket
from kvairlock.core.protocol.handoff import HandoffStage
from kvairlock.core.terms import Instant, Owner, Pages, TransferId

NO_PAGES: Pages = np.array([], dtype=np.int32)
EMPTY = Match((), NO_PAGES)


@dataclass(frozen=True, slots=True)
class PrefillLimits:
    """Deadlines and caps of a prefill node.

    Args:
        verdict_ms: Longest wait for the ruling on a receipt.
        prefix_pages: Pages that finished prefixes may keep.
    """

    verdict_ms: int
    prefix_pages: int


@dataclass(slots=True)
class Job:
    """One prompt on this node.

    Args:
        asked: The grant.
        ticket: What the request's ticket vouches for.
        deadline: When the receiver stops to wait, then when the ruling is overdue.
        stop: How many tokens are to be computed.
        outcome: What the receipt will state.
        prefix: Shared pages that are not computed again.
        lease: The own pages, behind the shared ones.
        digests: Digest of each page once sealed.
        input_digest: Keyed digest of what was computed, once sealed.
    """

    asked: Granted
    ticket: RequestTicket
    deadline: Instant
    stop: int
    outcome: End = End.COMPLETED
    stage: HandoffStage = HandoffStage.OFFERED
    prefix: Match = EMPTY
    lease: Lease | None = None
    digests: tuple[int, ...] = ()
    input_digest: bytes = b""

    @property
    def name(self) -> TransferId:
        """The transfer's name."""
        return self.asked.transfer

    @property
    def own(self) -> Lease:
        """The own pages.

        Raises:
            InvariantBroken: None are reserved yet.
        """
        if self.lease is None:
            raise InvariantBroken("handoff", f"{self.name} has no pages in {self.stage}")
        return self.lease

    @property
    def owner(self) -> Owner:
        """Whose prompt it is."""
        return self.ticket.owner

    @property
    def is_writing(self) -> bool:
        """Whether a write of its pages is under way."""
        return self.lease is not None and Hold.WRITE in self.lease.holds

    def reused_tokens(self, page_tokens: int) -> int:
        """How many tokens its shared pages hold, all of them full."""
        return len(self.prefix.pages) * page_tokens

    @property
    def table(self) -> Pages:
        """All pages in token order, shape (pages,)."""
        own = self.lease.pages if self.lease else NO_PAGES
        return np.concatenate([self.prefix.pages, own])
