"""Who used which ticket: one claimant may repeat itself, any other is refused until it expires."""

from __future__ import annotations

from dataclasses import dataclass

from kvairlock.core.messages import RequestTicket
from kvairlock.core.terms import Claimant, Instant, TransferId, after


@dataclass(frozen=True, slots=True)
class Claim:
    """Who used a ticket, and until when that must be remembered."""

    claimant: Claimant
    until: Instant


class Claims:
    """The tickets that were used and have not expired."""

    def __init__(self) -> None:
        self._claims: dict[TransferId, Claim] = {}

    def __len__(self) -> int:
        """Return how many are remembered."""
        return len(self._claims)

    def claimant(self, name: TransferId) -> Claimant | None:
        """Return who used the ticket of a transfer, or None if nobody did."""
        claim = self._claims.get(name)
        return claim.claimant if claim else None

    def remember(
        self, ticket: RequestTicket, claimant: Claimant, now_unix_s: int, now: Instant
    ) -> None:
        """Note the first use of a ticket until it expires, and forget those that have.

        Args:
            ticket: The ticket.
            claimant: Who used it.
            now_unix_s: The wall clock, by which tickets expire.
            now: The same moment on this process's own clock.
        """
        left_s = max(ticket.expires_unix_s - now_unix_s, 0) + 1
        until = after(now, left_s * 1000)
        for old in [n for n, claim in self._claims.items() if claim.until < now]:
            del self._claims[old]
        self._claims[ticket.owner.transfer] = Claim(claimant, until)
