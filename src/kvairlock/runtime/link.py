"""One authenticated channel over a unix socket: messages one way, files with them, in order.

A window's file descriptor travels beside the frame that grants it (SCM_RIGHTS). Both ends send a
`Hello` first; what does not authenticate closes the channel with a typed reason.
"""

from __future__ import annotations

import os
import secrets
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import anyio
from anyio.abc import SocketStream, TaskStatus, UNIXSocketStream

from kvairlock.core.errors import Misuse, PeerIncompatible, PeerMisbehaved, Reason
from kvairlock.core.messages import Beat, Grant, Message
from kvairlock.core.terms import NodeName, Peer
from kvairlock.wire import codec
from kvairlock.wire.frames import (
    HEADER,
    NONCE_BYTES,
    Hello,
    Session,
    frame_bytes,
    open_hello,
    seal_hello,
)
from kvairlock.wire.keys import Keyring
from kvairlock.wire.versions import SPEAKS, Versions

READ_BYTES = 256 * 1024
FILES_MAX = 16
FILES_WAITING_MAX = 64
GREETING_S = 5.0
"""Longest greeting: an honest process answers in milliseconds, a stopped one is dialled again."""


class ChannelClosed(Exception):
    """The other end has closed the channel or is gone."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What this process says of itself in every hello.

    Args:
        peer: Name, role and incarnation.
        ring: The cluster's keys.
        layout: Digest of the model layout; empty for a process that holds no pages.
        verify: False only in drills in which the `frame` guard is off.
        speaks: The versions of the messages that it speaks.
    """

    peer: Peer
    ring: Keyring
    layout: str = ""
    verify: bool = True
    speaks: Versions = SPEAKS

    def hello(self, to: str, answers: bytes = b"") -> Hello:
        """Return a fresh hello for one channel, in answer to another's nonce or as the first."""
        nonce = secrets.token_bytes(NONCE_BYTES)
        return Hello(self.peer, to, nonce, self.layout, answers, self.speaks)


class Link:
    """An open channel; made by `dial` or `serve`."""

    def __init__(self, stream: UNIXSocketStream) -> None:
        self._stream = stream
        self._buffer = bytearray()
        self._files: deque[int] = deque()
        self._lock = anyio.Lock()
        self._session: Session | None = None
        self.hello: Hello | None = None

    @property
    def peer(self) -> Peer:
        """Who is on the other end, as its hello authenticated it."""
        return self._theirs.peer

    @property
    def speaks(self) -> Versions:
        """The versions of the messages that the other end speaks, as its hello states them."""
        return self._theirs.speaks

    @property
    def version(self) -> int:
        """The version of the messages that both ends agreed on."""
        return self._opened.version

    @property
    def stream(self) -> UNIXSocketStream:
        """The socket, for credentials."""
        return self._stream

    async def greet(self, me: Identity, to: str) -> None:
        """Send our hello, read theirs, derive the session.

        Raises:
            PeerMisbehaved: Theirs is forged or for somebody else.
            PeerIncompatible: Theirs speaks no version of ours, or holds another page layout.
            ChannelClosed: They left.
        """
        mine = me.hello(to)
        await self._put(seal_hello(me.ring, mine))
        theirs = open_hello(me.ring, await self._frame(), me.verify)
        if theirs.answers != mine.nonce and me.verify:
            raise PeerMisbehaved(Reason.REPLAYED, "the peer's hello answers another one")
        self._open(me, mine, theirs)
        await self.send(Beat())

    async def answer(self, me: Identity, admits: Callable[[Peer], bool]) -> None:
        """Do what `greet` does, from the listening end: the first frame proves who dialled.

        A hello alone proves nothing: it may be an old one. Only its sender can derive the session.
        """
        theirs = open_hello(me.ring, await self._frame(), me.verify)
        if not admits(theirs.peer):
            raise ChannelClosed
        mine = me.hello(theirs.peer.node, theirs.nonce)
        await self._put(seal_hello(me.ring, mine))
        self._open(me, mine, theirs)
        await self.receive()

    def can_say(self, kind: type[Message]) -> bool:
        """Whether the version that was agreed on has a form for messages of a kind."""
        return codec.can_say(kind, self.version)

    async def send(self, message: Message, file: int | None = None) -> None:
        """Send a message, with a file descriptor beside it if given.

        Raises:
            PeerIncompatible: The version that was agreed on has no form for it; nothing was sent.
            ChannelClosed: They left.
        """
        async with self._lock:
            await self._put(self._opened.seal(message), file)

    async def receive(self) -> tuple[Message, int | None]:
        """Return the next message and, with a grant, the file descriptor that came with it.

        Raises:
            PeerMisbehaved: The frame is forged, malformed, or a grant without a file.
            PeerIncompatible: The frame is of another version.
            ChannelClosed: They left.
        """
        message = self._opened.open(await self._frame())
        if not isinstance(message, Grant):
            return message, None
        return message, self._take_file(message)

    def _take_file(self, grant: Grant) -> int:
        """Take the file that came with a grant: the kernel may have dropped one, so it is named."""
        file = self._files.popleft() if self._files else None
        if file is not None and os.fstat(file).st_ino == grant.file:
            return file
        if file is not None:
            os.close(file)
        raise PeerMisbehaved(Reason.MALFORMED, "a grant without its window file")

    async def close(self) -> None:
        """Close the channel and every file that nobody took."""
        while self._files:
            os.close(self._files.popleft())
        with anyio.CancelScope(shield=True):
            await self._stream.aclose()

    @property
    def _theirs(self) -> Hello:
        if self.hello is None:
            raise Misuse("the channel is not open yet")
        return self.hello

    @property
    def _opened(self) -> Session:
        if self._session is None:
            raise Misuse("the channel is not open yet")
        return self._session

    def _open(self, me: Identity, mine: Hello, theirs: Hello) -> None:
        self._session = Session(me.ring, mine, theirs, verify=me.verify)
        if mine.layout and theirs.layout and mine.layout != theirs.layout:
            raise PeerIncompatible(
                f"{theirs.peer.node} holds pages of another model, dtype or page size"
            )
        self.hello = theirs

    async def _put(self, data: bytes, file: int | None = None) -> None:
        try:
            if file is not None:
                # The file rides on the first byte; the rest follows as an ordinary write.
                await self._stream.send_fds(data[:1], [file])
                data = data[1:]
            await self._stream.send(data)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
            raise ChannelClosed from None

    async def _frame(self) -> bytes:
        await self._fill(HEADER.size)
        total = HEADER.size + frame_bytes(bytes(self._buffer[: HEADER.size]))
        await self._fill(total)
        frame = bytes(self._buffer[:total])
        del self._buffer[:total]
        return frame

    async def _fill(self, count: int) -> None:
        while len(self._buffer) < count:
            try:
                data, files = await self._stream.receive_fds(READ_BYTES, FILES_MAX)
            except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
                raise ChannelClosed from None
            except anyio.EndOfStream:
                if not self._buffer:
                    raise ChannelClosed from None
                raise PeerMisbehaved(Reason.MALFORMED, "truncated frame") from None
            self._keep(files)
            self._buffer += data

    def _keep(self, files: list[int]) -> None:
        """Keep files for the grants that they came with; none may come before the session."""
        for file in files:
            os.set_inheritable(file, False)
            self._files.append(file)
        if (self._session is None and files) or len(self._files) > FILES_WAITING_MAX:
            raise PeerMisbehaved(Reason.MALFORMED, "files that belong to no grant")


async def dial(path: Path, me: Identity, to: NodeName) -> Link:
    """Connect to a process by its socket and its name.

    Raises:
        OSError: Nobody listens there, or nobody answers in time (`TimeoutError`).
        PeerMisbehaved: Whoever listens does not authenticate as `to`.
        PeerIncompatible: It is of another version or layout.
        ChannelClosed: It left during the greeting.
    """
    link = Link(await anyio.connect_unix(path))
    try:
        with anyio.fail_after(GREETING_S):
            await link.greet(me, to)
        if link.peer.node != to:
            raise PeerMisbehaved(Reason.IDENTITY, f"{link.peer.node} answered for {to}")
    except BaseException:
        await link.close()
        raise
    return link


def everybody(peer: Peer) -> bool:
    """Admit whoever authenticates."""
    return True


async def serve(
    path: Path,
    me: Identity,
    handle: Callable[[Link], Awaitable[None]],
    refused: Callable[[Exception], None],
    task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
    admits: Callable[[Peer], bool] = everybody,
) -> None:
    """Listen on a socket in a folder that only this user can enter, until cancelled.

    Args:
        path: The socket's path.
        me: What this process says of itself.
        handle: Called with each authenticated channel; the channel closes when it returns.
        refused: Told why a channel was refused.
        task_status: Told once peers can connect.
        admits: Whether a peer may connect at all now; who may not is left without an answer.
    """
    listener = await anyio.create_unix_listener(path, mode=0o600)

    async def one(stream: SocketStream) -> None:
        assert isinstance(stream, UNIXSocketStream)  # noqa: S101 - the listener is a unix one
        link = Link(stream)
        try:
            with anyio.fail_after(GREETING_S):
                await link.answer(me, admits)
            await handle(link)
        except (PeerMisbehaved, PeerIncompatible) as error:
            refused(error)
        except (ChannelClosed, TimeoutError):
            pass
        finally:
            await link.close()

    task_status.started()
    async with listener:
        await listener.serve(one)
