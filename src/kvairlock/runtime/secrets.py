"""Keys from the environment or from a file that only its owner can read; errors never show them.

The cluster's keys authenticate processes and tickets. The evidence key makes pseudonyms; it has a
file and a variable of its own, since it changes at other times (`kvairlock.wire.pseudonyms`).
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from kvairlock.core.errors import KvairlockError, Misuse
from kvairlock.wire.keys import KEY_BYTES, Keyring
from kvairlock.wire.pseudonyms import Pseudonyms

VARIABLE = "KVAIRLOCK_CLUSTER_KEY"
EVIDENCE_VARIABLE = "KVAIRLOCK_EVIDENCE_KEY"

T = TypeVar("T")


class KeysWrong(KvairlockError):
    """The cluster's keys cannot be used; the message says why and never shows them."""

    code = "cluster_key_wrong"


class ApiKeyWrong(KvairlockError):
    """An API key cannot be used; the message says why and never shows it."""

    code = "api_key_wrong"


def new_key(key_id: str) -> str:
    """Return a line for a cluster key file with a fresh random key."""
    return f"{key_id} {secrets.token_bytes(KEY_BYTES).hex()}\n"


def load_keyring(path: Path | None) -> Keyring:
    """Read the cluster's keys from `KVAIRLOCK_CLUSTER_KEY`, or else from a file.

    Raises:
        KeysWrong: There is none, others can read the file, or its content is malformed.
    """
    text = os.environ.get(VARIABLE)
    if text is not None:
        return _parsed(VARIABLE, text, Keyring.parse)
    if path is None:
        raise KeysWrong(f"no cluster key: set {VARIABLE} or name a key file")
    return keyring_in(path)


def keyring_in(file: Path) -> Keyring:
    """Read the cluster's keys from a file, whatever the environment says.

    Raises:
        KeysWrong: Others can read the file, or its content is malformed.
    """
    return _parsed(str(file), read_private(file, KeysWrong), Keyring.parse)


def load_pseudonyms(path: Path | None, ring: Keyring) -> Pseudonyms:
    """Read the evidence key from `KVAIRLOCK_EVIDENCE_KEY`, or else from a file.

    Args:
        path: The file, or None where there is none: then the cluster's key makes pseudonyms, as
            it does in 0.1.0, and they are no others after the retention period.
        ring: The cluster's keys.

    Raises:
        KeysWrong: Others can read the file, or what it or the variable holds is malformed.
    """
    text = os.environ.get(EVIDENCE_VARIABLE)
    if text is not None:
        return _parsed(EVIDENCE_VARIABLE, text, Pseudonyms.parse)
    return Pseudonyms.of_ring(ring) if path is None else pseudonyms_in(path)


def pseudonyms_in(file: Path) -> Pseudonyms:
    """Read the evidence key from a file, whatever the environment says.

    Raises:
        KeysWrong: Others can read the file, or its content is malformed.
    """
    return _parsed(str(file), read_private(file, KeysWrong), Pseudonyms.parse)


def _parsed(where: str, text: str, parse: Callable[[str], T]) -> T:
    try:
        return parse(text)
    except Misuse as error:
        raise KeysWrong(f"{where}: {error}") from None


def api_key_in(file: Path) -> str:
    """Read an API key from a file that holds it and nothing else.

    Raises:
        ApiKeyWrong: It cannot be read, others can read it, or it holds something else.
    """
    return _one_word(str(file), read_private(file, ApiKeyWrong).strip())


def api_key_of(variable: str) -> str:
    """Read an API key from an environment variable.

    Raises:
        ApiKeyWrong: It is not set, or holds something else.
    """
    return _one_word(variable, os.environ.get(variable, "").strip())


def _one_word(where: str, key: str) -> str:
    """Refuse what can be no key before it becomes a header."""
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        raise ApiKeyWrong(f"{where}: must hold one API key and nothing else")
    return key


def read_private(path: Path, wrong: type[KvairlockError]) -> str:
    """Read a file that only its owner can read.

    Args:
        path: The file.
        wrong: What to raise.

    Raises:
        KvairlockError: Of the given type: it cannot be read, or others can read it.
    """
    try:
        mode = path.stat().st_mode
        text = path.read_text()
    except FileNotFoundError:
        raise wrong(f"{path}: there is no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise wrong(f"{path}: cannot be read: {type(error).__name__}") from None
    if stat.S_IMODE(mode) & 0o077:
        raise wrong(f"{path}: others can read it; chmod 600 {path}")
    return text


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read, whole or not at all, also through a power loss.

    Args:
        path: Where it ends up.
        text: Its content.

    Raises:
        OSError: It cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    fresh.unlink(missing_ok=True)
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    keep_names_of(path.parent)


def remove_left(path: Path) -> None:
    """Remove what `write_private` left of a file when its process was killed: it is a secret too.

    Raises:
        OSError: It cannot be removed.
    """
    for left in path.parent.glob(f".{path.name}.*"):
        if left.suffix[1:].isdecimal() and not Path(f"/proc/{left.suffix[1:]}").exists():
            left.unlink(missing_ok=True)


def keep_names_of(folder: Path) -> None:
    """Have a folder's entries written: until then its files may be those of before.

    Raises:
        OSError: They cannot be written.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
