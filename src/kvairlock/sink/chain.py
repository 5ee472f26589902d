"""Whether evidence is what was recorded: files against their seals, and each seal against the next.

    NODE.seals ---line by line---> does the chain hold? ---> a state for each file that it names
    the folder ------------------> files that it does not name: open, if their life is, or vouched
                                   for by nobody

Without the cluster's keys only hashes are compared, which finds accidents: whoever can write the
folder can also write seals that fit. With them, a change, a removal in the middle and another order
show. What does not show is an end that was cut off: seals and the newest files together. An audit
finds that by what others recorded (docs/evidence.md), and an operator by an earlier head.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from pathlib import Path

from kvairlock.runtime.evidence_settings import Format
from kvairlock.sink.naming import SEALS, Segment
from kvairlock.sink.reading import LINES, PARQUET, all_files
from kvairlock.sink.seal_lines import OF_LIVES, Act, Seal, alive, believed, faults, read, sha256_of
from kvairlock.wire.keys import Keyring

LOOKS_MAX = 5
"""How often a folder is looked at that changes meanwhile."""
CUT_OFF = "an earlier head of its seals is not there any more: their end was cut off"


class FileState(StrEnum):
    """What can be said of a file of evidence."""

    SEALED = "sealed"
    """It is as it was sealed."""
    OPEN = "open"
    """It is of a life that has begun and not ended: no seal protects it yet."""
    UNSEALED = "unsealed"
    """Nobody vouches for it: it is of 0.1.0, or was put here, or its seal was cut off."""
    ALTERED = "altered"
    """Its bytes are not those that were sealed, or were not when it was deleted."""
    MISSING = "missing"
    """It was sealed, is gone, and was so before its time was over."""
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
        act: What was last done with it: sealed by its own life or by a later one (recovered), or
            pruned; None if it has no seal.
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
    act: Act | None = None
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
    before: set[tuple[str, str]] = set()
    for _ in range(LOOKS_MAX):
        chain = _look(folder, ring, heads or {})
        bad = _bad(chain)
        # A file that was pruned after the seals were read is missing once. Where nothing is bad
        # there is no second look: each reads every file.
        if not bad or bad == before:
            break
        before = bad
    return chain


def _bad(chain: Chain) -> set[tuple[str, str]]:
    files = {(file.file, str(file.state)) for file in chain.files if file.state not in GOOD}
    return files | {(node.node, node.reason) for node in chain.nodes if not node.holds}


def _look(folder: Path, ring: Keyring | None, heads: Mapping[str, str]) -> Chain:
    there = all_files(folder)  # before the seals: what is sealed meanwhile is in both
    earlier = dict(heads)
    rows: dict[str, Sealing] = {}
    nodes = []
    lives: set[tuple[str, str]] = set()
    for path in sorted(folder.glob(f"*{SEALS}")):
        node = path.name.removesuffix(SEALS)
        lines = read(path)
        wrong = list(faults(node, lines, ring))
        nodes.append(_chain(node, lines, wrong, earlier.pop(node, "")))
        rows |= {row.file: row for row in _named(folder, node, lines, wrong)}
        lives |= {(node, life) for life in alive(believed(node, lines, ring))}
    for path in there:
        if not _is_passed_over(path, rows, lives):
            rows[path.name] = _unnamed(path, lives)
    nodes += [NodeChain(node, 0, False, "", CUT_OFF) for node, head in earlier.items() if head]
    found = sorted([*rows.values(), *_skipped(rows.values())], key=lambda row: row.file)
    return Chain(tuple(found), tuple(nodes), ring is not None)


def _chain(node: str, lines: list[Seal | None], faults: list[str], earlier: str) -> NodeChain:
    last = lines[-1] if lines else None
    reason = next(filter(None, faults), "")
    if earlier and earlier not in {seal.mac for seal in lines if seal is not None}:
        reason = reason or CUT_OFF
    return NodeChain(node, len(lines), not reason, last.mac if last else "", reason)


def _named(
    folder: Path, node: str, lines: list[Seal | None], wrong: list[str]
) -> Iterator[Sealing]:
    """Yield what can be said of each file that the seals name; the last line on it counts."""
    sealed: dict[str, str] = {}
    for seal, fault in zip(lines, wrong, strict=True):
        if seal is not None and seal.is_of(node) and seal.act not in OF_LIVES:
            expected = sealed.setdefault(seal.content.file, seal.content.sha256)
            state, reason = (FileState.FORGED, fault) if fault else _state(folder, seal, expected)
            yield _row(node, seal, state, reason)


def _state(folder: Path, seal: Seal, expected: str) -> tuple[FileState, str]:
    """Compare a file with its seal; of one that was pruned, the hash that it had then."""
    pruned = seal.act is Act.PRUNED
    found = seal.content.sha256 if pruned else sha256_of(folder / seal.content.file)
    when = "was, when its time was over," if pruned else "is"
    if not found:
        return FileState.MISSING, f"it was sealed, and {when} gone"
    if found != expected:
        return FileState.ALTERED, f"it {when} not as it was sealed"
    return (FileState.PRUNED if pruned else FileState.SEALED), ""


def _row(node: str, seal: Seal, state: FileState, reason: str) -> Sealing:
    content = seal.content
    return Sealing(
        file=content.file,
        node=node,
        incarnation=content.incarnation,
        segment=content.segment,
        state=state,
        act=seal.act,
        records=content.records,
        first=content.first,
        last=content.last,
        reason=reason,
    )


def _is_passed_over(path: Path, rows: Mapping[str, Sealing], lives: set[tuple[str, str]]) -> bool:
    """Whether nobody reads a file, or its seal was said to be something already.

    That is so with lines whose segment was sealed as Parquet, which are about to be removed, and
    with a Parquet file beside lines of a life that goes on, which is about to be sealed.
    """
    if path.name in rows:
        return True
    if path.suffix == LINES:
        return path.with_suffix(PARQUET).name in rows
    lines = rows.get(path.with_suffix(LINES).name)
    return lines is not None and (lines.node, lines.incarnation) in lives


def _unnamed(path: Path, lives: set[tuple[str, str]]) -> Sealing:
    segment = Segment.of(path.name)
    if segment is None:
        return Sealing(path.name, "", "", 0, FileState.UNSEALED, reason="no node is named so")
    life = (segment.node, segment.incarnation)
    if segment.number > 0 and path.suffix == LINES and (life in lives or _is_empty(path)):
        return Sealing(path.name, *life, segment.number, FileState.OPEN)
    return Sealing(path.name, *life, segment.number, FileState.UNSEALED, reason="no seal names it")


def _is_empty(path: Path) -> bool:
    """Whether nothing is in a file, as when its life is about to begin; or has ended so."""
    return not path.exists() or path.stat().st_size == 0


def _skipped(rows: Iterable[Sealing]) -> Iterator[Sealing]:
    """Yield what must have been there: a life numbers its segments from 1, without a gap."""
    lives: dict[tuple[str, str], set[int]] = {}
    for row in rows:
        lives.setdefault((row.node, row.incarnation), set()).add(row.segment)
    for (node, incarnation), numbers in lives.items():
        for before, number in pairwise([0, *sorted(numbers)]):
            if number > before + 1:
                name = Segment(node, incarnation, before + 1).name(Format.PARQUET)
                reason = f"later ones of its life are there, from segment {number} on"
                yield Sealing(name, node, incarnation, before + 1, FileState.MISSING, reason=reason)
