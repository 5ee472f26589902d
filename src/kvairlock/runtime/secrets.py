"""The cluster's keys from the environment or from a file that only its owner can read."""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path

from kvairlock.core.errors import KvairlockError, Misuse
from kvairlock.wire.keys import KEY_BYTES, Keyring

VARIABLE = "KVAIRLOCK_CLUSTER_KEY"


class KeysWrong(KvairlockError):
    """The cluster's keys cannot be used; the message says why and never shows them."""

    code = "cluster_key_wrong"


def new_key(key_id: str) -> str:
    """Return a line for a cluster key file with a fresh random key."""
    return f"{key_id} {secrets.token_bytes(KEY_BYTES).hex()}\n"


def load_keyring(path: Path | None) -> Keyring:
    """Read the cluster's keys from `KVAIRLOCK_CLUSTER_KEY`, or else from a file.

    Raises:
        KeysWrong: There is none, others can read the file, or its content is malformed.
    """
    text, where = os.environ.get(VARIABLE), VARIABLE
    if text is None:
        text, where = _read_private(path), str(path)
    try:
        return Keyring.parse(text)
    except Misuse as error:
        raise KeysWrong(f"{where}: {error}") from None


def _read_private(path: Path | None) -> str:
    if path is None:
        raise KeysWrong(f"no cluster key: set {VARIABLE} or name a key file")
    try:
        mode = path.stat().st_mode
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise KeysWrong(f"{path}: cannot be read: {type(error).__name__}") from None
    if stat.S_IMODE(mode) & 0o077:
        raise KeysWrong(f"{path}: others can read it; chmod 600 {path}")
    return text


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read, whole or not at all.

    Args:
        path: Where it ends up.
        text: Its content.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
