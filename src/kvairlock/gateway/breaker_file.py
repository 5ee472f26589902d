"""What is kept of the breakers, in one file of the state directory, so that a restart closes none.

    {"format": 1, "routes": {"prefill-0/decode-0": {"state": "open", "opening": {...}, ...}}}

It is written whole or not at all, by one process at a time. What cannot be read, or says more or
less than this version knows, is never passed over: each route that it may be about is `Unreadable`,
and nobody may take that for closed. A file of which nothing can be read is moved aside, and as long
as it lies there every route of which nothing else is kept is taken to be in it. Without a file
every breaker is a new one. Routes that this stack does not have are kept as they are, since it may
have them again.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import msgspec

from kvairlock.core.errors import KvairlockError
from kvairlock.core.promise.breaker import NEVER_OPENED, Kept
from kvairlock.core.terms import Route
from kvairlock.runtime.secrets import write_private

FORMAT = 1
BYTES_MAX = 4 * 1024 * 1024


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: int
    routes: dict[str, Any]


class StateUnusable(KvairlockError):
    """What outlives this process cannot be kept, so it must not serve."""

    code = "state_unusable"


@dataclass(frozen=True, slots=True)
class Unreadable:
    """What is kept of a route says nothing that could be understood, and why."""

    why: str


class BreakerFile:
    """The file, and what stands in it about routes of other stacks.

    Args:
        path: Where it is; made by the first `write`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._others: dict[str, Any] = {}
        self._lock: int | None = None

    def claim(self) -> None:
        """Keep all other processes off the file, until `release` or the end of this one.

        Raises:
            StateUnusable: Another process has it, or there can be no lock.
        """
        lock = self.path.with_suffix(".lock")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            # Closed on exec: the lock ends with this process, whatever it has started.
            self._lock = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.release()
            raise StateUnusable(
                f"{lock}: another gateway process keeps its breakers here"
            ) from None
        except OSError as error:
            raise StateUnusable(f"{lock}: {_why(error)}") from None

    def release(self) -> None:
        """Let another process have the file."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def read(self, routes: Iterable[Route]) -> dict[Route, Kept | Unreadable]:
        """Return what is kept of each route.

        Args:
            routes: The routes of this stack.

        Raises:
            StateUnusable: It can neither be read nor be moved aside, and would be written over.
        """
        routes = tuple(routes)
        try:
            text = self._text()
            known = {} if text is None else _routes_of(text)
        except (OSError, ValueError, RecursionError) as error:
            self._move_aside()
            return dict.fromkeys(routes, Unreadable(f"{self.path.name}: {_why(error)}"))
        names = {str(route) for route in routes}
        self._others = {name: kept for name, kept in known.items() if name not in names}
        return {route: self._kept(known, str(route)) for route in routes}

    def write(self, kept: Mapping[Route, Kept]) -> None:
        """Write what is to be kept, whole or not at all.

        Args:
            kept: All routes of this stack.

        Raises:
            OSError: It cannot be written, or could not be read again; what was there still is.
        """
        routes = {str(route): msgspec.to_builtins(each) for route, each in kept.items()}
        file = _File(FORMAT, {**self._others, **routes})
        text = msgspec.json.format(msgspec.json.encode(file), indent=2).decode() + "\n"
        if len(text.encode()) > BYTES_MAX:
            raise OSError(errno.EFBIG, f"over {BYTES_MAX} bytes")
        write_private(self.path, text)

    def _text(self) -> bytes | None:
        try:
            with self.path.open("rb") as file:
                text = file.read(BYTES_MAX + 1)
        except FileNotFoundError:
            return None
        if len(text) > BYTES_MAX:
            raise ValueError(f"over {BYTES_MAX} bytes")
        return text

    def _aside(self) -> Iterator[Path]:
        """Return under which names it is moved aside, the first one first."""
        return (self.path.with_suffix(f".unreadable-{number}.json") for number in count(1))

    def _move_aside(self) -> None:
        try:
            self.path.rename(next(path for path in self._aside() if not path.exists()))
        except OSError as error:
            raise StateUnusable(f"{self.path}: unreadable, and {_why(error)}") from None

    def _kept(self, known: Mapping[str, Any], name: str) -> Kept | Unreadable:
        if name not in known:
            return self._unnamed()
        try:
            kept = msgspec.convert(known[name], Kept)
        except msgspec.ValidationError as error:
            return Unreadable(f"{self.path.name}: {name}: {error}")
        # What this version would not write like that holds something that it does not know.
        if msgspec.json.decode(msgspec.json.encode(kept)) != known[name] or not kept.is_sound:
            return Unreadable(f"{self.path.name}: {name}: has content that is not known here")
        return kept

    def _unnamed(self) -> Kept | Unreadable:
        """Return what is known of a route that the file does not name."""
        aside = sorted(self.path.parent.glob(f"{self.path.stem}.unreadable-*.json"))
        if not aside:
            return NEVER_OPENED
        return Unreadable(f"it may be in {aside[-1].name}, which cannot be read")


def _routes_of(text: bytes) -> dict[str, Any]:
    file = msgspec.json.decode(text, type=_File)
    if file.format != FORMAT:
        raise ValueError(f"format {file.format}, {FORMAT} is known")
    return file.routes


def _why(error: Exception) -> str:
    if isinstance(error, OSError):
        return error.strerror or type(error).__name__
    return str(error) or type(error).__name__
