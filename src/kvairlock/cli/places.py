"""Where a stack keeps what outlives it: keys of tenants, of the cluster and of evidence, evidence.

Made on first use, for their owner only. A file that the user names must exist: a typing mistake
must not become a fresh set of keys.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import anyio

from kvairlock.runtime import folders
from kvairlock.runtime.secrets import (
    EVIDENCE_VARIABLE,
    VARIABLE,
    KeysWrong,
    load_keyring,
    load_pseudonyms,
    new_key,
    pseudonyms_in,
    remove_left,
    write_private,
)
from kvairlock.wire.keys import KEY_ID_BYTES, Keyring
from kvairlock.wire.pseudonyms import Pseudonyms

KEYS_FILE = "keys.toml"
CLUSTER_KEY_FILE = "cluster.key"
EVIDENCE_KEY_FILE = "evidence.key"
EVIDENCE = "evidence"
LOOK_S = 60
"""How often the evidence key is brought up to now: a new period begins at any time of day."""
EVIDENCE_COMMENT = "# SINCE_UNIX_S DAYS HEX: the key of the pseudonyms in a cluster's evidence\n"
RING_COMMENT = "# ID HEX: keys of a kvairlock cluster; the first signs and all are believed\n"


def default_state() -> Path:
    """Return the state directory: `$XDG_STATE_HOME/kvairlock`, or the one below the home."""
    return folders.of_user("XDG_STATE_HOME", ".local/state")


def cluster_ring(named: Path | None, state: Path) -> Keyring:
    """Return the cluster's keys: of the named file, of the environment, or of the state directory.

    The last is made if absent.

    Raises:
        KeysWrong: They cannot be used, or both a file and the environment claim to hold them.
    """
    if VARIABLE in os.environ:
        if named is not None:
            raise KeysWrong(f"both {VARIABLE} and --cluster-key are given; use one of them")
        return load_keyring(None)
    path = named or state / CLUSTER_KEY_FILE
    if named is None and not path.exists():
        write_ring(path, Keyring.parse(fresh_key()))
    return load_keyring(path)


def pseudonyms(ring: Keyring, state: Path, days: int, now_unix_s: int) -> Pseudonyms:
    """Return the evidence key: of the environment, or of the state directory, brought up to now.

    The latter is made if absent. Once a period is over its key is replaced by the next one, from
    which it can't be computed; if periods get another length, a new one begins.

    Args:
        ring: The cluster's keys.
        state: The state directory.
        days: How long a period is.
        now_unix_s: The time.

    Raises:
        KeysWrong: The key cannot be used.
        OSError: It cannot be written.
    """
    if EVIDENCE_VARIABLE in os.environ:
        return load_pseudonyms(None, ring).at(now_unix_s)
    path = state / EVIDENCE_KEY_FILE
    remove_left(path)
    if not path.exists():
        write_pseudonyms(path, Pseudonyms.fresh(now_unix_s, days))
    kept = pseudonyms_in(path)
    current = kept.at(now_unix_s).lasting(days, now_unix_s)
    if current != kept:
        write_pseudonyms(path, current)
    return current


async def keep_pseudonyms(files: Iterable[Path]) -> None:
    """Bring files of the evidence key up to now whenever a period is over; runs until cancelled.

    Processes go over to the next key by themselves: this is for who starts or takes a file later.
    No key is made here and no period gets another length: a stack that runs beside would do other.
    """
    while True:
        await anyio.sleep(LOOK_S)
        for path in files:
            with suppress(KeysWrong, OSError):  # it is gone; a new start says what is wrong with it
                _move_on(path, int(time.time()))


def _move_on(path: Path, now_unix_s: int) -> None:
    kept = pseudonyms_in(path)
    if (current := kept.at(now_unix_s)) != kept:
        write_pseudonyms(path, current)


def write_pseudonyms(path: Path, key: Pseudonyms) -> None:
    """Write the evidence key to its file; the one before is gone."""
    write_private(path, f"{EVIDENCE_COMMENT}{key.text()}\n")


def fresh_key() -> str:
    """Return a line for a cluster key file under a fresh random id."""
    return new_key(secrets.token_hex(KEY_ID_BYTES // 2))


def write_ring(path: Path, ring: Keyring) -> None:
    """Write keys to a cluster key file, in their order."""
    write_private(path, RING_COMMENT + "\n".join(ring_lines(ring)) + "\n")


def ring_lines(ring: Keyring) -> list[str]:
    """Return keys as `ID HEX` pairs, in their order."""
    return [f"{key_id} {key.hex()}" for key_id, key in ring.keys.items()]
