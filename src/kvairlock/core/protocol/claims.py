"""Who used which ticket: one claimant may repeat itself, any other is refused until it expires.

Tickets expire by the wall clock, and a wall clock can be set back. So claims are forgotten by that
clock too, and a ticket that may have been forgotten stays expired, whatever the clock says later.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvairlock.core.messages import RequestTicket
from kvairlock.core.terms import Claimant, TransferId


@dataclass(frozen=True, slots=True)
class Claim:
    """Who used a ticket, and until which second of the wall clock it is worth something."""

    claimant: Claimant
    expires_unix_s: int


class Claims:
    """The tickets that were used and have not expired."""

    def __init__(self) -> None:
        self._claims: dict[TransferId, Claim] = {}
        self._forgotten_unix_s = 0
        """No ticket that was forgotten expires later than this."""

    def __len__(self) -> int:
        """Return how many are remembered."""
        return len(self._claims)

    def claimant(self, name: TransferId) -> Claimant | None:
        """Return who used the ticket of a transfer, or None if nobody did."""
        claim = self._claims.get(name)
        return claim.claimant if claim else None

    def has_expired(self, ticket: RequestTicket, now_unix_s: int) -> bool:
        """Whether a ticket is worth nothing any more, by the wall clock as it is or as it was.

        A clock that was set back further than tickets last makes new ones look like forgotten
        ones; they are refused until it has caught up, or the node starts a new life.
        """
        expires_unix_s = ticket.expires_unix_s
        return expires_unix_s < now_unix_s or expires_unix_s <= self._forgotten_unix_s

    def remember(self, ticket: RequestTicket, claimant: Claimant, now_unix_s: int) -> None:
        """Note the first use of a ticket until it expires, and forget those that have.

        Args:
            ticket: The ticket.
            claimant: Who used it.
            now_unix_s: The wall clock, by which tickets expire.
        """
        for name, claim in list(self._claims.items()):
            if claim.expires_unix_s < now_unix_s:
                self._forgotten_unix_s = max(self._forgotten_unix_s, claim.expires_unix_s)
                del self._claims[name]
        self._claims[ticket.owner.transfer] = Claim(claimant, ticket.expires_unix_s)
