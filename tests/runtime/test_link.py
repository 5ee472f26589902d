"""One channel between two ends in this process: greetings, files, and what opens nothing."""

from __future__ import annotations

import os
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import pytest

from kvairlock.core.errors import PeerIncompatible, PeerMisbehaved, Reason
from kvairlock.core.messages import Beat, Cancel, Grant, Message
from kvairlock.core.terms import Incarnation, NodeName, Peer, Role, TransferId, WindowId
from kvairlock.runtime import link
from kvairlock.runtime.link import ChannelClosed, Identity, Link
from kvairlock.wire.frames import Hello, Session, open_hello, seal_hello
from kvairlock.wire.keys import Keyring

RING = Keyring.parse("one " + "ab" * 32)
DECODE = Peer(NodeName("d"), Role.DECODE, Incarnation("d-1"))
PREFILL = Peer(NodeName("p"), Role.PREFILL, Incarnation("p-1"))
CANCEL = Cancel(TransferId("r/1"))


@dataclass
class Listening:
    """The listening end: what it heard, and why it refused channels."""

    path: Path
    heard: list[tuple[Message, int | None]] = field(default_factory=list)
    peers: list[Peer] = field(default_factory=list)
    refused: list[Exception] = field(default_factory=list)
    news: anyio.Event = field(default_factory=anyio.Event)

    async def handle(self, channel: Link) -> None:
        self.peers.append(channel.peer)
        while True:
            self.heard.append(await channel.receive())
            self._tell()

    def refuse(self, error: Exception) -> None:
        self.refused.append(error)
        self._tell()

    async def until(self, there: Callable[[], bool]) -> None:
        with anyio.fail_after(20):
            while not there():
                await self.news.wait()
                self.news = anyio.Event()

    def _tell(self) -> None:
        self.news.set()


def run(path: Path, story: Callable[[Listening], Awaitable[None]], layout: str = "") -> None:
    """Run a story against a listening prefill node."""

    async def main() -> None:
        there = Listening(path / "p.sock")
        me = Identity(PREFILL, RING, layout)
        async with anyio.create_task_group() as tasks:
            await tasks.start(link.serve, there.path, me, there.handle, there.refuse)
            await story(there)
            tasks.cancel_scope.cancel()

    anyio.run(main)


def dial(there: Listening, layout: str = "") -> Awaitable[Link]:
    return link.dial(there.path, Identity(DECODE, RING, layout), NodeName("p"))


def grant(inode: int) -> Grant:
    transfer, window = TransferId("r/1"), WindowId("w1")
    return Grant(transfer, b"ticket", b"", window, inode, (0,), (1,), "layout", 1, 1000, "")


def test_a_message_and_its_file_arrive_together(tmp_path: Path) -> None:
    file = os.memfd_create("window")
    os.write(file, b"bytes of the window")

    async def story(there: Listening) -> None:
        channel = await dial(there)
        await channel.send(CANCEL)
        await channel.send(grant(os.fstat(file).st_ino), file)
        await there.until(lambda: len(there.heard) == 2)
        assert there.heard[0] == (CANCEL, None)
        message, arrived = there.heard[1]
        assert message == grant(os.fstat(file).st_ino)
        assert arrived is not None
        assert os.pread(arrived, 100, 0) == b"bytes of the window"
        assert not os.get_inheritable(arrived)
        os.close(arrived)
        await channel.close()

    run(tmp_path, story)
    os.close(file)


def test_a_grant_with_another_file_than_it_names_is_refused(tmp_path: Path) -> None:
    """The kernel drops files that do not fit: the next one must not be taken for it."""
    mine, other = os.memfd_create("mine"), os.memfd_create("other")

    async def story(there: Listening) -> None:
        for file in (other, None):
            channel = await dial(there)
            await channel.send(grant(os.fstat(mine).st_ino), file)
            await there.until(lambda: bool(there.refused))
            error = there.refused.pop()
            assert isinstance(error, PeerMisbehaved)
            assert error.reason is Reason.MALFORMED
            assert not there.heard
            await channel.close()

    run(tmp_path, story)
    os.close(mine)
    os.close(other)


def test_files_before_the_session_are_refused(tmp_path: Path) -> None:
    file = os.memfd_create("nobody asked")

    async def story(there: Listening) -> None:
        with socket.socket(socket.AF_UNIX) as raw:
            raw.connect(str(there.path))
            socket.send_fds(raw, [b"K"], [file] * 8)
            await there.until(lambda: bool(there.refused))
        assert "no grant" in str(there.refused[0])

    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - descriptors, not a folder's files
    run(tmp_path, story)
    os.close(file)
    assert len(os.listdir("/proc/self/fd")) <= before  # noqa: PTH208


def test_an_old_hello_opens_nothing(tmp_path: Path) -> None:
    """Whoever recorded a hello cannot derive the session that a channel begins with."""
    old = Hello(DECODE, "p", b"o" * 16, "")

    async def story(there: Listening) -> None:
        honest = await dial(there)
        stream = await anyio.connect_unix(there.path)
        await stream.send(seal_hello(RING, old))
        theirs = open_hello(RING, await stream.receive())
        assert theirs.answers == old.nonce
        recorded = Session(RING, Hello(DECODE, "p", b"x" * 16, ""), theirs).seal(Beat())
        await stream.send(recorded)
        await there.until(lambda: bool(there.refused))
        await stream.aclose()
        assert there.peers == [DECODE], "only the honest channel was ever handed over"
        await honest.send(CANCEL)
        await there.until(lambda: there.heard == [(CANCEL, None)])
        await honest.close()

    run(tmp_path, story)


def test_an_answer_to_another_hello_is_refused(tmp_path: Path) -> None:
    async def main() -> None:
        listener = await anyio.create_unix_listener(tmp_path / "p.sock")

        async def replays(stream: anyio.abc.SocketStream) -> None:
            await stream.receive()
            await stream.send(
                seal_hello(RING, Hello(PREFILL, "d", b"o" * 16, "", b"old" * 5 + b"!"))
            )
            await anyio.sleep_forever()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, replays)
            with pytest.raises(PeerMisbehaved) as caught:
                await link.dial(tmp_path / "p.sock", Identity(DECODE, RING), NodeName("p"))
            assert caught.value.reason is Reason.REPLAYED
            tasks.cancel_scope.cancel()

    anyio.run(main)


def test_pages_of_another_layout_are_refused_before_any_message(tmp_path: Path) -> None:
    async def story(there: Listening) -> None:
        with pytest.raises((PeerIncompatible, ChannelClosed)):
            await dial(there, layout="one")
        await there.until(lambda: bool(there.refused))
        assert isinstance(there.refused[0], PeerIncompatible)
        assert not there.peers

    run(tmp_path, story, layout="another")
