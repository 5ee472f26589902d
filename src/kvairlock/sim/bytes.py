"""What pages hold in the simulator: each slot says whose token it is, and which.

A slot is one number, `tag * POSITIONS + position + 1`, and 0 where there is nothing. So a reader of
a page can tell, slot by slot, its own bytes from somebody else's and from none: a *leak* is a
foreign byte that was read, a *corruption* an own one that is missing.
"""

from __future__ import annotations

from dataclasses import dataclass
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from kvairlock.core.terms import Pages, TransferId
from kvairlock.sim.setup import Ask, Setup

POSITIONS = 64
Slots = NDArray[np.int32]
"""Slots of some pages, shape (pages, page_tokens)."""


@dataclass(frozen=True, slots=True)
class Read:
    """What a request found when it read its pages.

    Args:
        reader: The request.
        foreign: Whose bytes it found that it may not read.
        missing: Positions at which its own bytes were not.
    """

    reader: TransferId
    foreign: tuple[TransferId, ...]
    missing: tuple[int, ...]


def slot_of(tag: int, position: int) -> int:
    """Return what stands for one token."""
    return tag * POSITIONS + position + 1


def prompt_slots(tag: int, start: int, stop: int) -> Slots:
    """Return what the engine stores for some tokens of a prompt, shape (tokens,)."""
    return np.arange(start, stop, dtype=np.int32) + (tag * POSITIONS + 1)


def put(memory: Slots, table: Pages, position: int, slots: Slots) -> None:
    """Store slots for consecutive positions through a page table."""
    size = memory.shape[1]
    where = np.arange(position, position + len(slots))
    memory[table[where // size], where % size] = slots


def page_digests(memory: Slots, pages: Pages, seed: int) -> tuple[int, ...]:
    """Digest each page; the seed is the transfer's."""
    return tuple(crc32(memory[page].tobytes(), seed) for page in pages.tolist())


def read(setup: Setup, memory: Slots, table: Pages, reader: Ask, tail: bool) -> Read:
    """Read the prompt of a request through its page table, and judge what is there.

    Args:
        setup: The world.
        memory: Where the pages are, shape (pages, page_tokens).
        table: The pages of the request in token order, shape (pages,).
        reader: The request.
        tail: Whether to look behind the prompt in its last page too: nothing may be there.
    """
    size = setup.page_tokens
    found = memory[table].reshape(-1)[: reader.tokens + (-reader.tokens % size if tail else 0)]
    expected = prompt_slots(setup.tag(reader), 0, len(found))
    expected[reader.tokens :] = 0
    foreign, missing = set(), []
    for position in np.flatnonzero(found != expected).tolist():
        slot = int(found[position])
        owner = whose(setup, slot)
        if owner is not None and _may_read(reader, owner, slot, position):
            continue
        if position < reader.tokens:
            missing.append(position)
        if owner is not None and owner is not reader:
            foreign.add(owner.transfer)
    return Read(reader.transfer, tuple(sorted(foreign)), tuple(missing))


def whose(setup: Setup, slot: int) -> Ask | None:
    """Return the request whose token a slot holds."""
    return setup.asks[(slot - 1) // POSITIONS - 1] if slot > 0 else None


def _may_read(reader: Ask, owner: Ask, slot: int, position: int) -> bool:
    """Own bytes, or the same token of an equal prompt in the same declared scope."""
    if (slot - 1) % POSITIONS != position or position >= reader.tokens:
        return False
    same = bool(reader.content) and reader.content == owner.content
    return owner is reader or (same and bool(reader.scope) and reader.scope == owner.scope)
