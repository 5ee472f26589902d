"""API keys in a TOML file: who a request belongs to is decided by what this file says.

    [[key]]
    id = "5c0f9a1e"
    tenant = "acme"
    hash = "..."            # SHA-256 of the whole key
    scope = "private"       # private | none | group:NAME | public
    operator = false

A key reads `kva-<id>-<secret>` and is shown once. Its secret is 32 random bytes, so a plain hash is
enough: a slow one protects secrets that can be guessed, and would cost every request its time. A
key is looked up by its id, which is no secret, and its hash is compared in constant time, also when
the id is unknown. A file that cannot be used authenticates nobody.
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import os
import re
import secrets
import stat
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from kvairlock.core.errors import KvairlockError
from kvairlock.runtime.secrets import write_private

SECRET_BYTES = 32
ID_BYTES = 4
PRESENTED_MAX = 128
NOBODY = "0" * 64

KeyId = Annotated[str, Meta(pattern=r"\A[0-9a-f]{8}\Z")]
Tenant = Annotated[str, Meta(pattern=r"\A[A-Za-z0-9][A-Za-z0-9_.@-]{0,63}\Z")]
Hash = Annotated[str, Meta(pattern=r"\A[0-9a-f]{64}\Z")]
Scope = Annotated[
    str, Meta(pattern=r"\A(private|none|public|group:[A-Za-z0-9][A-Za-z0-9_.-]{0,63})\Z")
]


class KeyFileWrong(KvairlockError):
    """The key file cannot be used; the message says where, and never shows a hash."""

    http_status = 503
    code = "keys_unusable"


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One key as it is stored; `hash` stays out of every message and log."""

    id: KeyId
    tenant: Tenant
    hash: Hash
    scope: Scope = "private"
    operator: bool = False

    def __repr__(self) -> str:
        """Show whose key it is, not its hash."""
        return f"Entry(id={self.id!r}, tenant={self.tenant!r}, scope={self.scope!r})"


class _File(msgspec.Struct, forbid_unknown_fields=True):
    key: list[Entry] = []


@dataclass(frozen=True, slots=True)
class Principal:
    """Who a key belongs to.

    Args:
        tenant: The tenant that its requests belong to.
        scope: Who may share its prefix pages, as the key file says it.
        operator: Whether it opens the operator's endpoints.
    """

    tenant: str
    scope: str
    operator: bool

    @property
    def ticket_scope(self) -> str:
        """The scope as tickets carry it: named in full, empty for nobody."""
        if self.scope == "private":
            return f"tenant:{self.tenant}"
        return "" if self.scope == "none" else self.scope


class ApiKeys:
    """The keys of one file, read again whenever the file changed.

    Args:
        path: The TOML file; `issue` makes it if there is none.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int, int] | None = None
        self._entries: dict[str, Entry] = {}

    @classmethod
    def load(cls, path: Path) -> ApiKeys:
        """Read a key file.

        Raises:
            KeyFileWrong: It is missing, malformed, or others can write it.
        """
        keys = cls(path)
        keys.entries()
        return keys

    def entries(self) -> tuple[Entry, ...]:
        """Return all keys as they are in the file now.

        Raises:
            KeyFileWrong: The file cannot be used.
        """
        self._refresh()
        return tuple(self._entries.values())

    def find(self, presented: str) -> Principal | None:
        """Return whose key this is, or None.

        Args:
            presented: What a client sent.

        Raises:
            KeyFileWrong: The file cannot be used, so nobody is known.
        """
        self._refresh()
        entry = self._entries.get(_id_of(presented))
        expected = NOBODY if entry is None else entry.hash
        same = hmac.compare_digest(_hash(presented), expected)
        if entry is None or not same:
            return None
        return Principal(entry.tenant, entry.scope, entry.operator)

    def issue(self, tenant: str, scope: str = "private", operator: bool = False) -> str:
        """Add a key and return it: the only time that it is visible.

        Args:
            tenant: Whose requests it makes.
            scope: `private`, `none`, `public` or `group:NAME`.
            operator: Whether it opens the operator's endpoints.

        Raises:
            KeyFileWrong: The file cannot be used, or the tenant or scope is no valid name.
        """
        with self._locked():
            known = self._read_all()
            fresh = next(i for i in _fresh_ids() if i not in known)
            presented = f"kva-{fresh}-{secrets.token_urlsafe(SECRET_BYTES)}"
            entry = Entry(fresh, tenant, _hash(presented), scope, operator)
            self._write({**known, fresh: _checked(entry)})
        return presented

    def revoke(self, key_id: str) -> None:
        """Remove a key.

        Raises:
            KeyFileWrong: The file cannot be used, or has no key with this id.
        """
        with self._locked():
            known = self._read_all()
            if key_id not in known:
                raise KeyFileWrong(f"{self._path}: there is no key with id {key_id!r}")
            self._write({i: entry for i, entry in known.items() if i != key_id})

    def _refresh(self) -> None:
        try:
            now = self._path.stat()
        except OSError as error:
            self._seen = None
            raise KeyFileWrong(f"{self._path}: {error.strerror}") from None
        seen = (now.st_mtime_ns, now.st_ino, now.st_size)
        if seen != self._seen:
            self._seen = None
            self._entries = _read(self._path, now.st_mode)
            self._seen = seen

    def _read_all(self) -> dict[str, Entry]:
        if not self._path.exists():
            return {}
        self._refresh()
        return self._entries

    def _write(self, entries: dict[str, Entry]) -> None:
        write_private(self._path, "\n".join(_toml(entry) for entry in entries.values()))

    @contextmanager
    def _locked(self) -> Iterator[None]:
        # Two commands that write at once must not lose a revocation.
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        directory = os.open(self._path.parent, os.O_RDONLY)
        try:
            fcntl.flock(directory, fcntl.LOCK_EX)
            yield
        finally:
            os.close(directory)


def _id_of(presented: str) -> str:
    words = presented.split("-", 2)
    if len(presented) > PRESENTED_MAX or len(words) != 3 or words[0] != "kva":
        return ""
    return words[1]


def _hash(presented: str) -> str:
    return hashlib.sha256(presented.encode("utf-8", "replace")).hexdigest()


def _fresh_ids() -> Iterator[str]:
    while True:
        yield secrets.token_hex(ID_BYTES)


def _checked(entry: Entry) -> Entry:
    try:
        return msgspec.convert(msgspec.to_builtins(entry), Entry)
    except msgspec.ValidationError as error:
        raise KeyFileWrong(f"not a valid key: {error}") from None


def _read(path: Path, mode: int) -> dict[str, Entry]:
    if stat.S_IMODE(mode) & 0o022:
        raise KeyFileWrong(f"{path}: others can write it; chmod 600 {path}")
    try:
        file = msgspec.convert(tomllib.loads(path.read_text()), _File)
    except tomllib.TOMLDecodeError as error:
        # Only where, not what: the text of the error could quote a line.
        where = re.search(r"\(at [^)]*\)$", str(error))
        raise KeyFileWrong(f"{path}: not TOML {where[0] if where else ''}".rstrip()) from None
    except msgspec.ValidationError as error:
        raise KeyFileWrong(f"{path}: {error}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise KeyFileWrong(f"{path}: cannot be read: {type(error).__name__}") from None
    entries = {entry.id: entry for entry in file.key}
    if len(entries) != len(file.key):
        raise KeyFileWrong(f"{path}: an id is used twice")
    return entries


def _toml(entry: Entry) -> str:
    return (
        f'[[key]]\nid = "{entry.id}"\ntenant = "{entry.tenant}"\nhash = "{entry.hash}"\n'
        f'scope = "{entry.scope}"\noperator = {"true" if entry.operator else "false"}\n'
    )
