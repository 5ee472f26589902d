"""The links of one node to its peers: who is connected, who is silent, whose process has ended.

A silent peer is lost but its link stays open: a process that was stopped may go on, and what it
then says of its writes is evidence that nothing else can give. It counts as up again when it is
heard. A process that has ended is noticed by its pidfd, whatever its sockets do.

A drill can cut the links (`Cuts`): messages then wait on both sides of this process, or its
channels break.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections import deque
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import structlog
from anyio.abc import SocketAttribute, TaskStatus

from kvairlock.core.errors import Misuse, PeerIncompatible, PeerMisbehaved
from kvairlock.core.messages import Beat, Message, NodeStatus
from kvairlock.core.terms import Instant, NodeName, Peer, Role
from kvairlock.node.cuts import Cuts
from kvairlock.runtime import clock, link
from kvairlock.runtime.link import ChannelClosed, Identity, Link
from kvairlock.transport.fences import ProcessMissing, ProcessWatch

REDIAL_S = (0.05, 0.1, 0.2, 0.5, 1.0)
CREDENTIALS = struct.Struct("3i")
DIALLED = Role.PREFILL
"""Whom nodes dial: decode dials prefill. Gateways dial for themselves."""

log = structlog.get_logger()


class Outbox:
    """Messages on their way to one peer, in order.

    Of signs of life only the newest waits, in front of all else: figures that were true when they
    were queued would be taken for those of their arrival, and none would come while much is said.

    A file that waits is a duplicate of its own: the sender may close his, and the number may be
    another file's by the time the message goes.

    Args:
        channel: The open channel.
        cuts: What a drill has cut.
    """

    def __init__(self, channel: Link, cuts: Cuts) -> None:
        self.link = channel
        self.heard_at: Instant = clock.now()
        self.is_up = True
        self.kept: deque[tuple[Message, int | None]] = deque()
        """What has come from the peer while the link is held."""
        self._cuts = cuts
        self._waiting: deque[tuple[Message, int | None]] = deque()
        self._sign: Beat | NodeStatus | None = None
        self._wake = anyio.Event()

    def put(self, message: Message, file: int | None = None) -> None:
        """Queue a message, with a file beside it if given."""
        if isinstance(message, Beat | NodeStatus):
            self._sign = message
        else:
            self._waiting.append((message, None if file is None else os.dup(file)))
        self.wake()

    def wake(self) -> None:
        """Look again at what can be sent."""
        self._wake.set()

    async def run(self) -> None:
        """Send what is queued until the channel closes."""
        peer = self.link.peer.role
        try:
            while not self._cuts.breaks(peer):
                await self._wake.wait()
                self._wake = anyio.Event()
                while (self._sign or self._waiting) and not self._cuts.holds(peer):
                    await self._send(*self._next())
            raise ChannelClosed
        finally:
            for _, file in (*self._waiting, *self.kept):
                if file is not None:
                    os.close(file)

    def _next(self) -> tuple[Message, int | None]:
        sign, self._sign = self._sign, None
        return (sign, None) if sign is not None else self._waiting.popleft()

    async def _send(self, message: Message, file: int | None) -> None:
        try:
            await self.link.send(message, file)
        except (Misuse, OverflowError, TypeError) as error:
            # It cannot be said: an open channel would leave its receiver waiting for ever.
            log.error("a message cannot be sent", kind=type(message).__name__, reason=str(error))
            raise ChannelClosed from None
        finally:
            if file is not None:
                os.close(file)


Hears = Callable[[Peer, Message, int | None], None]


class Links:
    """All links of one node.

    Args:
        me: What this process says of itself.
        beat_ms: Time between two signs of life.
        lost_ms: Silence after which a peer is lost.
        hears: Told each message with the file that came with it.
        opened: Told when a channel has opened, before anything is heard on it.
        up: Told when a peer is connected or heard again.
        lost: Told when a peer is silent or its channel closed.
        gone: Told when a peer's process has ended.
        refused: Told who sent a frame that was refused, and why.
        cuts: What a drill has cut; `recut` is to be called when that changes.
    """

    def __init__(
        self,
        me: Identity,
        beat_ms: int,
        lost_ms: int,
        hears: Hears,
        opened: Callable[[Link], None],
        up: Callable[[Peer], None],
        lost: Callable[[Peer], None],
        gone: Callable[[Peer], None],
        refused: Callable[[str, str], None],
        cuts: Cuts,
    ) -> None:
        self._me, self._beat_ms, self._lost_ns = me, beat_ms, lost_ms * 1_000_000
        self._hears, self._up, self._lost, self._gone = hears, up, lost, gone
        self._opened, self._refused, self._cuts = opened, refused, cuts
        self._open: dict[NodeName, Outbox] = {}
        self._watched: set[Peer] = set()

    @property
    def names(self) -> tuple[NodeName, ...]:
        """The peers that are connected and heard of."""
        return tuple(sorted(name for name, box in self._open.items() if box.is_up))

    def send(self, to: NodeName, message: Message, file: int | None = None) -> None:
        """Queue a message; without a link it is lost, as it would be on the way."""
        box = self._open.get(to)
        if box is not None:
            box.put(message, file)

    async def listen(
        self, path: Path, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED
    ) -> None:
        """Accept peers until cancelled."""

        def refused(error: Exception) -> None:
            self._refused("unknown", str(error))

        def admits(peer: Peer) -> bool:
            return self._cuts.admits(peer.role)

        await link.serve(path, self._me, self._run, refused, task_status, admits)

    async def dial(self, name: NodeName, path: Path) -> None:
        """Keep a link to a peer that listens, until cancelled."""
        failures = 0
        while True:
            try:
                channel = await self._dial(name, path)
                failures = 0
                try:
                    await self._run(channel, watch=True)
                finally:
                    await channel.close()
            except (OSError, ChannelClosed):
                pass
            except (PeerMisbehaved, PeerIncompatible) as error:
                self._refused(name, str(error))
            await anyio.sleep(REDIAL_S[min(failures, len(REDIAL_S) - 1)])
            failures += 1

    def recut(self) -> None:
        """Take note that a drill has cut links, or has released them."""
        for box in list(self._open.values()):
            peer = box.link.peer
            while box.kept and not self._cuts.holds(peer.role):
                self._take(box, *box.kept.popleft())
            box.wake()

    async def beat(self, say: Callable[[NodeName], Message]) -> None:
        """Give signs of life and notice silence, until cancelled.

        Args:
            say: Returns the sign of life for a peer.
        """
        while True:
            now = clock.now()
            for name, box in list(self._open.items()):
                box.put(say(name))
                if box.is_up and now - box.heard_at > self._lost_ns:
                    box.is_up = False
                    self._lost(box.link.peer)
            await anyio.sleep(self._beat_ms / 1000)

    async def _dial(self, name: NodeName, path: Path) -> Link:
        if not self._cuts.admits(DIALLED):
            raise ChannelClosed
        return await link.dial(path, self._me, name)

    async def _run(self, channel: Link, watch: bool = False) -> None:
        peer, box = channel.peer, Outbox(channel, self._cuts)
        if watch:
            self._watch(channel)
        before = self._open.get(peer.node)
        if before is not None and before.is_up and before.link.peer != peer:
            self._lost(before.link.peer)
        self._open[peer.node] = box
        self._opened(channel)
        self._up(peer)
        try:
            async with anyio.create_task_group() as tasks:
                for work in (box.run, self._reads(box)):
                    tasks.start_soon(self._until_closed, peer.node, work, tasks.cancel_scope)
        finally:
            if self._open.get(peer.node) is box:
                del self._open[peer.node]
                if box.is_up:
                    self._lost(peer)

    async def _until_closed(
        self, name: NodeName, work: Callable[[], Awaitable[None]], scope: anyio.CancelScope
    ) -> None:
        try:
            await work()
        except ChannelClosed:
            pass
        except (PeerMisbehaved, PeerIncompatible) as error:
            self._refused(name, str(error))
        scope.cancel()

    def _reads(self, box: Outbox) -> Callable[[], Awaitable[None]]:
        async def run() -> None:
            while True:
                message, file = await box.link.receive()
                if self._cuts.keeps(box.link.peer.role, message):
                    box.kept.append((message, file))
                else:
                    self._take(box, message, file)

        return run

    def _take(self, box: Outbox, message: Message, file: int | None) -> None:
        self._heard(box)
        self._hears(box.link.peer, message, file)

    def _heard(self, box: Outbox) -> None:
        box.heard_at = clock.now()
        if not box.is_up:
            box.is_up = True
            self._up(box.link.peer)

    def _watch(self, channel: Link) -> None:
        """Watch the process on the other end by its pidfd.

        The kernel names the process that listens; it answered our hello after that, so the number
        cannot have gone to another process in between.
        """
        peer = channel.peer
        if peer in self._watched:
            return
        raw = channel.stream.extra(SocketAttribute.raw_socket)  # noqa: S610 - not Django
        data = raw.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
        try:
            watch = ProcessWatch(CREDENTIALS.unpack(data)[0])
        except ProcessMissing:
            self._gone(peer)
            return
        self._watched.add(peer)
        loop = asyncio.get_running_loop()

        def ended() -> None:
            loop.remove_reader(watch.fileno())
            watch.close()
            self._watched.discard(peer)
            self._gone(peer)

        loop.add_reader(watch.fileno(), ended)
