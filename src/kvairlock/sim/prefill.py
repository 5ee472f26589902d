"""A prefill process of the simulator: it computes, and writes page by page into granted windows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from kvairlock.core.effects import Digest, DropWindow, Effect, StartCompute, StopCompute, Write
from kvairlock.core.events import ComputeBegan, Computed, Digested, Granted, WriteEnded
from kvairlock.core.guards import GuardSet
from kvairlock.core.memory.pool import Hold
from kvairlock.core.messages import Message, Receipt, Ruling, Withdraw
from kvairlock.core.protocol.prefill import PrefillNode
from kvairlock.core.protocol.pull.lender import LenderNode
from kvairlock.core.terms import NodeName, Pages, Peer, TransferId, WindowId
from kvairlock.sim import flaws
from kvairlock.sim.bytes import page_digests
from kvairlock.sim.engine import BEGINS, Prompt
from kvairlock.sim.outcome import Fault, Violation
from kvairlock.sim.setup import LAYOUT, Ask, Flaw, Setup
from kvairlock.sim.site import Site
from kvairlock.sim.sometimes import BY_HOLD_AT_PREFILL, Rare
from kvairlock.sim.stimuli import Content, GrantParcel, Map, Remote, Store, Unmap, Work

LANDS, WRITE_ENDS, DIGEST, COPY_LANDS = "page lands", "write ends", "digest", "copy lands"
PLACEHOLDER = b"input of a placeholder"


@dataclass(slots=True)
class Writing:
    """A write under way: it goes on to its own terminal status, whatever becomes of its request.

    Args:
        transfer: Which.
        to: Whose window it is.
        pages: The pages to write, in order, shape (pages,).
        rows: How many pages the window has.
        ask: Whose prompt it is: its flaw may be that the write stops before its last page.
        done: How many were written.
    """

    transfer: TransferId
    to: NodeName
    pages: Pages
    rows: int
    ask: Ask
    done: int = 0

    @property
    def left(self) -> int:
        """How many pages are still to be written; none if they are not what was granted."""
        return len(self.pages) - self.done if len(self.pages) <= self.rows else 0


@dataclass(frozen=True, slots=True)
class Echo:
    """The last page of an ended write, of which the transport still has a copy."""

    to: NodeName
    store: Store


class PrefillSite(Site):
    """One life of a prefill node.

    Args:
        setup: The world.
        peer: Which life of which node.
        machine: Its core; that of push if None.
    """

    CARD: ClassVar[frozenset[str]] = frozenset({LANDS})
    HOLDS: ClassVar[dict[Hold, Rare]] = BY_HOLD_AT_PREFILL

    def __init__(
        self, setup: Setup, peer: Peer, machine: PrefillNode | LenderNode | None = None
    ) -> None:
        guards, limits = GuardSet(setup.guards_off), setup.prefill_limits
        self.machine = machine or PrefillNode(setup.report(peer), guards, limits, LAYOUT)
        super().__init__(setup, peer, self.machine)
        self.granted: dict[WindowId, Granted] = {}
        self.writing: dict[WindowId, Writing] = {}
        self.echoes: Echo | None = None

    def menu(self) -> Iterator[Work]:
        """Tasks, chunks, pages to write and writes to end."""
        yield from super().menu()
        for window, writing in self.writing.items():
            if writing.ask.flaw is not Flaw.HANGS or writing.left > 1:
                yield Work(LANDS if writing.left else WRITE_ENDS, window)

    def echo(self) -> Work | None:
        """The copy that the transport still has."""
        return Work(COPY_LANDS, self.echoes.store.window) if self.echoes else None

    def stuck_on(self) -> tuple[NodeName, ...]:
        """This node, if all that is left here is a write that hangs."""
        return (self.peer.node,) if self.writing and not self.machine.jobs else ()

    def hear(self, sender: Peer, content: Content) -> None:
        """Take a grant, or what decode says of one."""
        match content:
            case GrantParcel(granted):
                self._grant(granted)
            case Withdraw() | Ruling():
                self.tell_of(sender, content)
            case _:
                self.violate(Fault.HOST, f"heard {type(content).__name__}")

    def _grant(self, granted: Granted) -> None:
        # The host drops a second file for a window that it has, as the real one does.
        if granted.window not in self.granted and granted.window not in self.writing:
            self.granted[granted.window] = granted
            self.out.remote.append((granted.decode.node, Map(granted.window)))
        self.tell(granted)

    def perform(self, effect: Effect) -> None:
        """Start and stop prompts, digest, write."""
        match effect:
            case StartCompute(transfer, table, start, stop):
                ask = self._ask(transfer)
                self.prompts.start(transfer, Prompt(ask, table, start, stop, ask.flaw))
            case StopCompute(transfer):
                self.prompts.stop(transfer)
            case Digest(transfer):
                self.tasks[Work(DIGEST, transfer)] = effect
            case Write():
                self._write(effect)
            case DropWindow(_, window):
                granted = self.granted.pop(window, None)
                if granted is not None:
                    self.out.remote.append((granted.decode.node, Unmap(window)))
            case _:
                self.violate(Fault.HOST, f"was asked for {type(effect).__name__}")

    def _ask(self, transfer: TransferId) -> Ask:
        """The request whose prompt was given along with a transfer."""
        return self.setup.asked_with(self.machine.jobs[transfer].asked.presented.input_digest)

    def _write(self, effect: Write) -> None:
        granted, ask = self.granted.pop(effect.window), self._ask(effect.transfer)
        pages = effect.pages[::-1] if ask.flaw is Flaw.ORDER else effect.pages
        self.writing[effect.window] = Writing(
            transfer=effect.transfer,
            to=granted.decode.node,
            pages=pages,
            rows=granted.window_pages,
            ask=ask,
        )
        if ask.flaw is Flaw.EARLY:
            early = flaws.early_receipt(self.machine.jobs[effect.transfer], LAYOUT)
            self.out.posts.append((granted.decode.node, early))

    def send(self, to: NodeName, message: Message) -> None:
        """State what was done, or what a flaw has in its place."""
        if isinstance(message, Receipt) and message.digests:
            ask = self._ask(message.transfer)
            message = flaws.retold(self.setup, ask, message)
            if ask.flaw is Flaw.EARLY:
                return  # It was sent before.
        super().send(to, message)

    # The engine

    def compute(self, work: Work) -> None:
        """Begin or end a chunk."""
        name = TransferId(work.subject)
        if work.kind == BEGINS:
            self.prompts.begin(name)
            self.tell(ComputeBegan(name))
        else:
            prompt = self.prompts.end(self.setup, self.memory, name)
            self.tell(Computed(name, prompt.stop))

    def carry_out(self, effect: Effect) -> None:
        """Digest sealed pages."""
        if isinstance(effect, Digest):
            digests = page_digests(self.memory, effect.pages, effect.seed)
            self.tell(Digested(effect.transfer, digests, self._input_digest(effect.transfer)))

    def _input_digest(self, transfer: TransferId) -> bytes:
        """The digest of what was fed to the engine: a placeholder's if not the whole prompt."""
        job = self.machine.jobs.get(transfer)
        if job is None or job.stop != job.asked.presented.prompt_tokens:
            return PLACEHOLDER
        return job.asked.presented.input_digest

    # The writer

    def work(self, work: Work) -> None:
        """Let a page land, end a write, or do what all sites do."""
        match work.kind:
            case "page lands":
                self._land(WindowId(work.subject))
            case "write ends":
                self._end_write(WindowId(work.subject))
            case "copy lands":
                self._land_copy()
            case _:
                super().work(work)

    def _land(self, window: WindowId) -> None:
        writing = self.writing[window]
        slots = self.memory[writing.pages[writing.done]]
        if writing.ask.flaw is Flaw.TORN and writing.left == 1:
            slots = flaws.torn(self.setup, writing.ask, slots)
        self.out.remote.append((writing.to, Store(window, writing.done, tuple(slots.tolist()))))
        writing.done += 1

    def _end_write(self, window: WindowId) -> None:
        writing = self.writing.pop(window)
        if self.setup.copies and writing.done:
            slots = self.memory[writing.pages[writing.done - 1]]
            store = Store(window, writing.done - 1, tuple(slots.tolist()))
            self.echoes = Echo(writing.to, store)
        self.out.remote.append((writing.to, Unmap(window)))
        done = writing.done == len(writing.pages)
        stored = writing.done * self.setup.page_tokens
        self.tell(WriteEnded(writing.transfer, window, done, stored))

    def _land_copy(self) -> None:
        if self.echoes is not None:
            self.out.remote.append((self.echoes.to, self.echoes.store))
        self.echoes = None

    def touched(self, remote: Remote) -> None:
        """Nobody reaches into a prefill node in this direction."""
        self.violate(Fault.HOST, f"{remote} from outside")

    def mapped(self) -> Iterator[tuple[NodeName, WindowId]]:
        """The windows that this process has mapped: they are let go with it."""
        for window, granted in self.granted.items():
            yield granted.decode.node, window
        for window, writing in self.writing.items():
            yield writing.to, window

    def left_behind(self) -> list[Violation]:
        """Jobs, windows, writes, holds, and pages that are neither free nor kept."""
        machine, pool = self.machine, self.machine.books.pool
        books = (machine.jobs, machine.queue, machine.closing, self.granted, self.writing)
        opened = sum(map(len, books)) + len(self.prompts)
        return self.lost(opened, pool.pages - pool.pages_free - machine.prefixes.pages)
