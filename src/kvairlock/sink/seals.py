"""What a node has sealed: `NODE.seals`, to which its processes, life after life, add lines.

    begun      a life writes it before its first record
    sealed     a file changes no more           (recovered: a later life sealed it)
    pruned     a file is deleted, because its time is over
    ended      nothing of a life is open any more

What is done to files by what the seals say is done by lines that can be believed, and by no other
(`kvairlock.sink.seal_lines`). That a file is deleted when its time is over has a line of its own:
that is how retention and theft differ.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from kvairlock.sink.naming import SEALS
from kvairlock.sink.seal_lines import (
    OF_LIVES,
    UNKNOWN,
    Act,
    Content,
    Seal,
    alive,
    believed,
    parsed,
    read,
)
from kvairlock.wire.keys import Keyring


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
        """Return the lines that can be believed, in order."""
        return believed(self.node, read(self._path), self._ring)

    def doubted(self) -> int:
        """Return how many lines can't be believed, or not with the keys that are given."""
        return len(read(self._path)) - len(self.entries())

    def alive(self) -> frozenset[str]:
        """Return the lives that may have open segments."""
        return alive(self.entries())

    def kept(self) -> dict[str, Seal]:
        """Return the seals of files that were not pruned, by file name, in order."""
        kept: dict[str, Seal] = {}
        for seal in self.entries():
            if seal.act is Act.PRUNED:
                kept.pop(seal.content.file, None)
            elif seal.act not in OF_LIVES:
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
        seal = Seal(
            entry=len(lines) + 1,
            at_unix_ns=time.time_ns(),
            act=act,
            content=content,
            before=_mac_of(lines[-1]) if lines else "",
            key=self._ring.active_id,
        )
        return seal.signed(self.node, self._ring)

    @contextmanager
    def _alone(self) -> Iterator[int]:
        """An operator may prune while the node runs: one at a time writes."""
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
        file = os.open(self._path, flags, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield file
        finally:
            os.close(file)


def names(path: Path, node: str) -> bool:
    """Whether the seals of a node name a file as one that it sealed, believed or not."""
    lines = read(path.parent / f"{node}{SEALS}")
    return any(seal is not None and seal.content.file == path.name for seal in lines)


def _mac_of(line: bytes) -> str:
    seal = parsed(line)
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
