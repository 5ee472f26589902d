"""The channels to all nodes: dialled, kept alive, given up when silent, and dialled again.

    dial -> Inspect ... NodeStatus: up -> messages -> closed, silent or wrong: lost -> dial

Nobody waits for a channel: what is sent goes into an outbox that one task empties, so that a
stopped node holds up no request of another, and a request that is cancelled never tears a frame.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Protocol

import anyio
import structlog

from kvairlock.core.errors import KvairlockError, Misuse, PeerIncompatible, PeerMisbehaved, Reason
from kvairlock.core.messages import (
    Beat,
    Chunk,
    Ended,
    Inspect,
    Message,
    NodeStatus,
    PageMap,
    Rehearsed,
    Submit,
)
from kvairlock.core.terms import NodeName, Owner, Peer, Role
from kvairlock.gateway.console.page_maps import PageMaps
from kvairlock.gateway.mailbox import Mailbox
from kvairlock.gateway.rehearsals import Rehearsals
from kvairlock.gateway.reports import Belief, NodeState
from kvairlock.gateway.routes import Routes
from kvairlock.runtime import clock
from kvairlock.runtime.link import ChannelClosed, Identity, Link, dial
from kvairlock.runtime.recording import Sink
from kvairlock.runtime.settings import LimitSettings
from kvairlock.wire.frames import Nonsense

BACKOFF_FIRST_MS = 50
BACKOFF_LAST_MS = 1_000
SUBMITS_WAITING_MAX = 256
REPORTED = frozenset({NodeState.UP, NodeState.STALE})
"""States of a node that has reported on the channel that is open."""

NOBODY = Owner("", "", 0)
"""Whose a record is that is about no request."""

log = structlog.get_logger("kvairlock.gateway")


class NodeDown(KvairlockError):
    """There is no channel to the node now."""

    http_status = 503
    code = "node_lost"


class OutboxFull(KvairlockError):
    """The node does not take messages as fast as requests come."""

    http_status = 503
    code = "route_full"


class Receiver(Protocol):
    """Who is told what decode nodes say about requests."""

    def deliver(self, node: NodeName, message: Chunk | Ended) -> None:
        """Take a message about a request.

        Raises:
            PeerMisbehaved: It makes no sense; the channel is closed.
        """

    def lose(self, node: NodeName) -> None:
        """Take note that the node and what it did is gone."""

    def misbehaves(self, node: NodeName, reason: Reason) -> None:
        """Take note that the node itself said what no node says; `lose` follows."""


class Connection:
    """One open channel and what waits to be sent on it."""

    def __init__(self, name: NodeName, link: Link) -> None:
        self.name = name
        self.link = link
        self.outbox: Mailbox[Message] = Mailbox()
        self.requests_waiting = 0
        self.heard_at = clock.now()

    def put(self, message: Message) -> None:
        """Have a message sent after those that wait."""
        self.requests_waiting += isinstance(message, Submit)
        self.outbox.put(message)

    async def write(self) -> None:
        """Send what waits, in order, until the channel closes."""
        while True:
            message = await self.outbox.get()
            self.requests_waiting -= isinstance(message, Submit)
            try:
                await self.link.send(message)
            except (Misuse, OverflowError, TypeError) as error:
                # It cannot be said: an open channel would leave its receiver waiting for ever.
                log.error("message cannot be sent", node=self.name, reason=str(error))
                raise ChannelClosed from None

    async def beat(self, limits: LimitSettings) -> None:
        """Show signs of life until the other end shows none for `lost_ms`."""
        while (silent_ms := clock.elapsed_ms(self.heard_at)) < limits.lost_ms:
            if not len(self.outbox):
                self.outbox.put(Beat())
            await anyio.sleep(min(limits.beat_ms, limits.lost_ms - silent_ms) / 1000)
        log.warning("node is silent", node=self.name, silent_ms=silent_ms)


class Nodes:
    """All nodes of the stack, as seen from the gateway.

    Args:
        directory: Where the nodes' sockets are.
        me: What the gateway says of itself.
        limits: Times between signs of life.
        routes: Told what the nodes report.
        evidence: Records peers that come and go.
    """

    def __init__(
        self,
        directory: Path,
        me: Identity,
        limits: LimitSettings,
        routes: Routes,
        evidence: Sink,
    ) -> None:
        self._directory = directory
        self._me = me
        self._limits = limits
        self._routes = routes
        self._evidence = evidence
        self._open: dict[NodeName, Connection] = {}
        self.rehearsals = Rehearsals()
        self.maps = PageMaps(routes.nodes)

    async def run(self, receiver: Receiver) -> None:
        """Keep a channel to each node until cancelled."""
        async with anyio.create_task_group() as tasks:
            for name, view in self._routes.nodes.items():
                tasks.start_soon(self._keep, name, view.role, receiver)

    def post(self, name: NodeName, message: Message) -> None:
        """Queue a message for a node; returns at once.

        Raises:
            NodeDown: There is no channel to it.
            OutboxFull: It is a new request, and too many wait to be sent.
        """
        connection = self._open.get(name)
        if connection is None:
            raise NodeDown(f"{name} is not connected")
        if isinstance(message, Submit) and connection.requests_waiting >= SUBMITS_WAITING_MAX:
            raise OutboxFull(f"{name} does not take requests fast enough")
        connection.put(message)

    def can_say(self, name: NodeName, kind: type[Message]) -> bool:
        """Return whether the version agreed on with a node has a form for messages of a kind.

        Raises:
            NodeDown: There is no channel to it.
        """
        connection = self._open.get(name)
        if connection is None:
            raise NodeDown(f"{name} is not connected")
        return connection.link.can_say(kind)

    def layout(self, name: NodeName) -> str:
        """Return the digest of the page layout that a node stated in its hello.

        Raises:
            NodeDown: There is no channel to it.
        """
        connection = self._open.get(name)
        if connection is None or connection.link.hello is None:
            raise NodeDown(f"{name} is not connected")
        return connection.link.hello.layout

    def peer(self, name: NodeName) -> Peer:
        """Return which life of a node the channel leads to.

        Raises:
            NodeDown: There is no channel to it.
        """
        connection = self._open.get(name)
        if connection is None:
            raise NodeDown(f"{name} is not connected")
        return connection.link.peer

    async def _keep(self, name: NodeName, role: Role, receiver: Receiver) -> None:
        wait_ms = BACKOFF_FIRST_MS
        while True:
            link = await self._dial(name, role)
            if link is not None:
                await self._live(name, link, receiver)
                reported = self._routes.nodes[name].state in REPORTED
                self._lost(name, link, receiver)
                wait_ms = BACKOFF_FIRST_MS if reported else wait_ms
            await anyio.sleep(wait_ms / 1000)
            wait_ms = min(2 * wait_ms, BACKOFF_LAST_MS)

    async def _dial(self, name: NodeName, role: Role) -> Link | None:
        try:
            with anyio.fail_after(self._limits.lost_ms / 1000):
                link = await dial(self._directory / f"{name}.sock", self._me, name)
        except (OSError, TimeoutError, ChannelClosed):
            return None
        except PeerIncompatible as error:
            self._routes.incompatible(name, str(error))
            self._refuse(name, error)
            return None
        except PeerMisbehaved as error:
            self._refuse(name, error)
            return None
        if link.peer.role is not role:
            await link.close()
            self._refuse(name, PeerMisbehaved(Reason.IDENTITY, f"{name} is not a {role} node"))
            return None
        return link

    async def _live(self, name: NodeName, link: Link, receiver: Receiver) -> None:
        connection = Connection(name, link)
        connection.outbox.put(Inspect())
        self._open[name] = connection
        self._routes.connected(name, link.peer.incarnation, link.speaks)
        self._record("channel_opened", link, messages=link.version)
        self._record("peer_up", link)
        log.info("node is connected", node=name, incarnation=link.peer.incarnation)
        try:
            await self._until_closed(
                name,
                receiver,
                partial(self._read, connection, receiver),
                connection.write,
                partial(connection.beat, self._limits),
            )
        finally:
            del self._open[name]
            await link.close()

    async def _until_closed(
        self, name: NodeName, receiver: Receiver, *parts: Callable[[], Awaitable[None]]
    ) -> None:
        async with anyio.create_task_group() as tasks:

            async def run(part: Callable[[], Awaitable[None]]) -> None:
                try:
                    await part()
                except ChannelClosed:
                    pass
                except (PeerMisbehaved, PeerIncompatible) as error:
                    self._refuse(name, error)
                    if isinstance(error, Nonsense):
                        receiver.misbehaves(name, error.reason)
                tasks.cancel_scope.cancel()

            for part in parts:
                tasks.start_soon(run, part)

    async def _read(self, connection: Connection, receiver: Receiver) -> None:
        while True:
            message, file = await connection.link.receive()
            connection.heard_at = clock.now()
            if file is not None:
                os.close(file)
            try:
                self._take(connection, message, receiver)
            except PeerMisbehaved as error:
                raise Nonsense(error.reason, str(error)) from None

    def _take(self, connection: Connection, message: Message, receiver: Receiver) -> None:
        match message:
            case Chunk() | Ended():
                receiver.deliver(connection.name, message)
            case NodeStatus():
                self._heard(connection, message)
            case Rehearsed():
                self.rehearsals.heard(connection.name, message)
            case PageMap():
                self.maps.heard(connection.name, message)
            case Beat():
                pass
            case _:
                kind = type(message).__name__
                raise PeerMisbehaved(Reason.MALFORMED, f"{kind} is not for a gateway")

    def _heard(self, connection: Connection, status: NodeStatus) -> None:
        peer, report = connection.link.peer, status.report
        stated = (report.node, report.role, report.incarnation)
        if stated != (peer.node, peer.role, peer.incarnation):
            raise PeerMisbehaved(Reason.IDENTITY, "a report about another process")
        belief = self._routes.heard(connection.name, status, connection.heard_at)
        if belief is Belief.EARLIER:
            fields = {"message": "nodestatus", "reason": f"epoch {report.epoch} is over"}
            self._evidence.record("message_ignored", NOBODY, fields)

    def _lost(self, name: NodeName, link: Link, receiver: Receiver) -> None:
        self._routes.lost(name)
        self.maps.forget(name)
        self._record("peer_lost", link)
        log.warning("node is lost", node=name, incarnation=link.peer.incarnation)
        receiver.lose(name)

    def _record(self, event: str, link: Link, **more: int) -> None:
        fields = {"peer": link.peer.node, "peer_incarnation": link.peer.incarnation}
        self._evidence.record(event, None, {**fields, **more})

    def _refuse(self, name: NodeName, error: PeerMisbehaved | PeerIncompatible) -> None:
        reason = error.reason if isinstance(error, PeerMisbehaved) else Reason.VERSION
        self._evidence.record("frame_refused", None, {"peer": name, "reason": reason})
        log.warning("node is refused", node=name, reason=reason.value, why=str(error))
