"""A channel on which a test says what it likes, under valid MACs."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import msgspec

from kvairlock.core.messages import Beat
from kvairlock.core.terms import Incarnation, NodeName, Peer, Role
from kvairlock.wire import codec, frames
from kvairlock.wire.frames import HEADER, MAGIC, MESSAGE, Hello, Session, frame_bytes
from kvairlock.wire.keys import Keyring
from kvairlock.wire.versions import Versions

NAME = "tester"
WAIT_S = 20.0
ME = Peer(NodeName(NAME), Role.GATEWAY, Incarnation("t-1"))


class Raw:
    """An open channel to a node, as a gateway of the name `tester` has one.

    Args:
        path: The node's socket.
        ring: The cluster's keys.
        to: The node's name.
        speaks: What the hello states.
    """

    def __init__(self, path: Path, ring: Keyring, to: str, speaks: Versions) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(WAIT_S)
        self._socket.connect(str(path))
        self._ring, self._sent = ring, 0
        mine = Hello(ME, to, b"t" * 16, "", speaks=speaks)
        self._socket.sendall(frames.seal_hello(ring, mine))
        theirs = frames.open_hello(ring, self._frame())
        self._session = Session(ring, mine, theirs)
        nonces = b"".join(sorted((mine.nonce, theirs.nonce))).hex()
        self._purpose = f"frame {nonces} {len(NAME)} {NAME} to {to}"
        self.version = self._session.version
        self.say_bytes(codec.encode(Beat(), self.version))

    def say(self, kind: str, must: list[str], fields: dict[str, Any]) -> None:
        """Say a message in these words."""
        self.say_bytes(msgspec.msgpack.encode([kind, must, fields]))

    def say_bytes(self, body: bytes) -> None:
        """Say a body."""
        self._sent += 1
        key_id = self._ring.active_id
        name = key_id.encode().ljust(8, b"\0")
        signed = HEADER.pack(MAGIC, 1, MESSAGE, name, self._sent, len(body)) + body
        self._socket.sendall(signed + self._ring.mac(key_id, self._purpose, signed))

    def hear(self, kind: type[Any]) -> Any:
        """Wait for a message of a kind; None if the node closes the channel instead."""
        while True:
            try:
                message = self._session.open(self._frame())
            except ConnectionError:
                return None
            if isinstance(message, kind):
                return message

    def close(self) -> None:
        """Leave."""
        self._socket.close()

    def _frame(self) -> bytes:
        head = self._read(HEADER.size)
        return head + self._read(frame_bytes(head))

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self._socket.recv(size - len(data))
            if not more:
                raise ConnectionError
            data += more
        return data
