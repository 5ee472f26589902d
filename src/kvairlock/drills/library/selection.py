"""Which drills are carried out: by name, by round and level, or by what a change puts at risk.

A map of paths says which drills a change calls for, and which of the tables beside them. A path
that it does not know calls for everything.
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from importlib.resources import files
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from kvairlock.core.errors import KvairlockError
from kvairlock.drills.library.drill import Drill, Level, Round

FILE = files("kvairlock.drills") / "library" / "risk.toml"


class Table(StrEnum):
    """What stands beside the drills."""

    FAULTS = "faults"
    VERSIONS = "versions"


class RiskWrong(KvairlockError):
    """The map of paths cannot be used."""

    code = "risk_wrong"


class Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Paths, and the drills that a change to them calls for.

    Args:
        paths: Shell patterns, from the root of the repository; `*` goes through folders.
        why: Why these drills.
        drills: Names of drills, `all`, or `none`.
        rounds: All drills of these rounds too.
        levels: All drills of these levels too.
        tables: What stands beside the drills and is called for too.
    """

    paths: Annotated[tuple[str, ...], Meta(min_length=1)]
    why: Annotated[str, Meta(min_length=1)]
    drills: tuple[str, ...] | Literal["all", "none"]
    rounds: tuple[Round, ...] = ()
    levels: tuple[Level, ...] = ()
    tables: tuple[Table, ...] = ()

    def matches(self, path: str) -> bool:
        """Return whether a path is one of these."""
        return any(fnmatchcase(path, pattern) for pattern in self.paths)

    def calls_for(self, drill: Drill) -> bool:
        """Return whether a change to these paths calls for a drill."""
        if self.drills == "all":
            return True
        named = self.drills != "none" and drill.name in self.drills
        return named or drill.round in self.rounds or drill.level in self.levels


class Risk(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The map of paths.

    Args:
        line: Its lines; the first one that matches a path says what it calls for.
    """

    line: tuple[Line, ...]

    def calls_for(self, path: str, drill: Drill) -> bool:
        """Return whether a change to one path calls for a drill.

        Args:
            path: From the root of the repository.
            drill: The drill.
        """
        line = self.line_for(path)
        return line is None or line.calls_for(drill)

    def tables_for(self, path: str) -> tuple[Table, ...]:
        """Return what a change to one path calls for beside the drills."""
        line = self.line_for(path)
        return tuple(Table) if line is None else line.tables

    def line_for(self, path: str) -> Line | None:
        """Return the line that a path is under, or None: then nothing is known of it."""
        return next((line for line in self.line if line.matches(path)), None)


def risk(text: str | None = None) -> Risk:
    """Read the map of paths.

    Args:
        text: TOML; None for that of the package.

    Raises:
        RiskWrong: It is no TOML, or a value is wrong, missing or unknown.
    """
    said = FILE.read_text(encoding="utf-8") if text is None else text
    try:
        return msgspec.convert(tomllib.loads(said), Risk)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise RiskWrong(f"the map of paths to drills: {error}") from None


@dataclass(frozen=True, slots=True)
class Called:
    """What a change calls for.

    Args:
        drills: The drills, in their order.
        tables: What stands beside them.
    """

    drills: tuple[Drill, ...]
    tables: frozenset[Table]


def called_for(
    paths: Collection[str], drills: Iterable[Drill], known: Risk | None = None
) -> Called:
    """Return what a change to some paths calls for.

    Args:
        paths: From the root of the repository.
        drills: Those that there are.
        known: The map of paths; None for that of the package.

    Raises:
        RiskWrong: The map of paths cannot be used.
    """
    map_ = known or risk()
    chosen = (drill for drill in drills if any(map_.calls_for(path, drill) for path in paths))
    tables = (table for path in paths for table in map_.tables_for(path))
    return Called(tuple(chosen), frozenset(tables))


def narrowed(
    drills: Iterable[Drill], rounds: Sequence[Round], levels: Sequence[Level]
) -> tuple[Drill, ...]:
    """Return the drills of some rounds and levels; all where none is named."""
    return tuple(
        drill
        for drill in drills
        if (not rounds or drill.round in rounds) and (not levels or drill.level in levels)
    )
