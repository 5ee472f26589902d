"""Where a stack keeps what outlives it: keys of tenants, keys of the cluster, evidence.

Made on first use, for their owner only. A file that the user names must exist: a typing mistake
must not become a fresh set of keys.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from kvairlock.runtime import folders
from kvairlock.runtime.secrets import VARIABLE, KeysWrong, load_keyring, new_key, write_private
from kvairlock.wire.keys import KEY_ID_BYTES, Keyring

KEYS_FILE = "keys.toml"
CLUSTER_KEY_FILE = "cluster.key"
EVIDENCE = "evidence"
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


def fresh_key() -> str:
    """Return a line for a cluster key file under a fresh random id."""
    return new_key(secrets.token_hex(KEY_ID_BYTES // 2))


def write_ring(path: Path, ring: Keyring) -> None:
    """Write keys to a cluster key file, in their order."""
    write_private(path, RING_COMMENT + "\n".join(ring_lines(ring)) + "\n")


def ring_lines(ring: Keyring) -> list[str]:
    """Return keys as `ID HEX` pairs, in their order."""
    return [f"{key_id} {key.hex()}" for key_id, key in ring.keys.items()]
