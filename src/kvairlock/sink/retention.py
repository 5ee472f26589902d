"""Deletes evidence whose time is over, or for which there is no room, and says so in the seals.

A line that a file was pruned is written before the file goes, with the hash that it has then: a
file that is gone without one was taken by somebody else, and one that was changed before shows as
that for ever. Only what is sealed is deleted, oldest first, never what is being written.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate
from pathlib import Path

from msgspec.structs import replace

from kvairlock.sink.seal_lines import Act, Seal, sha256_of
from kvairlock.sink.seals import Seals

NS_PER_DAY = 86_400 * 10**9
MIB = 1024 * 1024


def expired(seals: Seals, before_unix_ns: int, bytes_max: int = 0) -> list[Seal]:
    """Return the seals of files that are to go, oldest first.

    Args:
        seals: Those of one node.
        before_unix_ns: Files whose last record was made before are over.
        bytes_max: How much the others may take; 0 sets no limit.
    """
    kept = sorted(seals.kept().values(), key=lambda seal: seal.content.until_unix_ns)
    old = [seal for seal in kept if seal.content.until_unix_ns < before_unix_ns]
    return old + _too_much(kept[len(old) :], bytes_max)


def _too_much(kept: list[Seal], bytes_max: int) -> list[Seal]:
    """Return the oldest seals that are over a limit, counted from the newest on."""
    sizes = accumulate(seal.content.bytes for seal in reversed(kept))
    fitting = sum(total <= bytes_max for total in sizes) if bytes_max else len(kept)
    return kept[: len(kept) - fitting]


def prune(seals: Seals, which: Iterable[Seal]) -> list[Path]:
    """Delete files; what an earlier call was cut short in is finished.

    Args:
        seals: Those of one node.
        which: Seals of the files.

    Returns:
        The files that are gone.

    Raises:
        OSError: A file can't be deleted, or that can't be written down.
    """
    for seal in which:
        found = sha256_of(seals.folder / seal.content.file)
        seals.add(Act.PRUNED, replace(seal.content, sha256=found))
    kept = seals.kept()
    gone = [s.content.file for s in seals.entries() if s.act is Act.PRUNED]
    paths = [seals.folder / file for file in gone if file not in kept]
    there = [path for path in paths if path.exists()]
    for path in there:
        path.unlink(missing_ok=True)
    return there
