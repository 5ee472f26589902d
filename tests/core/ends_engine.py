"""What both kinds of fake hosts do alike: effects in order, tasks on word, and a prompt engine.

The engine computes a prompt chunk by chunk, as the real one does: it asks before each chunk, and a
chunk that was begun ends, whatever became of its request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import numpy as np

from kvairlock.core.effects import (
    CopyPages,
    Effect,
    Record,
    Scrub,
    Send,
    StartCompute,
    ZeroTail,
)
from kvairlock.core.events import ComputeBegan, Computed, EngineFailed, Event, ScrubDone
from kvairlock.core.node import Node
from kvairlock.core.terms import Peer, TransferId
from tests.core.ends_parts import (
    PAGE_BYTES,
    PAGE_TOKENS,
    SLOT_BYTES,
    Bytes,
    Computing,
    Parcel,
    Request,
    Task,
    slot_bytes,
)

if TYPE_CHECKING:
    from tests.core.ends import World


class Host:
    """What both kinds of fake hosts have in common."""

    def __init__(self, world: World, peer: Peer, node: Node, pages: int) -> None:
        self.world, self.peer, self.node = world, peer, node
        self.memory: Bytes = np.zeros((pages, PAGE_BYTES), dtype=np.uint8)
        self.tasks: list[Task] = []
        self.records: list[Record] = []
        self.faults: list[str] = []

    @property
    def counters(self) -> dict[str, int]:
        return dict(self.node.machine.books.counters)

    def tell(self, event: Event) -> None:
        self._perform(self.node.handle(event, self.world.now))

    def tick(self) -> None:
        self._perform(self.node.tick(self.world.now))

    def slot(self, page: int, index: int) -> Bytes:
        begin = index * SLOT_BYTES
        view: Bytes = self.memory[page, begin : begin + SLOT_BYTES]
        return view

    def tags(self, pages: Iterable[int]) -> set[int]:
        """Tags in any slot of these pages, zero left out."""
        rows = self.memory[np.array(list(pages), dtype=np.int64)]
        found: set[int] = set(rows.reshape(-1, SLOT_BYTES)[:, 0].tolist())
        return found - {0}

    def task(self, kind: str, transfer: TransferId, run: Callable[[], None]) -> None:
        self.tasks.append(Task(kind, transfer, run))

    def _perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            self._common(effect)
        self.world.work()

    def _common(self, effect: Effect) -> None:
        match effect:
            case Send(to, message):
                self.world.post(self.peer, to, message)
            case ZeroTail(page, used):
                self.memory[page, used * SLOT_BYTES :] = 0
            case CopyPages(source, target):
                self.memory[target] = self.memory[source]
            case Scrub():
                self.task("scrub", TransferId(""), lambda: self._scrub(effect))
            case Record():
                self.records.append(effect)
            case _:
                self.do(effect)

    def _scrub(self, effect: Scrub) -> None:
        self.memory[effect.fenced.pages] = 0
        self.tell(ScrubDone(effect.fenced))

    def do(self, effect: Effect) -> None:
        raise NotImplementedError

    def hear(self, parcel: Parcel) -> None:
        raise NotImplementedError


class PromptHost(Host):
    """A host with a fake engine that fills pages with prompts."""

    def __init__(self, world: World, peer: Peer, node: Node, pages: int) -> None:
        super().__init__(world, peer, node, pages)
        self.computing: dict[TransferId, Computing] = {}
        self.computes_as: dict[TransferId, Request] = {}
        """Fault: fill the pages of a transfer with another request's prompt."""
        self.computes_nothing: set[TransferId] = set()
        """Fault: report the pages of a transfer as computed, and leave what they hold."""

    def prompt_of(self, transfer: TransferId) -> Request:
        """The prompt that this host was given for an open transfer."""
        raise NotImplementedError

    def slot_of(self, content: Request, position: int) -> Bytes:
        """What the engine stores for one token of a prompt."""
        token = content.tokens[position] if position < len(content.tokens) else 0
        return slot_bytes(content.tag, position, token)

    def compute_begin(self, transfer: TransferId) -> None:
        self.computing[transfer].begun = True
        self.tell(ComputeBegan(transfer))

    def compute_end(self, transfer: TransferId, tokens: int | None = None) -> None:
        job = self.computing[transfer]
        end = job.stop if tokens is None else min(job.position + tokens, job.stop)
        if transfer not in self.computes_nothing:
            self._fill(transfer, job, end)
        job.position, job.begun = end, False
        if job.stopped or end == job.stop:
            del self.computing[transfer]
        self.tell(Computed(transfer, end))

    def compute(self, transfer: TransferId, tokens: int | None = None) -> None:
        self.compute_begin(transfer)
        self.compute_end(transfer, tokens)

    def compute_fails(self, transfer: TransferId) -> None:
        """The engine raises in the middle of a chunk that was begun."""
        job = self.computing.pop(transfer)
        assert job.begun, "only a chunk can fail"
        self.tell(EngineFailed(transfer, "it raised"))

    def _start_compute(self, effect: StartCompute) -> None:
        if effect.start < effect.stop:
            content = self.prompt_of(effect.transfer)
            job = Computing(content, effect.table, effect.start, effect.stop)
            self.computing[effect.transfer] = job

    def _stop_compute(self, transfer: TransferId) -> None:
        job = self.computing.get(transfer)
        if job is not None and job.begun:
            job.stopped = True
        else:
            self.computing.pop(transfer, None)

    def _fill(self, transfer: TransferId, job: Computing, end: int) -> None:
        content = self.computes_as.get(transfer, job.content)
        for position in range(job.position, end):
            page = int(job.table[position // PAGE_TOKENS])
            self.slot(page, position % PAGE_TOKENS)[:] = self.slot_of(content, position)
