"""Nouns of the joined ends: setup, requests, what is on the wires, and the fake engine's slots."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvairlock.core.events import (
    Granted,
)
from kvairlock.core.guards import Guard, Relaxed
from kvairlock.core.messages import (
    Message,
    RequestTicket,
)
from kvairlock.core.protocol.decode import DecodeLimits
from kvairlock.core.protocol.prefill import PrefillLimits
from kvairlock.core.terms import (
    Incarnation,
    LandingPolicy,
    NodeName,
    Pages,
    Peer,
    Role,
    TransferId,
    WindowId,
    pages_for,
)

PAGE_TOKENS, SLOT_BYTES = 4, 16
PAGE_BYTES = PAGE_TOKENS * SLOT_BYTES
FILLER = 0xA5
LAYOUT = "layout-1"
OTHER_LAYOUT = "layout-2"
"""A layout whose slots are stored back to front."""
GATEWAY = Peer(NodeName("g"), Role.GATEWAY, Incarnation("g-1"))
UNIX_S = 1_000_000
SAMPLE_SEED = 1_000
"""What the seeds of samples start behind, so that none is a seed of digests as well."""

Bytes = NDArray[np.uint8]
DECODE_LIMITS = DecodeLimits(
    queue_ms=1_000,
    prefill_ms=2_000,
    landing_ms=3_000,
    decode_ms=4_000,
    landing_pages=64,
    queue_max=16,
)
PREFILL_LIMITS = PrefillLimits(verdict_ms=5_000, prefix_pages=4)


@dataclass(frozen=True, slots=True)
class Request:
    """One request as the test made it: what its reader must find, and under which tag."""

    transfer: TransferId
    tokens: tuple[int, ...]
    digest: bytes
    tag: int
    ticket: RequestTicket

    @property
    def tenant(self) -> str:
        return self.ticket.owner.tenant


@dataclass(frozen=True, slots=True)
class Read:
    """What one choice of a request found when it read its prompt's slots."""

    reader: TransferId
    choice: int
    foreign: frozenset[str]
    missing: tuple[int, ...]


@dataclass(slots=True, eq=False)
class WindowFile:
    """Memory that a writer may store into: page `i` of the window is `array[rows[i]]`."""

    array: Bytes
    rows: Pages
    mapped: bool = False
    sealed: bool = False


@dataclass(frozen=True, slots=True)
class GrantParcel:
    """A grant on its way, as the receiving host would make an event of it."""

    granted: Granted
    file: WindowFile


@dataclass(frozen=True, slots=True)
class Parcel:
    sender: Peer
    content: Message | GrantParcel


@dataclass(slots=True, eq=False)
class Task:
    """Work of a host that another thread would do: it runs when the test says so."""

    kind: str
    transfer: TransferId
    run: Callable[[], None]


@dataclass(slots=True, eq=False)
class Computing:
    """A prompt in the fake engine."""

    content: Request
    table: Pages
    position: int
    stop: int
    begun: bool = False
    stopped: bool = False


@dataclass(slots=True, eq=False)
class Writing:
    """A write that goes on to its own terminal status, page by page."""

    transfer: TransferId
    window: WindowId
    file: WindowFile
    pages: Pages
    pieces: int = 0


@dataclass(slots=True, eq=False)
class Running:
    """A request in the fake decode engine."""

    tables: tuple[Pages, ...]
    attached: TransferId
    steps: int = 0


def slot_bytes(tag: int, position: int, token: int) -> Bytes:
    """What the fake engine stores for one token, shape (SLOT_BYTES,)."""
    head = [tag, position, token & 0xFF]
    return np.array(head + [FILLER] * (SLOT_BYTES - len(head)), dtype=np.uint8)


@dataclass(frozen=True, slots=True)
class Setup:
    """How a world is built; guards are switched off per role."""

    policy: LandingPolicy = LandingPolicy.COPY
    decode_pages: int = 16
    prefill_pages: int = 16
    tenant_pages: int = 8
    prefills: tuple[str, ...] = ("p",)
    off_decode: frozenset[Guard] = frozenset()
    off_prefill: frozenset[Guard] = frozenset()
    relaxed: tuple[Relaxed, ...] = ()
    decode_limits: DecodeLimits = DECODE_LIMITS
    prefill_limits: PrefillLimits = PREFILL_LIMITS
    prefill_layout: str = LAYOUT
    context_tokens: int = 128


def page_keys(tokens: tuple[int, ...]) -> tuple[bytes, ...]:
    """Chained keys of the full pages of a prompt; the node has no secret here."""
    keys, chain = [], b""
    for page in range(len(tokens) // PAGE_TOKENS):
        content = repr(tokens[page * PAGE_TOKENS : (page + 1) * PAGE_TOKENS]).encode()
        chain = hashlib.blake2b(chain + content, digest_size=16).digest()
        keys.append(chain)
    return tuple(keys)


def prompt_pages(request: Request) -> int:
    """How many pages the prompt of a request has."""
    return pages_for(len(request.tokens), PAGE_TOKENS)


def changed(**fields: Any) -> Callable[[Any], list[Any]]:
    """A fault on the wire: every message of the type gets these fields."""
    return lambda message: [replace(message, **fields)]


def dropped(message: Any) -> list[Any]:
    """A fault on the wire: the message is lost."""
    return []


@dataclass(slots=True)
class Kept:
    """Keeps copies of what passes, for a test to send again."""

    messages: list[Any] = field(default_factory=list)

    def __call__(self, message: Any) -> list[Any]:
        self.messages.append(message)
        return [message]
