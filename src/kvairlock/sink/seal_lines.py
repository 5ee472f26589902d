"""The lines of `NODE.seals`: what they say, and which of them can be believed.

    1  begun   life 9f                                 before: -       mac --+
    2  sealed  decode-0-9f.000001.parquet  sha256 ...  before: <mac 1> mac <-+ --+
    3  ended   life 9f                                 before: <mac 2> mac     <-+

Each line is authenticated with the cluster's key and holds the MAC of the line before, so that who
lacks the key can't change, remove, add or reorder one, but can cut off the end. The MAC is bound to
the node, so that one node's lines are nothing in another's file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path

import msgspec

from kvairlock.core.errors import PeerMisbehaved
from kvairlock.sink.naming import Segment
from kvairlock.wire.keys import Keyring

PURPOSE = "evidence seal of"
UNKNOWN = "unknown"
"""Stands for the MAC of a line that can't be read: the chain does not hold there."""


class Act(StrEnum):
    """What was done, with a file or in a life."""

    BEGUN = "begun"
    """A life began: what it leaves open may be sealed by a later one."""
    SEALED = "sealed"
    RECOVERED = "recovered"
    """Sealed by a later life: the one that wrote it had died."""
    ENDED = "ended"
    """Nothing of that life is open any more."""
    PRUNED = "pruned"


OF_LIVES = frozenset({Act.BEGUN, Act.ENDED})


class Content(msgspec.Struct, frozen=True, kw_only=True):
    """What a file holds; of a line about a life, the incarnation only.

    Args:
        incarnation: Whose life it is of.
        file: Its name.
        sha256: Of its bytes, in hex; when it was pruned, of those that it had then, empty if it
            was gone.
        bytes: How many there are.
        segment: Which part of that life.
        first: Number of its first record.
        last: Number of its last record.
        records: How many there are; fewer than the numbers if some were lost.
        until_unix_ns: When its last record was made.
    """

    incarnation: str
    file: str = ""
    sha256: str = ""
    bytes: int = 0
    segment: int = 0
    first: int = 0
    last: int = 0
    records: int = 0
    until_unix_ns: int = 0


class Seal(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A line.

    Args:
        entry: Its number, from 1.
        at_unix_ns: When it was written.
        act: What was done.
        content: With which file, or in which life.
        before: MAC of the line before, in hex; empty in the first.
        key: Id of the key of the MAC.
        mac: MAC of the node and all the above, in hex.
    """

    entry: int
    at_unix_ns: int
    act: Act
    content: Content
    before: str
    key: str
    mac: str = ""

    def signed(self, node: str, ring: Keyring) -> Seal:
        """Return the line with its MAC."""
        mac = ring.mac(self.key, f"{PURPOSE} {node}", self._said())
        return msgspec.structs.replace(self, mac=mac.hex())

    def is_proven(self, node: str, ring: Keyring) -> bool:
        """Whether who wrote the line for this node had one of these keys."""
        try:
            ring.check(self.key, f"{PURPOSE} {node}", self._said(), bytes.fromhex(self.mac))
        except (PeerMisbehaved, ValueError):
            return False
        return True

    def is_of(self, node: str) -> bool:
        """Whether what it names is this node's: files are deleted by what is said here."""
        content = self.content
        if self.act in OF_LIVES:
            return not content.file
        own = Segment(node, content.incarnation, content.segment)
        return content.segment > 0 and Segment.of(content.file) == own

    def _said(self) -> bytes:
        return msgspec.json.encode(msgspec.structs.replace(self, mac=""))


def read(path: Path) -> list[Seal | None]:
    """Read the lines of a file of seals; None stands for one that can't be read.

    A last line without its end was being written when its writer died: it is no line.
    """
    data = path.read_bytes() if path.is_file() else b""
    return [parsed(line) for line in data.split(b"\n")[:-1]]


def parsed(line: bytes) -> Seal | None:
    """Return what a line says; None if it can't be read."""
    try:
        return msgspec.json.decode(line, type=Seal)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def faults(node: str, lines: Iterable[Seal | None], ring: Keyring | None) -> Iterator[str]:
    """Say of each line of a node what is wrong with it, empty if nothing is.

    Args:
        node: Whose seals they are.
        lines: All of them.
        ring: The cluster's keys; None leaves out who wrote them.
    """
    before: str | None = ""
    for number, seal in enumerate(lines, start=1):
        if seal is None:
            yield f"line {number} of the seals can't be read"
        elif seal.entry != number or seal.before != before:
            yield f"line {number} of the seals does not follow the one before"
        elif not seal.is_of(node):
            yield f"line {number} of the seals is about no file of this node"
        elif ring is not None and seal.key not in ring.keys:
            yield f"its seal is of the key {seal.key}, which is not among those given"
        elif ring is not None and not seal.is_proven(node, ring):
            yield f"line {number} of the seals was not written with the cluster's key"
        else:
            yield ""
        before = None if seal is None else seal.mac


def believed(node: str, lines: list[Seal | None], ring: Keyring | None) -> list[Seal]:
    """Return the lines that nothing is wrong with, in order."""
    pairs = zip(lines, faults(node, lines, ring), strict=True)
    return [seal for seal, fault in pairs if seal is not None and not fault]


def alive(lines: Iterable[Seal]) -> frozenset[str]:
    """Return the lives that have begun and not ended: they may have open segments."""
    lives: set[str] = set()
    for seal in lines:
        if seal.act is Act.BEGUN:
            lives.add(seal.content.incarnation)
        elif seal.act is Act.ENDED:
            lives.discard(seal.content.incarnation)
    return frozenset(lives)


def sha256_of(path: Path) -> str:
    """Return the hash of a file, in hex; empty if there is no such file."""
    if not path.is_file():
        return ""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        return ""
