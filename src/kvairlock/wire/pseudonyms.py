"""Pseudonyms: keyed digests that stand for tenants and requests in evidence, by retention period.

    period      1            2            3
    key         k1 --hash--> k2 --hash--> k3        one way: k3 gives no k2
    digests     of k1        of k2        of k3

Within a period a name has one digest in every process of the cluster, so that evidence can be
joined. Each period has another key, the hash of the one before. Who takes the key of today can try
names against the evidence of today; earlier digests stay what they are to him: random. A process
goes over to the next key by its own clock, so that all of them do so at the same moment.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from kvairlock.core.errors import Misuse
from kvairlock.wire.keys import KEY_BYTES, Keyring, keyed

DIGEST_BYTES = 12
DAY_S = 86_400
FOR_EVER = 0


@dataclass(frozen=True, slots=True, repr=False)
class Pseudonyms:
    """The key of one period.

    Args:
        key: 32 bytes.
        since_unix_s: When the period began.
        days: How long it is; `FOR_EVER` for a key that does not change.
    """

    key: bytes
    since_unix_s: int = 0
    days: int = FOR_EVER

    def __repr__(self) -> str:
        """Show the period only: keys never reach logs or errors."""
        return f"Pseudonyms(since_unix_s={self.since_unix_s}, days={self.days})"

    @classmethod
    def fresh(cls, now_unix_s: int, days: int) -> Pseudonyms:
        """Return a random key, whose period begins now."""
        return cls(secrets.token_bytes(KEY_BYTES), now_unix_s, days)

    @classmethod
    def of_ring(cls, ring: Keyring) -> Pseudonyms:
        """Return what 0.1.0 has: the key that signs, for as long as it signs.

        For processes that are given no key of their own for evidence, so that their records can
        be joined with those of a 0.1.0 beside them.
        """
        return cls(ring.keys[ring.active_id])

    @classmethod
    def parse(cls, text: str) -> Pseudonyms:
        """Read what `text` returns.

        Raises:
            Misuse: It is something else.
        """
        lines = (line.split("#", 1)[0] for line in text.splitlines())
        words = " ".join(lines).split()
        try:
            since, days, key = int(words[0]), int(words[1]), bytes.fromhex(words[2])
        except (ValueError, IndexError):
            raise Misuse("an evidence key is written as: SINCE_UNIX_S DAYS HEX") from None
        if len(words) != 3 or len(key) != KEY_BYTES or since < 0 or days < 1:
            raise Misuse("an evidence key is written as: SINCE_UNIX_S DAYS HEX")
        return cls(key, since, days)

    def text(self) -> str:
        """Return the key and its period on one line; it is a secret."""
        return f"{self.since_unix_s} {self.days} {self.key.hex()}"

    @property
    def until_unix_s(self) -> int | None:
        """When the period is over; None if it never is."""
        return None if self.days == FOR_EVER else self.since_unix_s + self.days * DAY_S

    def at(self, unix_s: float) -> Pseudonyms:
        """Return the key of the period that a time is in: this one, or a later one.

        Args:
            unix_s: A time; one before this period is given this period's key, since that of an
                earlier one can't be had.
        """
        if self.until_unix_s is None or unix_s < self.until_unix_s:
            return self
        periods = int(unix_s - self.since_unix_s) // (self.days * DAY_S)
        key = self.key
        for _ in range(periods):
            key = _next(key)
        return Pseudonyms(key, self.since_unix_s + periods * self.days * DAY_S, self.days)

    def lasting(self, days: int, now_unix_s: int) -> Pseudonyms:
        """Return a key whose periods have another length: a new period begins now.

        Args:
            days: How long periods are from now on.
            now_unix_s: The time.
        """
        if days == self.days:
            return self
        return Pseudonyms(_next(self.key), now_unix_s, days)

    def of(self, kind: str, name: str) -> str:
        """Return the digest of a name, 24 hex digits.

        Args:
            kind: `tenant` or `request`; a request is named with its attempt: `REQUEST/ATTEMPT`.
            name: The name.
        """
        key = keyed(self.key, f"evidence pseudonym {kind}".encode())
        return keyed(key, name.encode())[:DIGEST_BYTES].hex()


def _next(key: bytes) -> bytes:
    """Return the key of the next period; there is no way back."""
    return keyed(key, b"evidence key of the next period")
