"""Which drills are carried out: by name, by round and level, or by what a change puts at risk.

A map of paths says which drills a change calls for. A path that it does not know calls for all.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from importlib.resources import files
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from kvairlock.core.errors import KvairlockError
from kvairlock.drills.drill import Drill, Level, Round

FILE = files("kvairlock.drills") / "library" / "risk.toml"


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
    """

    paths: Annotated[tuple[str, ...], Meta(min_length=1)]
    why: Annotated[str, Meta(min_length=1)]
    drills: tuple[str, ...] | Literal["all", "none"]
    rounds: tuple[Round, ...] = ()
    levels: tuple[Level, ...] = ()

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

    def called_for(self, path: str, drills: Iterable[Drill]) -> tuple[Drill, ...]:
        """Return the drills that a change to one path calls for.

        Args:
            path: From the root of the repository.
            drills: Those that there are.
        """
        line = self.line_for(path)
        return tuple(drill for drill in drills if line is None or line.calls_for(drill))

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


def called_for(paths: Iterable[str], drills: Sequence[Drill]) -> tuple[Drill, ...]:
    """Return the drills that a change to some paths calls for, in their order.

    Args:
        paths: From the root of the repository.
        drills: Those that there are.

    Raises:
        RiskWrong: The map of paths cannot be used.
    """
    known = risk()
    wanted = {drill.name for path in paths for drill in known.called_for(path, drills)}
    return tuple(drill for drill in drills if drill.name in wanted)


def narrowed(
    drills: Iterable[Drill], rounds: Sequence[Round], levels: Sequence[Level]
) -> tuple[Drill, ...]:
    """Return the drills of some rounds and levels; all where none is named."""
    return tuple(
        drill
        for drill in drills
        if (not rounds or drill.round in rounds) and (not levels or drill.level in levels)
    )
