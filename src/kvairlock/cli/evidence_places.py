"""Where evidence is, and the keys that it was written with.

A stack keeps both in its state folder, so the keys of evidence are those of the folder that it lies
in: neither `kvairlock audit ./kept` nor an audit of another machine's files takes this one's keys.
Each file is looked for by itself, since a folder of several stacks keeps some of them once:

    kept/cluster.key   kept/keys.toml   kept/stack-1/evidence.key   kept/stack-1/evidence/*.parquet
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from kvairlock.audit.joining import Digests
from kvairlock.cli.output import note
from kvairlock.cli.places import (
    CLUSTER_KEY_FILE,
    EVIDENCE,
    EVIDENCE_KEY_FILE,
    default_state,
)
from kvairlock.runtime.secrets import (
    EVIDENCE_VARIABLE,
    VARIABLE,
    KeysWrong,
    load_keyring,
    load_pseudonyms,
    pseudonyms_in,
)
from kvairlock.sink.reading import LINES, PARQUET
from kvairlock.wire.keys import Keyring

ABOVE_MAX = 3
"""How many folders a state folder may be above evidence: `STATE/stack-1/evidence/FILE`."""


def evidence_in(paths: Sequence[Path] | None) -> list[Path]:
    """Return what was named, or else the evidence of the default state folder."""
    return list(paths) if paths else [default_state() / EVIDENCE]


def state_of(paths: Sequence[Path], named: Path | None) -> Path | None:
    """Return the state folder of evidence: the one that is named, or the one that it lies in.

    Args:
        paths: The evidence.
        named: The state folder, if the user says where it is.
    """
    found = above(paths, CLUSTER_KEY_FILE)
    return named or (found[0].parent if found else None)


def above(paths: Sequence[Path], name: str) -> list[Path]:
    """Return the nearest file of a name above each folder of evidence: each has its own keys.

    Args:
        paths: Files and folders of evidence, of one stack or of several.
        name: The file to look for, in each folder itself and up to `ABOVE_MAX` above.
    """
    found = (_nearest(folder.absolute(), name) for folder in _folders(paths))
    return list(dict.fromkeys(file for file in found if file is not None))


def _folders(paths: Sequence[Path]) -> list[Path]:
    """Return the folders that evidence lies in, and those that were named."""
    inside = {
        found.parent
        for path in paths
        for found in path.rglob("*")
        if found.suffix in (LINES, PARQUET)
    }
    named = [path if path.is_dir() else path.parent for path in paths]
    return [*sorted(inside), *named]


def _nearest(folder: Path, name: str) -> Path | None:
    folders = [folder, *folder.parents][: ABOVE_MAX + 1]
    return next((each / name for each in folders if (each / name).is_file()), None)


def keys_of(name: str, paths: Sequence[Path], state: Path | None) -> list[Path]:
    """Return the files of one name that belong to evidence, wherever a stack has kept them.

    Args:
        name: The file to look for.
        paths: The evidence.
        state: Its state folder: what is there comes first.
    """
    own = [state / name] if state is not None and (state / name).is_file() else []
    return own or above(paths, name)


def ring_of(named: Path | None, state: Path | None) -> Keyring | None:
    """Return the cluster's keys, None if there are none; nothing is ever made.

    Args:
        named: The key file, if the user says where it is.
        state: The state folder of the evidence.

    Raises:
        KeysWrong: There are some, and they can't be used.
    """
    if VARIABLE in os.environ:
        if named is not None:
            raise KeysWrong(f"both {VARIABLE} and --cluster-key are given; use one of them")
        return load_keyring(None)
    file = named or (state / CLUSTER_KEY_FILE if state else None)
    if file is None or (named is None and not file.exists()):
        return None
    return load_keyring(file)


def digests_of(ring: Keyring, paths: Sequence[Path], state: Path | None) -> Digests:
    """Return what makes digests of names, as the processes that recorded evidence did.

    Args:
        ring: The cluster's keys.
        paths: The evidence.
        state: The state folder of the evidence.

    Raises:
        KeysWrong: A key of evidence can't be used.
    """
    if EVIDENCE_VARIABLE in os.environ:
        return Digests(ring, [load_pseudonyms(None, ring)])
    files = keys_of(EVIDENCE_KEY_FILE, paths, state)
    if not files:
        note(f"no {EVIDENCE_KEY_FILE} lies with the evidence: only the cluster's keys digest names")
    return Digests(ring, [pseudonyms_in(file) for file in files])
