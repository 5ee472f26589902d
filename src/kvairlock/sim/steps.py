"""The engine of a decode site: steps over a batch, each reads what its page tables name.

A step that was begun ends: it stores a token for each request that was in it, whatever has become
of that request since.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from kvairlock.core.events import DecodeFinished, Event, StepBegan, StepEnded
from kvairlock.core.terms import Pages, TransferId
from kvairlock.sim.bytes import Read, Slots, put, read
from kvairlock.sim.engine import generated_slot
from kvairlock.sim.setup import Ask, Setup
from kvairlock.sim.stimuli import Work

BEGIN, END = "step begins", "step ends"


class Host(Protocol):
    """What a step needs of its site."""

    setup: Setup
    memory: Slots

    def tell(self, event: Event) -> None:
        """Let the core take an event."""

    def found(self, read: Read) -> None:
        """Judge what a request read."""


@dataclass(slots=True)
class Running:
    """A request in the engine.

    Args:
        reader: Whose prompt it must find.
        table: Its pages in token order, shape (pages,).
        most: Tokens to generate.
        steps: How many it has.
    """

    reader: Ask
    table: Pages
    most: int
    steps: int = 0


class Steps:
    """The batch, and the step that is under way."""

    def __init__(self) -> None:
        self.running: dict[TransferId, Running] = {}
        self.batch: tuple[TransferId, ...] = ()
        """Whom the core was asked about."""
        self.under_way: dict[TransferId, Running] = {}
        """Who is in the step."""
        self.asks = False

    def __len__(self) -> int:
        """Return how many requests are in the engine."""
        return len(self.running) + len(self.batch)

    def start(self, name: TransferId, table: Pages, reader: Ask, most: int) -> None:
        """Take a request into the batch."""
        self.running[name] = Running(reader, table, most)

    def stop(self, name: TransferId, deaf: bool) -> None:
        """Take a request out of the batch; a deaf engine does so only where it asks."""
        if self.asks or not deaf:
            self.running.pop(name, None)

    def menu(self) -> Iterator[Work]:
        """What can happen next."""
        if self.batch:
            yield Work(END)
        elif self.running:
            yield Work(BEGIN)

    def begin(self, host: Host) -> None:
        """Ask the core about the batch, then read the prompt of each that is left in it."""
        self.batch, self.asks = tuple(self.running), True
        host.tell(StepBegan(self.batch))
        self.asks = False
        self.under_way = {name: self.running[name] for name in self.batch if name in self.running}
        for running in self.under_way.values():
            tail = not running.steps
            host.found(read(host.setup, host.memory, running.table, running.reader, tail))

    def end(self, host: Host) -> None:
        """Store a token for each that was in the step, and finish who has all of them."""
        for running in self.under_way.values():
            self._generate(host, running)
        names, self.batch, self.under_way = self.batch, (), {}
        host.tell(StepEnded(names, (1,) * len(names)))
        for name in names:
            left = self.running.get(name)
            if left is not None and left.steps == left.most:
                del self.running[name]
                host.tell(DecodeFinished(name))

    def _generate(self, host: Host, running: Running) -> None:
        position = running.reader.tokens + running.steps
        if position < len(running.table) * host.setup.page_tokens:
            slot = generated_slot(host.setup, running.reader, position)
            put(host.memory, running.table, position, slot)
        running.steps += 1
