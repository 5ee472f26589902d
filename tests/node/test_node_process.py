"""A real node process and peers that lie or stammer: it refuses, says why, and lives."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest

from kvairlock.core.errors import PeerMisbehaved
from kvairlock.core.messages import GREEDY, Ended, Inspect, Message, NodeStatus, Submit
from kvairlock.core.terms import Incarnation, NodeName, Peer, Role, TransferId
from kvairlock.drills.stack import wait_for
from kvairlock.runtime import link
from kvairlock.runtime.link import Identity
from kvairlock.sink.reading import read_folder
from kvairlock.wire.frames import (
    FRAME_BYTES_MAX,
    HEADER,
    MAGIC,
    VERSION,
    Hello,
    Session,
    open_hello,
    seal_hello,
)
from kvairlock.wire.keys import Keyring

KEY = "one " + "ab" * 32
OTHER_KEY = "one " + "cd" * 32
GATEWAY = Peer(NodeName("gateway"), Role.GATEWAY, Incarnation("g1"))
SETTINGS = """
[[prefill]]
name = "prefill-0"
pages = 16
[[decode]]
name = "decode-0"
pages = 16
"""


@dataclass(frozen=True)
class Process:
    """A running decode node."""

    run: Path
    evidence: Path
    pid: int

    @property
    def socket(self) -> Path:
        return self.run / "decode-0.sock"

    def reasons(self) -> list[str]:
        """Why frames were refused so far."""
        records = [r for r in read_folder(self.evidence) if r["node"] == "decode-0"]
        return [str(r["reason"]) for r in records if r["event"] == "frame_refused"]

    def refused_for(self, part: str) -> None:
        """Wait until a frame was refused for a reason that contains `part`."""
        wait_for(part, lambda: [r for r in self.reasons() if part in r] or None)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Process]:
    settings, run, evidence = tmp_path / "s.toml", tmp_path / "run", tmp_path / "evidence"
    settings.write_text(SETTINGS)
    run.mkdir()
    words = ["--settings", str(settings), "--name", "decode-0"]
    words += ["--run", str(run), "--evidence", str(evidence)]
    child = subprocess.Popen(
        [sys.executable, "-m", "kvairlock.node", *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "KVAIRLOCK_CLUSTER_KEY": KEY},
    )
    assert child.stdout is not None
    ready = json.loads(child.stdout.readline())
    assert (ready["ready"], ready["role"], ready["tokens"]) == ("decode-0", "decode", 256)
    process = Process(run, evidence, ready["pid"])
    try:
        yield process
        assert child.poll() is None, "the node must outlive every test"
        assert serves(process)
    finally:
        child.terminate()
        assert child.wait(20) == 0


def identity(key: str = KEY) -> Identity:
    return Identity(GATEWAY, Keyring.parse(key))


async def ask(process: Process, message: Message) -> Message:
    """Send one message over an honest channel; return the first status that comes."""
    channel = await link.dial(process.socket, identity(), NodeName("decode-0"))
    try:
        await channel.send(message)
        while True:
            answer, _ = await channel.receive()
            if not isinstance(message, Inspect) or isinstance(answer, NodeStatus):
                return answer
    finally:
        await channel.close()


def serves(process: Process) -> bool:
    status = anyio.run(ask, process, Inspect())
    return isinstance(status, NodeStatus) and status.pages["free"] == 16


def raw(process: Process) -> socket.socket:
    channel = socket.socket(socket.AF_UNIX)
    channel.settimeout(20)
    channel.connect(str(process.socket))
    return channel


def is_closed(channel: socket.socket) -> bool:
    """Whether the node closes the channel, whatever it says before."""
    with channel:
        try:
            while channel.recv(65536):
                pass
        except ConnectionResetError:
            pass
    return True


def hello(key: str = KEY, to: str = "decode-0") -> bytes:
    return seal_hello(Keyring.parse(key), Hello(GATEWAY, to, b"n" * 16, ""))


def header(version: int = VERSION, length: int = 10, magic: bytes = MAGIC) -> bytes:
    return HEADER.pack(magic, version, 0, b"one", 0, length)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "not a frame"),
        (header(version=2), "frame version 2"),
        (header(length=FRAME_BYTES_MAX + 1), "over the limit"),
        (hello(OTHER_KEY), "does not verify"),
        (hello().replace(b"g1", b"g2"), "does not verify"),
        (hello(to="decode-1"), "another process"),
        (hello("two " + "ab" * 32), "unknown key id"),
    ],
)
def test_a_first_frame_that_is_wrong_closes_the_channel(
    node: Process, data: bytes, reason: str
) -> None:
    channel = raw(node)
    channel.sendall(data)
    node.refused_for(reason)
    assert is_closed(channel)


def test_a_channel_that_is_cut_in_the_middle_costs_nothing(node: Process) -> None:
    whole = hello()
    for size in (1, HEADER.size - 1, HEADER.size, len(whole) - 1):
        with raw(node) as channel:
            channel.sendall(whole[:size])
    assert serves(node)


def test_after_the_hello_a_forged_or_repeated_frame_closes_the_channel(node: Process) -> None:
    ring, mine = Keyring.parse(KEY), Hello(GATEWAY, "decode-0", b"m" * 16, "")
    for tamper, reason in ((flip_last, "does not verify"), (repeat, "repeated or is missing")):
        channel = raw(node)
        channel.sendall(seal_hello(ring, mine))
        session = Session(ring, mine, open_hello(ring, whole_frame(channel)))
        channel.sendall(tamper(session.seal(Inspect())))
        node.refused_for(reason)
        assert is_closed(channel)


def flip_last(frame: bytes) -> bytes:
    return frame[:-1] + bytes([frame[-1] ^ 1])


def repeat(frame: bytes) -> bytes:
    return frame + frame


def whole_frame(channel: socket.socket) -> bytes:
    head = channel.recv(HEADER.size, socket.MSG_WAITALL)
    length = HEADER.unpack(head)[-1]
    return head + channel.recv(length + 32, socket.MSG_WAITALL)


def test_a_dial_with_another_key_is_refused_here_too(node: Process) -> None:
    async def dial() -> None:
        await link.dial(node.socket, identity(OTHER_KEY), NodeName("decode-0"))

    with pytest.raises((PeerMisbehaved, link.ChannelClosed)):
        anyio.run(dial)
    node.refused_for("does not verify")


@pytest.mark.parametrize("tokens", [b"", b"\x01\x00\x00", b"\xff\xff\xff\xff", b"\x00\x01\x00\x00"])
def test_a_submit_without_a_ticket_or_sense_is_refused_with_a_reason(
    node: Process, tokens: bytes
) -> None:
    submit = Submit(
        ticket=b"no ticket at all" * 8,
        tenant="acme",
        transfer=TransferId("r/1"),
        tokens=tokens,
        max_tokens=4,
        choices=1,
        stop=(),
        sampling=GREEDY,
        alternatives=None,
        prefill=NodeName("prefill-0"),
        nonce="n",
        trace="",
    )

    async def refused() -> Message:
        channel = await link.dial(node.socket, identity(), NodeName("decode-0"))
        try:
            await channel.send(submit)
            while True:
                answer, _ = await channel.receive()
                if not isinstance(answer, NodeStatus):
                    return answer
        finally:
            await channel.close()

    ended = anyio.run(refused)
    assert isinstance(ended, Ended)
    assert ended.refusal is not None
    assert ended.refusal.reason in {"version", "malformed", "forged"}
    assert ended.computed_tokens == 0
