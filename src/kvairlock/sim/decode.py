"""A decode process of the simulator: windows of slots, and an engine that reads its page tables."""

from __future__ import annotations

from collections.abc import Iterator, Sized
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from kvairlock.core.effects import (
    CloseWindow,
    Effect,
    Land,
    OpenWindow,
    ProbeWindow,
    StartCompute,
    StartDecode,
    StopCompute,
    StopDecode,
)
from kvairlock.core.events import (
    ComputeBegan,
    Computed,
    Granted,
    Landed,
    Presented,
    WindowFenced,
)
from kvairlock.core.guards import GuardSet
from kvairlock.core.memory.page import PageStage
from kvairlock.core.memory.pool import Hold
from kvairlock.core.memory.windows import Window as CoreWindow
from kvairlock.core.messages import Receipt, Released
from kvairlock.core.protocol.decode import DecodeNode
from kvairlock.core.protocol.handoff import HandoffStage
from kvairlock.core.terms import Fence, LandingPolicy, NodeName, Pages, Peer, TransferId, WindowId
from kvairlock.sim.bytes import Slots, page_digests
from kvairlock.sim.engine import BEGINS, Prompt
from kvairlock.sim.forger import forged_receipt
from kvairlock.sim.outcome import Fault, Violation
from kvairlock.sim.setup import LAYOUT, UNIX_S, Ask, Setup, page_keys
from kvairlock.sim.site import Site
from kvairlock.sim.sometimes import BY_HOLD_AT_DECODE, Rare
from kvairlock.sim.steps import BEGIN, END, Steps
from kvairlock.sim.stimuli import Content, GrantParcel, Hear, Map, Remote, Store, Unmap, Work

LANDING, PROBE = "landing", "probe"


@dataclass(slots=True)
class Window:
    """Memory that a writer may store into.

    Args:
        transfer: What it was granted for.
        slots: What it holds: a file of its own, or empty where the window is the pool itself.
        pages: The pool pages that it is for, shape (pages,).
        writers: How many processes have it mapped.
        sealed: Whether the kernel refuses further writers.
    """

    transfer: TransferId
    slots: Slots
    pages: Pages
    writers: int = 0
    sealed: bool = False


class DecodeSite(Site):
    """One life of a decode node.

    Args:
        setup: The world.
        peer: Which life of which node.
        machine: Its core; that of push if None.
    """

    EAGER: ClassVar[frozenset[str]] = frozenset({PROBE})
    HOLDS: ClassVar[dict[Hold, Rare]] = BY_HOLD_AT_DECODE

    def __init__(self, setup: Setup, peer: Peer, machine: DecodeNode | None = None) -> None:
        self.machine = machine or DecodeNode(
            setup.report(peer),
            GuardSet(setup.guards_off),
            setup.decode_limits,
            setup.policy,
            LAYOUT,
        )
        super().__init__(setup, peer, self.machine)
        self.windows: dict[WindowId, Window] = {}
        self.steps = Steps()

    def menu(self) -> Iterator[Work]:
        """Tasks, chunks of a prompt that is computed here, steps of the batch."""
        yield from super().menu()
        yield from self.steps.menu()

    def forgeries(self) -> tuple[Hear, ...]:
        """Receipts of success for windows into which nothing was written."""
        waiting = (r for r in self.machine.receptions.values() if r.window is not None)
        return tuple(
            Hear(reception.transfer.window.writer, forged_receipt(self.setup, reception))
            for reception in waiting
            if reception.stage is HandoffStage.GRANTED
        )

    def stuck_on(self) -> tuple[NodeName, ...]:
        """Writers of windows that nothing but their end fences, if those are all that is left."""
        draining = self.machine.windows.draining()
        if self.machine.receptions or any(map(self._may_seal, draining)):
            return ()
        return tuple(dict.fromkeys(window.writer.node for window in draining))

    def _may_seal(self, window: CoreWindow) -> bool:
        return self.setup.policy is not LandingPolicy.DIRECT and not self.windows[window.id].writers

    def hear(self, sender: Peer, content: Content) -> None:
        """Take what prefill says."""
        match content:
            case Receipt() | Released():
                self.tell_of(sender, content)
            case _:
                self.violate(Fault.HOST, f"heard {type(content).__name__}")

    # Windows

    def perform(self, effect: Effect) -> None:
        """Open, land, probe and close windows; start and stop to compute and to generate."""
        match effect:
            case OpenWindow():
                self._open(effect)
            case Land(transfer):
                self.tasks[Work(LANDING, transfer)] = effect
            case ProbeWindow(window):
                self.tasks[Work(PROBE, window)] = effect
            case CloseWindow(window):
                if self.windows.pop(window, None) is None:
                    self.violate(Fault.HOST, f"{window} was closed, and is not open")
            case StartDecode():
                self._start_decode(effect)
            case StopDecode(transfer):
                self.steps.stop(transfer, deaf=self.setup.deaf_engine)
            case StartCompute(transfer, table, start, stop):
                self.prompts.start(transfer, Prompt(self._given(transfer), table, start, stop))
            case StopCompute(transfer):
                self.prompts.stop(transfer)
            case _:
                self.violate(Fault.HOST, f"was asked for {type(effect).__name__}")

    def _start_decode(self, effect: StartDecode) -> None:
        """Give a request to the engine: it reads what it presented, whoever it is for."""
        asked = self.machine.receptions[effect.transfer].asked
        own = effect.attached == effect.transfer
        reader = self._given(effect.transfer) if own else self.setup.ask(asked.transfer)
        self.steps.start(effect.transfer, effect.tables[0], reader, asked.max_tokens)

    def _given(self, transfer: TransferId) -> Ask:
        """The request whose prompt was given along with a transfer."""
        presented = self.machine.receptions[transfer].asked.presented
        return self.setup.asked_with(presented.input_digest)

    def _open(self, effect: OpenWindow) -> None:
        pages = effect.pages
        size = 0 if self.setup.policy is LandingPolicy.DIRECT else len(pages)
        slots = np.zeros((size, self.setup.page_tokens), dtype=np.int32)
        self.windows[effect.window] = Window(effect.transfer, slots, pages)
        reception, given = self.machine.receptions[effect.transfer], self._given(effect.transfer)
        tenant = reception.asked.presented.tenant
        granted = Granted(
            transfer=effect.transfer,
            presented=Presented(reception.ticket, tenant, given.digest, given.tokens, UNIX_S),
            decode=self.peer,
            window=effect.window,
            window_pages=len(pages),
            generations=effect.generations,
            layout=LAYOUT,
            seed=effect.seed,
            patience_ms=effect.patience_ms,
            page_keys=page_keys(given, self.setup.page_tokens),
        )
        self.out.posts.append((effect.to, GrantParcel(granted)))

    def touched(self, remote: Remote) -> None:
        """A remote process maps, stores into, or lets go of a window."""
        window = self.windows.get(remote.window)
        if isinstance(remote, Store) and remote.slots is not None:
            self._note_late(remote.window, window)
            if window is not None and not window.sealed:
                self._store(window, remote.row, remote.slots)
        elif window is None:
            return  # The file lives on for its writer; nobody here can see it any more.
        elif isinstance(remote, Map):
            window.writers += 1
        elif isinstance(remote, Unmap):
            window.writers -= 1

    def _note_late(self, name: WindowId, window: Window | None) -> None:
        """Note what a write finds that comes when its request has moved on."""
        owners = [r for r in self.machine.receptions.values() if r.asked.window == name]
        if any(r.stage is HandoffStage.CONFIRMED for r in owners):
            self.reached(Rare.LATE_WRITE_AFTER_SUCCESS)
        elif window is not None and not owners:
            self.reached(Rare.LATE_WRITE_DRAINING)
            stages = self.machine.books.pool.stage[window.pages]
            if not len(window.slots) and np.any(stages == PageStage.QUARANTINED):
                self.reached(Rare.LATE_WRITE_QUARANTINED)

    def _store(self, window: Window, row: int, slots: tuple[int, ...]) -> None:
        if len(window.slots):
            window.slots[row] = slots
        else:
            self.memory[window.pages[row]] = slots

    def carry_out(self, effect: Effect) -> None:
        """Land a window, or look for evidence on one."""
        match effect:
            case Land():
                self.tell(Landed(effect.transfer, self._landed(effect)))
            case ProbeWindow(window):
                self._probe(window)

    def _landed(self, effect: Land) -> tuple[int, ...] | None:
        window = self.windows.get(effect.window)
        if window is None:
            self.violate(Fault.HOST, f"{effect.window} was closed while it is landed")
            return None
        if self.setup.policy is LandingPolicy.SEAL:
            if window.writers:
                self.reached(Rare.WRITER_KEEPS_WINDOW)
                return None
            window.sealed = True
        if self.setup.policy is not LandingPolicy.DIRECT:
            self.memory[effect.pages] = window.slots
        return page_digests(self.memory, effect.digested, effect.seed)

    def _probe(self, name: WindowId) -> None:
        window = self.windows.get(name)
        if window is None or window.writers or self.setup.policy is LandingPolicy.DIRECT:
            return
        window.sealed = True
        self.tell(WindowFenced(name, Fence.SEALED))

    # The engine

    def work(self, work: Work) -> None:
        """Begin or end a step, or do what all sites do."""
        if work.kind == BEGIN:
            self.steps.begin(self)
        elif work.kind == END:
            self.steps.end(self)
        else:
            super().work(work)

    def compute(self, work: Work) -> None:
        """Begin or end a chunk of a prompt that is computed here."""
        name = TransferId(work.subject)
        if work.kind == BEGINS:
            self.prompts.begin(name)
            self.tell(ComputeBegan(name))
        else:
            prompt = self.prompts.end(self.setup, self.memory, name)
            self.tell(Computed(name, prompt.stop))

    def watch(self) -> None:
        """Note who waits while the last pages drain, and who was served before whom."""
        machine = self.machine
        waits = [r for r in machine.receptions.values() if r.stage is HandoffStage.OFFERED]
        if not waits:
            return
        if machine.books.drain.waiting and not machine.books.pool.pages_free:
            self.reached(Rare.DRAIN_UNDER_FULL_POOL)
        first = next(i for i, r in enumerate(machine.receptions.values()) if r is waits[0])
        allocated = {r.owner for r in self.out.records if r.event == "pages_allocated"}
        if any(r.owner in allocated for r in list(machine.receptions.values())[first:]):
            self.reached(Rare.FAIRNESS)

    def left_behind(self) -> list[Violation]:
        """Requests, windows, holds, and pages that are not free, or not zeroed."""
        machine, pool = self.machine, self.machine.books.pool
        books: tuple[Sized, ...] = (
            machine.receptions,
            machine.queue,
            machine.holding,
            self.windows,
            self.steps,
        )
        opened = sum(map(len, books)) + len(machine.windows) + len(self.prompts)
        return self.lost(opened, pool.pages - pool.pages_free)
