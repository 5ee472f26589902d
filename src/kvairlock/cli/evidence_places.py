"""Where evidence is, and the keys that it was written with.

A stack keeps both in its state folder, so the keys of evidence are those of the folder that it lies
in: neither `kvairlock audit ./kept` nor an audit of another machine's files takes this one's keys.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from kvairlock.audit.joining import Digests
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
    if named is not None:
        return named
    for path in paths:
        folders = [path.absolute(), *path.absolute().parents][: ABOVE_MAX + 1]
        for folder in folders:
            if (folder / CLUSTER_KEY_FILE).is_file():
                return folder
    return None


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


def digests_of(ring: Keyring, state: Path | None) -> Digests:
    """Return what makes digests of names, as the processes that recorded evidence did.

    Args:
        ring: The cluster's keys.
        state: The state folder of the evidence.

    Raises:
        KeysWrong: There is one, and it can't be used.
    """
    if EVIDENCE_VARIABLE in os.environ:
        return Digests(ring, load_pseudonyms(None, ring))
    file = state / EVIDENCE_KEY_FILE if state else None
    return Digests(ring, pseudonyms_in(file) if file is not None and file.exists() else None)
