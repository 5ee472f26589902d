"""Nodes that speak the real wire over real sockets and answer as a test scripts it.

They run in a loop of their own thread. A script is an async function that gets a `Talk`: one
submitted request, and the means to answer it.
"""

from __future__ import annotations

import queue
import secrets
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import anyio
from anyio.from_thread import BlockingPortal, start_blocking_portal

from kvairlock.core.ends import End
from kvairlock.core.errors import Refusal
from kvairlock.core.messages import (
    Beat,
    Cancel,
    Chunk,
    Drill,
    Ended,
    Inspect,
    Message,
    NodeStatus,
    Rehearse,
    Rehearsed,
    Resize,
    Score,
    Submit,
    Watch,
)
from kvairlock.core.promise.admission import judge
from kvairlock.core.promise.capacity import CapacityReport, Demand
from kvairlock.core.terms import Incarnation, NodeName, Peer, Role, TransferId
from kvairlock.runtime.link import ChannelClosed, Identity, Link, serve
from kvairlock.wire.keys import Keyring
from kvairlock.wire.versions import SPEAKS, Versions

LAYOUT = "fake-layout"
PAGE_TOKENS = 16
PREFILL_TOKENS = 256
DECODE_TOKENS = 512
MODEL_TOKENS = 8192
BEAT_S = 0.03
WAIT_S = 10.0


@dataclass
class Talk:
    """One submitted request, on the decode node's side."""

    link: Link
    submit: Submit
    cancelled: anyio.Event = field(default_factory=anyio.Event)

    async def chunk(
        self, text: bytes, choice: int = 0, finish: str = "", scores: tuple[Score, ...] = ()
    ) -> None:
        await self.link.send(Chunk(self.submit.transfer, choice, 1, text, finish, scores))

    async def end(
        self,
        computed: int = 7,
        generated: int = 3,
        refusal: Refusal | None = None,
        reused: int = 0,
    ) -> None:
        end = End.COMPLETED if refusal is None else End.REJECTED
        ended = Ended(self.submit.transfer, end, refusal, computed, generated, reused, None)
        await self.link.send(ended)

    async def end_as(self, end: End) -> None:
        await self.link.send(Ended(self.submit.transfer, end, None, 0, 0, 0, None))


Script = Callable[[Talk], Awaitable[None]]


async def greet(talk: Talk) -> None:
    """Answer every choice with the same text."""
    for choice in range(talk.submit.choices):
        await talk.chunk(b"hel", choice)
        await talk.chunk(b"lo", choice, "length")
    await talk.end()


async def wait_for_cancel(talk: Talk) -> None:
    """Send one chunk, then nothing until the client's departure is reported."""
    await talk.chunk(b"first")
    await talk.cancelled.wait()
    await talk.end_as(End.CANCELLED)


async def stay_silent(talk: Talk) -> None:
    """Say nothing before the cancel."""
    await talk.cancelled.wait()
    await talk.end_as(End.CANCELLED)


def report(
    name: str, role: Role, tokens: int, incarnation: str = "life-1", context: int = MODEL_TOKENS
) -> CapacityReport:
    """A capacity report of `tokens` slots, all of which may land."""
    pages = tokens // PAGE_TOKENS
    return CapacityReport(
        node=NodeName(name),
        role=role,
        incarnation=Incarnation(incarnation),
        epoch=0,
        fingerprint="fake",
        basis=None,
        page_tokens=PAGE_TOKENS,
        pages=pages,
        landing_pages=pages if role is Role.DECODE else 0,
        windows=0,
        context_tokens=context,
        groups=(),
    )


def status(of: CapacityReport, links: tuple[str, ...] = ()) -> NodeStatus:
    """A status of a node that holds nothing."""
    return NodeStatus(
        report=of,
        pages={"free": max(0, of.pages - 3), "readable": 3},
        windows=2,
        windows_draining=1,
        requests={"decoding": 1},
        links=tuple(NodeName(link) for link in links),
        counters={"admitted": 5},
        fences={"acknowledged": 4},
        window_fences={},
        points=(),
        relaxed=(),
        coverage=(),
        waits=(),
    )


Rehearsal = Callable[["FakeNode", Rehearse], Refusal | None]
"""How a node answers what it would refuse."""


def by_its_figures(node: FakeNode, asked: Rehearse) -> Refusal | None:
    """Answer as a node does that enforces what it reports."""
    demand = Demand(asked.prompt_tokens, asked.max_tokens, asked.choices)
    return judge(node.status().report, demand)


class FakeNode:
    """One fake node; `heard` collects what the gateway said, except its beats."""

    def __init__(
        self, directory: Path, name: str, role: Role, ring: Keyring, tokens: int, links: list[str]
    ) -> None:
        self.path = directory / f"{name}.sock"
        self.name, self.role, self.ring = name, role, ring
        self.tokens, self.links = tokens, tuple(links)
        self.incarnation = secrets.token_hex(4)
        self.reported_name = name
        self.speaks = SPEAKS
        self.script: Script = greet
        self.reported_incarnation = self.incarnation
        self.epoch = 0
        self.mute = False
        self.beats_only = False
        self.extra: Message | None = None
        self.rehearses: Rehearsal | None = by_its_figures
        self.watched: Callable[[Link, Watch], Coroutine[Any, Any, None]] | None = None
        self.heard: queue.Queue[Message] = queue.Queue()
        self._talks: dict[TransferId, Talk] = {}
        self._scope = anyio.CancelScope()

    def next(self, kind: type[Message]) -> Message:
        """Return the next message of a kind that the gateway sent."""
        while True:
            message = self.heard.get(timeout=WAIT_S)
            if isinstance(message, kind):
                return message

    def stop(self) -> None:
        """Close everything, as the end of a process does."""
        self._scope.cancel()

    async def run(self) -> None:
        """Listen until stopped."""
        peer = Peer(NodeName(self.name), self.role, Incarnation(self.incarnation))
        with self._scope:
            me = Identity(peer, self.ring, LAYOUT, speaks=self.speaks)
            await serve(self.path, me, self._talk, lambda _: None)

    def status(self) -> NodeStatus:
        """Return what it reports of itself."""
        life = self.reported_incarnation
        measured = report(self.reported_name, self.role, self.tokens, life)
        return status(replace(measured, epoch=self.epoch), self.links)

    async def _talk(self, link: Link) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._report, link)
            try:
                while True:
                    message, _ = await link.receive()
                    await self._hear(link, message, tasks)
            except ChannelClosed:
                tasks.cancel_scope.cancel()

    async def _report(self, link: Link) -> None:
        try:
            while True:
                if not self.mute:
                    await link.send(Beat() if self.beats_only else self.status())
                if self.extra is not None:
                    await link.send(self.extra)
                    self.extra = None
                await anyio.sleep(BEAT_S)
        except ChannelClosed:
            pass

    async def _hear(self, link: Link, message: Message, tasks: anyio.abc.TaskGroup) -> None:
        match message:
            case Submit():
                self.heard.put(message)
                talk = self._talks[message.transfer] = Talk(link, message)
                tasks.start_soon(self._answer, talk)
            case Cancel():
                self.heard.put(message)
                self._talks[message.transfer].cancelled.set()
            case Drill() | Resize():
                self.heard.put(message)
            case Rehearse():
                self.heard.put(message)
                if self.rehearses is not None:
                    refusal = self.rehearses(self, message)
                    await link.send(Rehearsed(message.name, refusal))
            case Inspect():
                if not (self.mute or self.beats_only):
                    await link.send(self.status())
            case Watch():
                self.heard.put(message)
                if self.watched is not None:
                    tasks.start_soon(self.watched, link, message)
            case _:
                pass

    async def _answer(self, talk: Talk) -> None:
        with suppress(ChannelClosed):
            await self.script(talk)


class FakeNodes:
    """prefill-0 and decode-0 (or others), in one thread."""

    def __init__(self, portal: BlockingPortal, directory: Path, ring: Keyring) -> None:
        self._portal, self._directory, self._ring = portal, directory, ring
        self._running: dict[str, Future[None]] = {}
        self.nodes: dict[str, FakeNode] = {}

    def start(
        self,
        name: str,
        tokens: int,
        links: list[str] | None = None,
        ring: Keyring | None = None,
        speaks: Versions = SPEAKS,
    ) -> FakeNode:
        """Start a node, or start it again as a new incarnation."""
        role = Role.PREFILL if name.startswith("prefill") else Role.DECODE
        ring = ring or self._ring
        node = self._portal.call(FakeNode, self._directory, name, role, ring, tokens, links or [])
        node.speaks = speaks
        self.nodes[name] = node
        self._running[name] = self._portal.start_task_soon(node.run)
        return node

    def stop(self, name: str) -> None:
        """Stop a node and wait until it is gone."""
        self._portal.call(self.nodes[name].stop)
        self._running.pop(name).result(WAIT_S)

    def stop_all(self) -> None:
        """Stop every node."""
        for name in list(self._running):
            self.stop(name)


@contextmanager
def fake_nodes(directory: Path, ring: Keyring) -> Iterator[FakeNodes]:
    """Nodes that are gone when the context ends."""
    with start_blocking_portal() as portal:
        nodes = FakeNodes(portal, directory, ring)
        try:
            yield nodes
        finally:
            nodes.stop_all()
