"""What the seals of evidence files say, as an audit takes it: whose files can't be believed.

    NODE.seals ---verify---> a state per file -+-> altered, forged, missing,
                                               |   sealed by nobody: a gap of that whole life
                                               +-> sealed, open, pruned: counted, and said

A file that was changed may say anything, so nothing in its life is taken for proof, neither that
somebody was read nor that nobody was: what rests on it is insufficient. Without the cluster's keys
only hashes are compared, which finds accidents, and nobody who rewrote the seals as well.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from kvairlock.audit.spans import Gap
from kvairlock.sink.chain import FileState, Sealing, verify
from kvairlock.sink.naming import SEALS
from kvairlock.wire.keys import Keyring

SUFFIXES = (".jsonl", ".parquet")

_GAPS = {
    FileState.ALTERED: Gap.FILE_ALTERED,
    FileState.FORGED: Gap.SEAL_FORGED,
    FileState.MISSING: Gap.FILE_REMOVED,
    FileState.UNSEALED: Gap.FILE_UNSEALED,
}


@dataclass(frozen=True, slots=True)
class Broken:
    """A file whose life can't be believed.

    Args:
        node: Whose it is.
        incarnation: In which of its lives.
        gap: What is wrong.
        file: Its name.
    """

    node: str
    incarnation: str
    gap: Gap
    file: str


@dataclass(frozen=True, slots=True)
class Seals:
    """What the seals of everything that was opened say.

    Args:
        keyed: Whether the cluster's keys were there: else only hashes were compared.
        states: How many files are in each state.
        broken: The files that can't be believed.
    """

    keyed: bool = False
    states: tuple[tuple[str, int], ...] = ()
    broken: tuple[Broken, ...] = ()


NO_SEALS = Seals()


def seals_of(paths: Iterable[Path], ring: Keyring | None) -> Seals:
    """Compare files with their seals.

    Args:
        paths: What was named: a folder stands for all that was sealed in it, a file for itself.
        ring: The cluster's keys, without which only hashes are compared.
    """
    found = [row for folder, only in _folders(paths) for row in _rows(folder, only, ring)]
    states = Counter(str(row.state) for row in found)
    broken = [_broken(row) for row in found if row.state in _GAPS and not _is_of_old(row)]
    return Seals(ring is not None, tuple(sorted(states.items())), tuple(broken))


def _folders(paths: Iterable[Path]) -> Iterator[tuple[Path, frozenset[str]]]:
    """Yield each folder with the only names that are meant in it; none if all are."""
    named: dict[Path, set[str]] = {}
    for path in paths:
        if path.is_dir():
            inside = {p.parent for p in path.rglob("*") if p.suffix in (*SUFFIXES, SEALS)}
            named.update({folder: set() for folder in inside})
        elif path.parent not in named or named[path.parent]:
            named.setdefault(path.parent, set()).add(path.name)
    for folder in sorted(named):
        yield folder, frozenset(named[folder])


def _rows(folder: Path, only: frozenset[str], ring: Keyring | None) -> list[Sealing]:
    rows = verify(folder, ring).files
    return [row for row in rows if not only or row.file in only]


def _is_of_old(row: Sealing) -> bool:
    """Whether a file is one that was never meant to be sealed: it is no part of a life."""
    return row.state is FileState.UNSEALED and row.segment == 0


def _broken(row: Sealing) -> Broken:
    return Broken(row.node, row.incarnation, _GAPS[row.state], row.file)
