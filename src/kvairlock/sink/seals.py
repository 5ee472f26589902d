"""What a node has sealed: `NODE.seals`, a line for each file, each bound to the line before.

    1  decode-0-9f.000001.parquet  sha256  before: -       mac --+
    2  decode-0-9f.000002.parquet  sha256  before: <mac 1> mac <-+ --+
    3  decode-0-77.000001.parquet  sha256  before: <mac 2> mac     <-+   the next life goes on

Each line is authenticated with the cluster's key and holds the MAC of the line before, so that who
lacks the key can't change, remove, add or reorder one, but can cut off the end. A file that is
deleted when its time is over has a line of its own: that is how retention and theft differ.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path

import msgspec

from kvairlock.core.errors import PeerMisbehaved
from kvairlock.sink.naming import SEALS
from kvairlock.wire.keys import Keyring

PURPOSE = "evidence seal"
UNKNOWN = "unknown"
"""Stands for the MAC of a line that can't be read: the chain does not hold there."""


class Act(StrEnum):
    """What was done with a file."""

    SEALED = "sealed"
    RECOVERED = "recovered"
    """Sealed by a later life: the one that wrote it had died."""
    PRUNED = "pruned"


class Content(msgspec.Struct, frozen=True, kw_only=True):
    """What a file holds.

    Args:
        file: Its name.
        sha256: Of its bytes, in hex.
        bytes: How many there are.
        incarnation: Whose life it is of.
        segment: Which part of that life.
        first: Number of its first record.
        last: Number of its last record.
        records: How many there are; fewer than the numbers if some were lost.
    """

    file: str
    sha256: str
    bytes: int
    incarnation: str
    segment: int
    first: int
    last: int
    records: int


class Seal(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A line.

    Args:
        entry: Its number, from 1.
        at_unix_ns: When it was written.
        act: What was done.
        content: With which file.
        before: MAC of the line before, in hex; empty in the first.
        key: Id of the key of the MAC.
        mac: MAC of all the above, in hex.
    """

    entry: int
    at_unix_ns: int
    act: Act
    content: Content
    before: str
    key: str
    mac: str = ""

    def said(self) -> bytes:
        """Return what the MAC is made of."""
        return msgspec.json.encode(msgspec.structs.replace(self, mac=""))

    def is_proven(self, ring: Keyring) -> bool:
        """Whether who wrote the line had one of these keys."""
        try:
            ring.check(self.key, PURPOSE, self.said(), bytes.fromhex(self.mac))
        except (PeerMisbehaved, ValueError):
            return False
        return True


class Seals:
    """The seals of one node, as its process or an operator adds to them.

    Args:
        folder: Where the evidence is.
        node: Whose.
        ring: The cluster's keys.
    """

    def __init__(self, folder: Path, node: str, ring: Keyring) -> None:
        self.folder, self.node = folder, node
        self._path, self._ring = folder / f"{node}{SEALS}", ring

    def entries(self) -> list[Seal]:
        """Return the lines that can be read, in order."""
        return [seal for seal in read(self._path) if seal is not None]

    def kept(self) -> dict[str, Seal]:
        """Return the seals of files that were not pruned, by file name, in order."""
        kept: dict[str, Seal] = {}
        for seal in self.entries():
            if seal.act is Act.PRUNED:
                kept.pop(seal.content.file, None)
            else:
                kept[seal.content.file] = seal
        return kept

    def add(self, act: Act, content: Content) -> None:
        """Write a line, through a power loss too, before this returns.

        Raises:
            OSError: It cannot be written.
        """
        with self._alone() as file:
            lines = _whole(file)
            seal = self._next(lines, act, content)
            _put(file, msgspec.json.encode(seal) + b"\n")

    def _next(self, lines: list[bytes], act: Act, content: Content) -> Seal:
        ring = self._ring
        seal = Seal(
            entry=len(lines) + 1,
            at_unix_ns=time.time_ns(),
            act=act,
            content=content,
            before=_mac_of(lines[-1]) if lines else "",
            key=ring.active_id,
        )
        mac = ring.mac(seal.key, PURPOSE, seal.said())
        return msgspec.structs.replace(seal, mac=mac.hex())

    @contextmanager
    def _alone(self) -> Iterator[int]:
        """An operator may prune while the node runs: one at a time writes."""
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield file
        finally:
            os.close(file)


def read(path: Path) -> list[Seal | None]:
    """Read the lines of a file of seals; None stands for one that can't be read.

    A last line without its end was being written when its writer died: it is no line.
    """
    data = path.read_bytes() if path.exists() else b""
    return [_parsed(line) for line in data.split(b"\n")[:-1]]


def _parsed(line: bytes) -> Seal | None:
    try:
        seal = msgspec.json.decode(line, type=Seal)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    # Files are deleted by what is said here: a path that leads elsewhere is none.
    return seal if seal.content.file == Path(seal.content.file).name else None


def _mac_of(line: bytes) -> str:
    seal = _parsed(line)
    return UNKNOWN if seal is None else seal.mac


def _whole(file: int) -> list[bytes]:
    """Return the lines of an open file, and cut off one that was not written to its end."""
    data = b""
    while part := os.pread(file, 1 << 20, len(data)):
        data += part
    whole, end, torn = data.rpartition(b"\n")
    if torn:
        os.ftruncate(file, len(whole) + len(end))
    return whole.split(b"\n") if end else []


def _put(file: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(file, rest) :]
    os.fsync(file)
