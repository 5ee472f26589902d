"""One simulated process: the real core's node, memory of slots, and work that waits for its turn.

    stimulus -> take -> outcome: what was sent, what was done to another's memory, what was read

A site is a value: it can be written down between turns, and its next state depends on nothing but
itself and the stimulus. So a turn that was computed once in some world is known in all others.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from kvairlock.core.effects import CopyPages, Effect, Record, Scrub, Send, ZeroTail
from kvairlock.core.errors import KvairlockError
from kvairlock.core.events import Event, ScrubDone, Told
from kvairlock.core.guards import Guard
from kvairlock.core.memory.pool import Hold
from kvairlock.core.messages import (
    Ended,
    Lent,
    Message,
    Receipt,
    Release,
    Released,
    Returned,
    Ruling,
    Validate,
    Validated,
    Withdraw,
)
from kvairlock.core.node import Machine, Node
from kvairlock.core.terms import NS_PER_MS, Instant, NodeName, Peer, WindowId
from kvairlock.sim.bytes import Read, Slots
from kvairlock.sim.engine import BEGINS, ENDS, Prompts
from kvairlock.sim.outcome import Ending, Fault, Outcome, Violation
from kvairlock.sim.setup import GATEWAY, Setup
from kvairlock.sim.sometimes import Rare, held_after_end, seen_in
from kvairlock.sim.stimuli import (
    Content,
    Expire,
    Hear,
    Remote,
    Stimulus,
    Tell,
    Wake,
    Work,
)

Said = Withdraw | Released | Receipt | Ruling | Lent | Validate | Validated | Release | Returned
"""What nodes say to each other that needs no more than itself."""

SCRUB = "scrub"
START = Instant(1_000 * NS_PER_MS)
ASLEEP_MS = 1_000_000
"""How long a suspended site sleeps: over every deadline."""


class Site:
    """What all kinds of sites have in common.

    Args:
        setup: The world.
        peer: Which life of which node this is.
        machine: Its core.
    """

    EAGER: ClassVar[frozenset[str]] = frozenset()
    """Kinds of work that touch nothing which another order could show: done at once."""
    CARD: ClassVar[frozenset[str]] = frozenset()
    """Kinds of work that the network card does, whether or not its process is suspended."""
    HOLDS: ClassVar[dict[Hold, Rare]] = {}
    """What it means if somebody is still at the pages of an ended lease."""

    out: Outcome
    """What the turn that is under way has led to so far."""

    def __init__(self, setup: Setup, peer: Peer, machine: Machine) -> None:
        self.setup, self.peer = setup, peer
        self.node: Node = Node(machine)
        pages = machine.books.report.pages
        self.memory: Slots = np.zeros((pages, setup.page_tokens), dtype=np.int32)
        self.now = START
        self.tasks: dict[Work, Effect] = {}
        self.prompts = Prompts()

    def take(self, stimulus: Stimulus) -> Outcome:
        """Let something happen, and return what it led to."""
        self.out = Outcome()
        try:
            self._take(stimulus)
            self._work_eagerly()
        except (KvairlockError, LookupError, ValueError, TypeError, AttributeError) as error:
            self.violate(Fault.HOST, f"raised {type(error).__name__}: {error}")
        self._look_at_records()
        self.out.sometimes += held_after_end(self.node.machine.books.pool, self.HOLDS)
        self.watch()
        self._forget_counters()
        out = self.out
        del self.out  # Between turns there is none: states differ in what decides, and no more.
        return out

    def menu(self) -> Iterator[Work]:
        """The work that waits, in a fixed order."""
        yield from self.tasks
        yield from self.prompts.menu()

    def echo(self) -> Work | None:
        """A copy of an ended write that may land once more, if there is one."""
        return None

    def mapped(self) -> Iterator[tuple[NodeName, WindowId]]:
        """Windows of others that this process has mapped: they are let go with it."""
        yield from ()

    def forgeries(self) -> tuple[Hear, ...]:
        """What somebody who knows everything but the key could make this site hear."""
        return ()

    def stuck_on(self) -> tuple[NodeName, ...]:
        """Nodes, maybe this one, for the end of whose processes memory waits, and nothing else."""
        return ()

    def _take(self, stimulus: Stimulus) -> None:
        match stimulus:
            case Hear(sender, content):
                self.hear(sender, content)
            case Work():
                self.work(stimulus)
            case Expire():
                self._expire()
            case Wake():
                self.now = Instant(self.now + ASLEEP_MS * NS_PER_MS)
                self._expire()
            case Tell(event):
                self.tell(event)
            case _:
                self.touched(stimulus)

    def _expire(self) -> None:
        deadline = self.node.deadline()
        if deadline is not None:
            self.now = max(self.now, deadline)
            self._perform(self.node.tick(self.now))

    def tell(self, event: Event) -> None:
        """Let the core take an event, and carry out what it wants."""
        self._perform(self.node.handle(event, self.now))

    def tell_of(self, sender: Peer, message: Said) -> None:
        """Let the core take a message that needs no more than itself."""
        self.tell(Told(sender, message))

    def _perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            self._common(effect)

    def _common(self, effect: Effect) -> None:
        match effect:
            case Record():
                self.out.records.append(effect)
            case Send(to, message):
                self.send(to, message)
            case ZeroTail(page, used_tokens):
                self.memory[page, used_tokens:] = 0
            case CopyPages(source, target):
                self.memory[target] = self.memory[source]
            case Scrub():
                pages = ",".join(map(str, effect.fenced.pages.tolist()))
                self.tasks[Work(SCRUB, pages)] = effect
            case _:
                self.perform(effect)

    def send(self, to: NodeName, message: Message) -> None:
        """Put a message on its wire; what the gateway is told arrives at once."""
        if to != GATEWAY.node:
            self.out.posts.append((to, message))
        elif isinstance(message, Ended):
            reason = message.refusal.reason.value if message.refusal else ""
            self.out.endings.append(Ending(message.transfer, message.end.value, reason))

    def work(self, work: Work) -> None:
        """Do work that waits."""
        if work.kind in (BEGINS, ENDS):
            self.compute(work)
            return
        effect = self.tasks.pop(work)
        if isinstance(effect, Scrub):
            self.memory[effect.fenced.pages] = 0
            self.tell(ScrubDone(effect.fenced))
        else:
            self.carry_out(effect)

    def _work_eagerly(self) -> None:
        while eager := next((work for work in self.tasks if self._is_eager(work)), None):
            self.work(eager)

    def _is_eager(self, work: Work) -> bool:
        return work.kind in self.EAGER or (work.kind == SCRUB and not self.setup.slow_scrubs)

    def _look_at_records(self) -> None:
        self.out.sometimes += seen_in(self.out.records)
        for record in self.out.records:
            if record.event == "invariant_broken":
                self.violate(Fault.INVARIANT, str(record.fields["detail"]))

    def found(self, read: Read) -> None:
        """Judge what a request read."""
        if read.foreign:
            self.violate(Fault.LEAK, f"{read.reader} read bytes of {', '.join(read.foreign)}")
        elif read.missing:
            positions = ", ".join(map(str, read.missing))
            self.violate(Fault.CORRUPTION, f"{read.reader} did not find its tokens {positions}")

    def violate(self, fault: Fault, detail: str) -> None:
        """Note what must never be."""
        self.out.violations.append(Violation(fault, f"{self.peer.node}: {detail}"))

    def reached(self, rare: Rare) -> None:
        """Note that a rare state was reached."""
        self.out.sometimes.append(rare)

    def _forget_counters(self) -> None:
        """Drop figures that only ever grow: they are told, and decide nothing."""
        self.node.machine.books.counters.clear()
        self.node.machine.books.reads.clear()
        self.node.machine.books.drain.fences.clear()
        self.node.machine.books.drain.window_fences.clear()

    def lost(self, books: int, pages: int) -> list[Violation]:
        """Say what is left behind, if anything is.

        Args:
            books: How many things are still open.
            pages: How many pages are neither free nor kept on purpose.
        """
        free = self.node.machine.books.pool.free_list
        dirty = self.setup.on(Guard.SCRUB) and bool(np.any(self.memory[free]))
        if not books and not pages and not dirty:
            return []
        found = f"{self.peer.node}: {pages} pages lost, {books} things left"
        return [Violation(Fault.PAGES_LOST, found + (", free pages not zeroed" if dirty else ""))]

    # For each kind of site

    def hear(self, sender: Peer, content: Content) -> None:
        """Take a message."""
        raise NotImplementedError

    def touched(self, remote: Remote) -> None:
        """Another process does something to this site's memory."""
        raise NotImplementedError

    def perform(self, effect: Effect) -> None:
        """Carry out what only this kind of site does."""
        raise NotImplementedError

    def carry_out(self, effect: Effect) -> None:
        """Do a task that waited."""
        raise NotImplementedError

    def compute(self, work: Work) -> None:
        """Begin or end a chunk of a prompt."""
        raise NotImplementedError

    def watch(self) -> None:
        """Look for rare states after a turn."""

    def left_behind(self) -> list[Violation]:
        """What is not as it was at the start, once nothing is to be done any more."""
        raise NotImplementedError
