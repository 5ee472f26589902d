"""The fake hosts: effects are carried out in order, and slow work waits for the test's word."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kvairlock.core.effects import (
    CloseWindow,
    Digest,
    DropWindow,
    Effect,
    Land,
    OpenWindow,
    ProbeWindow,
    StartCompute,
    StartDecode,
    StopCompute,
    StopDecode,
    Write,
)
from kvairlock.core.events import (
    DecodeFinished,
    Digested,
    Granted,
    Landed,
    StepBegan,
    StepEnded,
    Told,
    WindowFailed,
    WindowFenced,
    WriteEnded,
)
from kvairlock.core.messages import (
    Cancel,
    Receipt,
    Released,
    Ruling,
    Withdraw,
)
from kvairlock.core.node import Node
from kvairlock.core.protocol.decode import DecodeNode
from kvairlock.core.protocol.prefill import PrefillNode
from kvairlock.core.terms import (
    Fence,
    LandingPolicy,
    Pages,
    Peer,
    TransferId,
    WindowId,
)
from kvairlock.transport.checksums import page_digests
from tests.core.ends_engine import PromptHost
from tests.core.ends_parts import (
    OTHER_LAYOUT,
    PAGE_BYTES,
    PAGE_TOKENS,
    Bytes,
    GrantParcel,
    Parcel,
    Request,
    Running,
    WindowFile,
    Writing,
    slot_bytes,
)

if TYPE_CHECKING:
    from tests.core.ends import World


class PrefillHost(PromptHost):
    """A prefill node with a fake engine and a fake writer."""

    def __init__(self, world: World, peer: Peer, machine: PrefillNode) -> None:
        super().__init__(world, peer, Node(machine), machine.books.report.pages)
        self.machine = machine
        self.windows: dict[WindowId, WindowFile] = {}
        self.grants: dict[TransferId, Granted] = {}
        self.writing: list[Writing] = []
        self.writes_pages: dict[TransferId, tuple[int, ...]] = {}
        """Fault: write only these pages of the table, in this order."""

    def hear(self, parcel: Parcel) -> None:
        content = parcel.content
        match content:
            case GrantParcel(granted, file):
                file.mapped = True
                self.windows[granted.window] = file
                self.grants[granted.transfer] = granted
                self.tell(granted)
            case Withdraw() | Ruling():
                self.tell(Told(parcel.sender, content))
            case _:
                raise AssertionError(content)

    def do(self, effect: Effect) -> None:
        match effect:
            case StartCompute():
                self._start_compute(effect)
            case StopCompute(transfer):
                self._stop_compute(transfer)
            case Digest(transfer, pages, seed):
                self.task("digest", transfer, lambda: self._digest(transfer, pages, seed))
            case Write(transfer, window, pages):
                self._submit(transfer, window, pages)
            case DropWindow(_, window):
                self._drop(window)
            case _:
                raise AssertionError(effect)

    def _digest(self, transfer: TransferId, pages: Pages, seed: int) -> None:
        job = self.machine.jobs.get(transfer)
        fed = job.asked.presented if job else None
        whole = fed is not None and job is not None and job.stop == fed.prompt_tokens
        digest = fed.input_digest if fed is not None and whole else b"placeholder"
        self.tell(Digested(transfer, page_digests(self.memory, pages, seed), digest))

    def _drop(self, window: WindowId) -> None:
        if any(w.window == window for w in self.writing):
            self.faults.append(f"window {window} was dropped while it is written")
        file = self.windows.pop(window, None)
        if file is not None:
            file.mapped = False

    # Engine

    def prompt_of(self, transfer: TransferId) -> Request:
        return self.world.by_digest[self.grants[transfer].presented.input_digest]

    def slot_of(self, content: Request, position: int) -> Bytes:
        slot = super().slot_of(content, position)
        return slot[::-1] if self.machine.layout == OTHER_LAYOUT else slot

    # Writer

    def _submit(self, transfer: TransferId, window: WindowId, pages: Pages) -> None:
        file = self.windows[window]
        chosen = self.writes_pages.get(transfer)
        source = pages if chosen is None else pages[list(chosen)]
        writing = Writing(transfer, window, file, source)
        self.writing.append(writing)
        if len(pages) > len(file.rows):
            self.task("write failed", transfer, lambda: self._write_ended(writing, done=False))

    def write_piece(self, transfer: TransferId) -> None:
        """Store one more page, and end the write after the last."""
        writing = next(w for w in self.writing if w.transfer == transfer)
        if writing.file.sealed:
            self._write_ended(writing, done=False)
            return
        row = writing.file.rows[writing.pieces]
        writing.file.array[row] = self.memory[writing.pages[writing.pieces]]
        writing.pieces += 1
        if writing.pieces == len(writing.pages):
            self._write_ended(writing, done=True)

    def write_all(self, transfer: TransferId) -> None:
        while any(w.transfer == transfer for w in self.writing):
            self.write_piece(transfer)

    def write_fails(self, transfer: TransferId) -> None:
        self._write_ended(next(w for w in self.writing if w.transfer == transfer), done=False)

    def _write_ended(self, writing: Writing, *, done: bool) -> None:
        self.writing.remove(writing)
        writing.file.mapped = False
        self.windows.pop(writing.window, None)
        stored = writing.pieces * PAGE_BYTES
        self.tell(WriteEnded(writing.transfer, writing.window, done, stored))


class DecodeHost(PromptHost):
    """A decode node with fake windows and a fake engine that reads what its tables name."""

    def __init__(self, world: World, peer: Peer, machine: DecodeNode) -> None:
        super().__init__(world, peer, Node(machine), machine.books.report.pages)
        self.machine = machine
        self.windows: dict[WindowId, WindowFile] = {}
        self.running: dict[TransferId, Running] = {}
        self.stepping: tuple[TransferId, ...] = ()
        self.deaf = False
        """Fault: the engine keeps its batch until the core is asked at a step."""
        self.fails_windows = False
        """Fault: there is no room for a window."""

    def hear(self, parcel: Parcel) -> None:
        content = parcel.content
        assert isinstance(content, Receipt | Released | Cancel), content
        self.tell(Told(parcel.sender, content))

    def do(self, effect: Effect) -> None:
        match effect:
            case OpenWindow():
                self._open(effect)
            case Land():
                self.task("land", effect.transfer, lambda: self._land(effect))
            case ProbeWindow(window):
                self.task("probe", TransferId(""), lambda: self._probe(window))
            case CloseWindow(window):
                self._close(window)
            case StartDecode(transfer, tables, attached):
                self.running[transfer] = Running(tables, attached)
            case StartCompute():
                self._start_compute(effect)
            case StopCompute(transfer):
                self._stop_compute(transfer)
            case StopDecode(transfer):
                if not self.deaf:
                    self.running.pop(transfer, None)
            case _:
                raise AssertionError(effect)

    def _open(self, effect: OpenWindow) -> None:
        if self.fails_windows:
            failed = WindowFailed(effect.transfer, "no room for a window")
            self.task("window failed", effect.transfer, lambda: self.tell(failed))
            return
        count = len(effect.pages)
        if self.machine.policy is LandingPolicy.DIRECT:
            file = WindowFile(self.memory, effect.pages.copy())
        else:
            fresh = np.zeros((count, PAGE_BYTES), dtype=np.uint8)
            file = WindowFile(fresh, np.arange(count, dtype=np.int32))
        assert effect.window not in self.world.files, "a window is never granted twice"
        self.windows[effect.window] = self.world.files[effect.window] = file
        granted = self.world.granted(self.peer, effect, count)
        self.world.post(self.peer, effect.to, GrantParcel(granted, file))

    def _land(self, effect: Land) -> None:
        file = self.windows.get(effect.window)
        if file is None:
            self.faults.append(f"window {effect.window} was closed while it is landed")
            self.tell(Landed(effect.transfer, None))
            return
        match self.machine.policy:
            case LandingPolicy.SEAL if file.mapped:
                self.tell(Landed(effect.transfer, None))
                return
            case LandingPolicy.SEAL:
                file.sealed = True
                self.memory[effect.pages] = file.array
            case LandingPolicy.COPY:
                self.memory[effect.pages] = file.array
        digests = page_digests(self.memory, effect.digested, effect.seed)
        self.tell(Landed(effect.transfer, digests))

    def _probe(self, window: WindowId) -> None:
        file = self.windows.get(window)
        if self.machine.policy is LandingPolicy.DIRECT or file is None or file.mapped:
            return
        file.sealed = True
        self.tell(WindowFenced(window, Fence.SEALED))

    def _close(self, window: WindowId) -> None:
        if self.windows.pop(window, None) is None:
            self.faults.append(f"window {window} was closed, and is not open")

    # Engine

    def prompt_of(self, transfer: TransferId) -> Request:
        reception = self.machine.receptions[transfer]
        return self.world.by_digest[reception.asked.presented.input_digest]

    def step_begin(self) -> None:
        """Ask the core about the batch, then read the prompt's slots of what is left of it."""
        self.stepping = tuple(self.running)
        was_deaf, self.deaf = self.deaf, False
        self.tell(StepBegan(self.stepping))
        self.deaf = was_deaf
        for name in self.stepping:
            if name in self.running:
                self._read(name)

    def step_end(self) -> None:
        for name in self.stepping:
            if name in self.running:
                self._generate(name)
        names, self.stepping = self.stepping, ()
        self.tell(StepEnded(names, (1,) * len(names)))

    def step(self) -> None:
        self.step_begin()
        self.step_end()

    def _read(self, name: TransferId) -> None:
        for choice, table in enumerate(self.running[name].tables):
            self.world.reads.append(self.world.judge(self, name, choice, table))

    def _generate(self, name: TransferId) -> None:
        """Run the last prompt token again, then append one token of each choice."""
        running, request = self.running[name], self.world.requests[name]
        last = len(request.tokens) - 1
        for choice, table in enumerate(running.tables):
            if running.steps == 0:
                self._put(table, last, slot_bytes(request.tag, last, request.tokens[last]))
            position = last + 1 + running.steps
            self._put(table, position, slot_bytes(request.tag, position, 100 + choice))
        running.steps += 1

    def _put(self, table: Pages, position: int, slot: Bytes) -> None:
        if position < len(table) * PAGE_TOKENS:
            self.slot(int(table[position // PAGE_TOKENS]), position % PAGE_TOKENS)[:] = slot

    def generated_slots(self, name: TransferId, choice: int) -> list[int]:
        """The tokens that a choice finds behind its prompt, one per step."""
        running, prompt = self.running[name], len(self.world.requests[name].tokens)
        table, found = running.tables[choice], []
        for position in range(prompt, prompt + running.steps):
            slot = self.slot(int(table[position // PAGE_TOKENS]), position % PAGE_TOKENS)
            found.append(int(slot[2]))
        return found

    def finish(self, request: Request) -> None:
        self.tell(DecodeFinished(request.transfer))
