"""What the seals of evidence files say, as an audit takes it: whose files can't be believed.

    NODE.seals ---verify---> a state per file -+-> altered, forged, missing,
                                               |   sealed by nobody: a gap of that whole life
                                               +-> sealed, open, pruned: counted, and said

A file that was changed may say anything, so nobody who was on its life is excluded: a request of it
is insufficient at best. Where a name does not say whose a file is, the gap is of every life that it
speaks of. Without the cluster's keys only hashes are compared, which finds accidents, and nobody
who rewrote the seals as well.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from kvairlock.audit.inside import Lives
from kvairlock.audit.numbering import Key
from kvairlock.audit.spans import Gap
from kvairlock.sink.chain import FileState, Sealing, verify
from kvairlock.sink.naming import SEALS
from kvairlock.wire.keys import Keyring

SUFFIXES = (".jsonl", ".parquet")
SCHEMA_UNSEALED = 1
"""The last schema whose files were never sealed."""
CLOSED = "its life has closed, and no seal names it"

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
        reason: What was seen.
    """

    node: str
    incarnation: str
    gap: Gap
    file: str
    reason: str = ""


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


def sealings(paths: Iterable[Path], ring: Keyring | None) -> list[Sealing]:
    """Compare files with their seals.

    Args:
        paths: What was named: a folder stands for all that was sealed in it, a file for itself.
        ring: The cluster's keys, without which only hashes are compared.
    """
    return [row for folder, only in _folders(paths) for row in _rows(folder, only, ring)]


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


def seals_of(rows: Iterable[Sealing], inside: Mapping[str, Lives], *, keyed: bool) -> Seals:
    """Say which files can't be believed.

    Args:
        rows: What `sealings` returns.
        inside: For each file that was looked into, what it holds.
        keyed: Whether the cluster's keys were there.
    """
    found = list(rows)
    sealed = {(row.node, row.incarnation) for row in found if row.records is not None}
    states = Counter(str(row.state) for row in found)
    broken = [
        Broken(*life, gap, row.file, reason)
        for row in found
        for life, gap, reason in _broken(row, inside.get(row.file, {}), sealed)
    ]
    return Seals(keyed, tuple(sorted(states.items())), tuple(broken))


def _broken(row: Sealing, inside: Lives, sealed: set[Key]) -> Iterator[tuple[Key, Gap, str]]:
    if row.state is FileState.OPEN:
        if any(held.closes for held in inside.values()):
            yield (row.node, row.incarnation), Gap.FILE_UNSEALED, CLOSED
    elif row.state in _GAPS and row.segment:
        yield (row.node, row.incarnation), _GAPS[row.state], row.reason
    elif row.state in _GAPS:
        for life, held in inside.items():
            if held.schema > SCHEMA_UNSEALED or life in sealed:
                yield life, _GAPS[row.state], row.reason
