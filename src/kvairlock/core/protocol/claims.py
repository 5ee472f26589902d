"""Who used which ticket: one claimant may repeat itself, any other is refused until it expires."""

from __future__ import annotations

from dataclasses import dataclass

from kvairlock.core.terms import Claimant, Instant, TransferId


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

    def remember(self, name: TransferId, claimant: Claimant, until: Instant, now: Instant) -> None:
        """Note the first use of a ticket, and forget those that have expired."""
        for old in [n for n, claim in self._claims.items() if claim.until < now]:
            del self._claims[old]
        self._claims[name] = Claim(claimant, until)
