"""What is kept of the breakers, in one file of the state directory, so that a restart closes none.

    {"format": 1, "routes": {"prefill-0/decode-0": {"state": "open", "opening": {...}, ...}}}

It is written whole or not at all. What cannot be read, or says more or less than this version
knows, is never passed over: each route that it may be about is `Unreadable`, and nobody may take
that for closed. Without a file every breaker is a new one. Routes that this stack does not have are
kept as they are, since it may have them again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from kvairlock.core.promise.breaker import NEVER_OPENED, Kept
from kvairlock.core.terms import Route
from kvairlock.runtime.secrets import write_private

FORMAT = 1
BYTES_MAX = 4 * 1024 * 1024


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: int
    routes: dict[str, Any]


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

    def read(self, routes: Iterable[Route]) -> dict[Route, Kept | Unreadable]:
        """Return what is kept of each route.

        Args:
            routes: The routes of this stack.
        """
        routes = tuple(routes)
        try:
            text = self._text()
            if text is None:
                return dict.fromkeys(routes, NEVER_OPENED)
            known = _routes_of(text)
        except (OSError, ValueError, RecursionError) as error:
            return dict.fromkeys(routes, Unreadable(f"{self.path.name}: {_why(error)}"))
        names = {str(route) for route in routes}
        self._others = {name: kept for name, kept in known.items() if name not in names}
        return {route: self._kept(known, str(route)) for route in routes}

    def write(self, kept: Mapping[Route, Kept]) -> None:
        """Write what is to be kept, whole or not at all.

        Args:
            kept: All routes of this stack.

        Raises:
            OSError: It cannot be written; what was there before still is.
        """
        routes = {str(route): msgspec.to_builtins(each) for route, each in kept.items()}
        file = _File(FORMAT, {**self._others, **routes})
        text = msgspec.json.format(msgspec.json.encode(file), indent=2).decode()
        write_private(self.path, text + "\n")

    def _text(self) -> bytes | None:
        try:
            with self.path.open("rb") as file:
                text = file.read(BYTES_MAX + 1)
        except FileNotFoundError:
            return None
        if len(text) > BYTES_MAX:
            raise ValueError(f"over {BYTES_MAX} bytes")
        return text

    def _kept(self, known: Mapping[str, Any], name: str) -> Kept | Unreadable:
        if name not in known:
            return NEVER_OPENED
        try:
            kept = msgspec.convert(known[name], Kept)
        except msgspec.ValidationError as error:
            return Unreadable(f"{self.path.name}: {name}: {error}")
        # What this version would not write like that holds something that it does not know.
        if msgspec.json.decode(msgspec.json.encode(kept)) != known[name] or not kept.is_sound:
            return Unreadable(f"{self.path.name}: {name}: has content that is not known here")
        return kept


def _routes_of(text: bytes) -> dict[str, Any]:
    file = msgspec.json.decode(text, type=_File)
    if file.format != FORMAT:
        raise ValueError(f"format {file.format}, {FORMAT} is known")
    return file.routes


def _why(error: Exception) -> str:
    if isinstance(error, OSError):
        return error.strerror or type(error).__name__
    return str(error) or type(error).__name__
