"""What a ticket's signature vouches for, and what came with it: cryptography, for the core."""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray

from kvairlock.core.errors import PeerMisbehaved, Reason, Refusal, Stage
from kvairlock.core.events import Presented
from kvairlock.core.messages import RequestTicket
from kvairlock.wire import tickets
from kvairlock.wire.keys import Keyring, input_digest


class Presenter:
    """Verifies tickets on one node.

    Args:
        ring: The cluster's keys.
        layout: Digest of the node's page layout.
        vocab_size: Token ids are below it.
        check: False only in drills in which the `ticket` guard is off.
    """

    def __init__(self, ring: Keyring, layout: str, vocab_size: int, *, check: bool) -> None:
        self._ring, self._layout = ring, layout
        self._vocab_size, self._check = vocab_size, check

    def present(self, ticket: bytes, tenant: str | None, tokens: bytes, stage: Stage) -> Presented:
        """Verify what a ticket's signature vouches for, and digest what came with it.

        Args:
            ticket: The bytes as they came.
            tenant: For whom they are presented; None for a node that only relays the ticket.
            tokens: Token ids, little-endian int32.
            stage: Where a refusal happens.
        """
        count, now_s = len(tokens) // 4, int(time.time())
        try:
            read = tickets.verify(self._ring, ticket, check=self._check)
            digest = self.digest(tickets.key_id_of(ticket), read.salt, tokens)
        except PeerMisbehaved as error:
            refusal = Refusal(error.reason, stage, f"request ticket: {error}")
            return Presented(refusal, tenant or "", b"", count, now_s)
        vouched: RequestTicket | Refusal = read
        if not self._are_tokens(tokens):
            message = "the prompt is empty or has unknown tokens"
            vouched = Refusal(Reason.MALFORMED, stage, message)
        presenter = read.owner.tenant if tenant is None else tenant
        return Presented(vouched, presenter, digest, count, now_s)

    def digest(self, key_id: str, salt: str, tokens: bytes) -> bytes:
        """Digest tokens as the ticket of their request does."""
        return input_digest(self._ring, key_id, salt, self._layout, tokens)

    def _are_tokens(self, tokens: bytes) -> bool:
        if not tokens or len(tokens) % 4:
            return False
        ids = token_ids(tokens)
        return bool(ids.min() >= 0 and ids.max() < self._vocab_size)


def token_ids(tokens: bytes) -> NDArray[np.int32]:
    """Return token ids from their wire form, shape (tokens,)."""
    return np.frombuffer(tokens, dtype="<i4").astype(np.int32, copy=False)
