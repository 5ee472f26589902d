"""Whether evidence is what was recorded: files against their seals, and each seal against the next.

    NODE.seals ---line by line---> does the chain hold? ---> a state for each file that it names
    the folder ------------------> files that it does not name: open, or vouched for by nobody

Without the cluster's keys only hashes are compared, which finds accidents: whoever can write the
folder can also write seals that fit. With them, a change, a removal in the middle and another order
show. What does not show is an end that was cut off: seals and the newest files together. An audit
finds that by what others recorded (docs/evidence.md), and an operator by an earlier head.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from kvairlock.runtime.evidence_settings import Format
from kvairlock.sink import seals
from kvairlock.sink.naming import SEALS, Segment
from kvairlock.sink.reading import LINES, files
from kvairlock.sink.seals import Act, Content, Seal
from kvairlock.wire.keys import Keyring

CHUNK_BYTES = 1 << 20
CUT_OFF = "an earlier head of its seals is not there any more: their end was cut off"


class FileState(StrEnum):
    """What can be said of a file of evidence."""

    SEALED = "sealed"
    """It is as it was sealed."""
    OPEN = "open"
    """It is being written, or its life died and no later one has sealed it yet."""
    UNSEALED = "unsealed"
    """Nobody vouches for it: it is of 0.1.0, or was put here, or its seal was cut off."""
    ALTERED = "altered"
    """Its bytes are not those that were sealed."""
    MISSING = "missing"
    """It was sealed, is gone, and nothing says that it was pruned."""
    PRUNED = "pruned"
    """It was deleted when its time was over."""
    FORGED = "forged"
    """Its seal was not written by who has the cluster's key, or not in this place."""


GOOD = frozenset({FileState.SEALED, FileState.OPEN, FileState.PRUNED})


@dataclass(frozen=True, slots=True)
class Sealing:
    """What can be said of one file.

    Args:
        file: Its name.
        node: Who recorded; empty if its name does not say.
        incarnation: In which life.
        segment: Which part of that life; 0 if it has none.
        state: What can be said of it.
        records: How many records were sealed; None if it was not.
        first: Number of the first; None if it was not sealed.
        last: Number of the last; None if it was not sealed.
        reason: Why it is in this state, where that is not good.
    """

    file: str
    node: str
    incarnation: str
    segment: int
    state: FileState
    records: int | None = None
    first: int | None = None
    last: int | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class NodeChain:
    """Whether the seals of one node hold together.

    Args:
        node: Whose.
        entries: How many lines there are.
        holds: Whether each is whole and bound to the one before.
        head: MAC of the last one: kept elsewhere, it shows later whether the end was cut off.
        reason: What is wrong first, if it does not hold.
    """

    node: str
    entries: int
    holds: bool
    head: str
    reason: str


@dataclass(frozen=True, slots=True)
class Chain:
    """What can be said of a folder of evidence.

    Args:
        files: Its files, also those that are gone.
        nodes: Its chains.
        proven: Whether seals were checked with the cluster's keys, and not hashes only.
    """

    files: tuple[Sealing, ...]
    nodes: tuple[NodeChain, ...]
    proven: bool

    @property
    def whole(self) -> bool:
        """Whether nothing was removed or changed, as far as can be seen here."""
        files = all(file.state in GOOD for file in self.files)
        return files and all(node.holds for node in self.nodes)


def verify(folder: Path, ring: Keyring | None, heads: Mapping[str, str] | None = None) -> Chain:
    """Compare the files of a folder with their seals, and the seals with each other.

    Args:
        folder: Where processes record, or have recorded.
        ring: The cluster's keys, and earlier ones if seals are as old; None compares hashes only.
        heads: For each node the head of its chain as it was once: it must still be in it.
    """
    earlier = dict(heads or {})
    rows: dict[str, Sealing] = {}
    nodes = []
    for path in sorted(folder.glob(f"*{SEALS}")):
        node = path.name.removesuffix(SEALS)
        lines = seals.read(path)
        faults = list(_faults(lines, ring))
        nodes.append(_chain(node, lines, faults, earlier.pop(node, "")))
        rows |= {row.file: row for row in _named(folder, node, lines, faults)}
    rows |= {path.name: _unnamed(path) for path in files(folder) if path.name not in rows}
    nodes += [NodeChain(node, 0, False, "", CUT_OFF) for node, head in earlier.items() if head]
    found = sorted([*rows.values(), *_skipped(rows.values())], key=lambda row: row.file)
    return Chain(tuple(found), tuple(nodes), ring is not None)


def _faults(lines: list[Seal | None], ring: Keyring | None) -> Iterator[str]:
    """Say of each line what is wrong with it, empty if nothing is."""
    before: str | None = ""
    for number, seal in enumerate(lines, start=1):
        if seal is None:
            yield f"line {number} of the seals can't be read"
        elif seal.entry != number or seal.before != before:
            yield f"line {number} of the seals does not follow the one before"
        elif ring is not None and seal.key not in ring.keys:
            yield f"its seal is of the key {seal.key}, which is not among those given"
        elif ring is not None and not seal.is_proven(ring):
            yield f"line {number} of the seals was not written with the cluster's key"
        else:
            yield ""
        before = None if seal is None else seal.mac


def _chain(node: str, lines: list[Seal | None], faults: list[str], earlier: str) -> NodeChain:
    last = lines[-1] if lines else None
    reason = next(filter(None, faults), "")
    if earlier and earlier not in {seal.mac for seal in lines if seal is not None}:
        reason = reason or CUT_OFF
    return NodeChain(node, len(lines), not reason, last.mac if last else "", reason)


def _named(
    folder: Path, node: str, lines: list[Seal | None], faults: list[str]
) -> Iterator[Sealing]:
    """Yield what can be said of each file that the seals name; the last line on it counts."""
    pruned = {s.content.file for s in lines if s is not None and s.act is Act.PRUNED}
    for seal, fault in zip(lines, faults, strict=True):
        if seal is not None:
            state, reason = _state(folder, seal.content, fault, seal.content.file in pruned)
            yield _row(node, seal.content, state, reason)


def _state(folder: Path, content: Content, fault: str, pruned: bool) -> tuple[FileState, str]:
    path = folder / content.file
    if fault:
        return FileState.FORGED, fault
    if pruned:
        return FileState.PRUNED, ""
    if not path.is_file():
        return FileState.MISSING, "it was sealed, and is gone"
    if _sha256(path) != content.sha256:
        return FileState.ALTERED, "its bytes are not those that were sealed"
    return FileState.SEALED, ""


def _row(node: str, content: Content, state: FileState, reason: str) -> Sealing:
    return Sealing(
        file=content.file,
        node=node,
        incarnation=content.incarnation,
        segment=content.segment,
        state=state,
        records=content.records,
        first=content.first,
        last=content.last,
        reason=reason,
    )


def _unnamed(path: Path) -> Sealing:
    segment = Segment.of(path.name)
    if segment is None:
        return Sealing(path.name, "", "", 0, FileState.UNSEALED, reason="no node is named so")
    # While the lines are still there, a Parquet file without a seal is about to get one.
    open_ = segment.number > 0 and path.with_suffix(LINES).exists()
    state = FileState.OPEN if open_ else FileState.UNSEALED
    reason = "" if open_ else "no seal names it"
    place = (segment.node, segment.incarnation, segment.number)
    return Sealing(path.name, *place, state, reason=reason)


def _skipped(rows: Iterable[Sealing]) -> Iterator[Sealing]:
    """Yield what must have been there: a life numbers its segments from 1, without a gap."""
    lives: dict[tuple[str, str], set[int]] = {}
    for row in rows:
        lives.setdefault((row.node, row.incarnation), set()).add(row.segment)
    for (node, incarnation), numbers in lives.items():
        for number in sorted(set(range(1, max(numbers))) - numbers):
            name = Segment(node, incarnation, number).name(Format.PARQUET)
            reason = "later ones of its life are there"
            yield Sealing(name, node, incarnation, number, FileState.MISSING, reason=reason)


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while part := file.read(CHUNK_BYTES):
            digest.update(part)
    return digest.hexdigest()
