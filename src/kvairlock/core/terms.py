"""The words of the core as types: one word, one meaning (docs/glossary.md is the contract).

Identifiers are opaque strings that come in with events. An `Instant` is local to one process: it
counts nanoseconds of a clock that goes on while the machine is suspended, and is never sent.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NewType

import numpy as np
from numpy.typing import NDArray

Instant = NewType("Instant", int)
"""Nanoseconds of this process's boot-time clock. Only durations travel between processes."""

NodeName = NewType("NodeName", str)
Incarnation = NewType("Incarnation", str)
TransferId = NewType("TransferId", str)
WindowId = NewType("WindowId", str)
LeaseId = NewType("LeaseId", int)

Pages = NDArray[np.int32]
"""Page indices of one pool, shape (pages,)."""

Generations = NDArray[np.int64]
"""Content counters, one per page, shape (pages,)."""

NS_PER_MS = 1_000_000
ATTEMPT_DIGITS = 9


class Role(StrEnum):
    """What a process is in a route."""

    GATEWAY = "gateway"
    PREFILL = "prefill"
    DECODE = "decode"


class LandingPolicy(StrEnum):
    """How remote writes become pages of the receiving pool."""

    COPY = "copy"
    """Into a window file; the receiver copies, then judges the copy."""
    SEAL = "seal"
    """Into a window file that the kernel seals against every writer before it is mapped."""
    DIRECT = "direct"
    """Into the pool itself: for drills, and to show why."""


class Fence(StrEnum):
    """The evidence on which memory was taken from a writer or reader."""

    ACKNOWLEDGED = "acknowledged"
    """The writer's own terminal status."""
    SEALED = "sealed"
    """The kernel refused to keep any writable mapping."""
    PROCESS_GONE = "process_gone"
    """The process that could write has ended."""
    LOCAL = "local"
    """No other process ever had access."""
    REVOKED = "revoked"
    """The remote reader asks before it believes what it read, and is told that it did not stand."""
    UNPROVEN = "unproven"
    """None: the drain guard was off. Only drills ever record this."""


class Reader(StrEnum):
    """What a remote reader does after its read, and so what can end its hold."""

    VALIDATING = "validating"
    """It asks whether the pages stood before it uses them: time may end its hold."""
    TRUSTING = "trusting"
    """It does not ask: its hold ends as a writer's does, by evidence only."""


@dataclass(frozen=True, slots=True)
class Owner:
    """The identity that pages are allocated to."""

    tenant: str
    request: str
    attempt: int

    @property
    def transfer(self) -> TransferId:
        """The name of the one transfer that this attempt makes."""
        return TransferId(f"{self.request}/{self.attempt}")

    @classmethod
    def named(cls, tenant: str, transfer: TransferId) -> Owner:
        """Return the owner that a peer names: for evidence about what grants nothing."""
        request, _, attempt = transfer.rpartition("/")
        short = attempt.isdecimal() and len(attempt) < ATTEMPT_DIGITS
        return cls(tenant, request, int(attempt) if short else 0)


@dataclass(frozen=True, slots=True)
class Peer:
    """One life of one process on the other end of a channel."""

    node: NodeName
    role: Role
    incarnation: Incarnation


@dataclass(frozen=True, slots=True)
class Route:
    """A prefill node and a decode node that may serve one request together."""

    prefill: NodeName
    decode: NodeName

    def __str__(self) -> str:
        """Return it as settings, records and operators write it."""
        return f"{self.prefill}/{self.decode}"


@dataclass(frozen=True, slots=True)
class Claimant:
    """Who presented a ticket: the same claimant may repeat itself, any other is refused."""

    node: NodeName
    incarnation: Incarnation
    nonce: str


@dataclass(frozen=True, slots=True)
class PageSpan:
    """Pages named together with their moment; a page is never named alone.

    Args:
        incarnation: The life of the process whose pool the pages belong to.
        pages: Page indices, shape (pages,).
        generations: The content counter of each page, shape (pages,).
    """

    incarnation: Incarnation
    pages: Pages
    generations: Generations

    def __len__(self) -> int:
        """Return the number of pages."""
        return len(self.pages)


def after(now: Instant, wait_ms: int) -> Instant:
    """Return the instant that is `wait_ms` after `now`."""
    return Instant(now + wait_ms * NS_PER_MS)


def pages_for(tokens: int, page_tokens: int) -> int:
    """Return how many pages of `page_tokens` slots hold `tokens` tokens."""
    return -(-tokens // page_tokens)
