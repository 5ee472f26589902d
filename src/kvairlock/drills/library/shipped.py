"""The drills that come with the package, and any that you write: read from TOML, strictly.

An unknown name, a missing one, a guard or node or request that does not exist: each is an error
that says where. Nothing is guessed, since a drill that does not do what it says proves nothing.
"""

from __future__ import annotations

import tomllib
from importlib.resources import files
from pathlib import Path

import msgspec

from kvairlock.core.guards import Guard
from kvairlock.drills.library.checks import DrillWrong, check
from kvairlock.drills.library.drill import Drill, Round

FOLDER = files("kvairlock.drills") / "library"
SUFFIX = ".toml"
RISK = "risk"
"""What lies beside the drills: which of them a change calls for."""


def shipped() -> tuple[Drill, ...]:
    """Read all drills of the package: by round and level, then as a request meets the guards.

    Raises:
        DrillWrong: One cannot be used.
    """
    return tuple(sorted(map(drill, _names()), key=_place))


def _names() -> set[str]:
    """Return the names of the drills that are shipped."""
    found = (entry.name for entry in FOLDER.iterdir())
    stems = {name.removesuffix(SUFFIX) for name in found if name.endswith(SUFFIX)}
    return stems - {RISK}


def drill(name: str) -> Drill:
    """Read one drill of the package.

    Raises:
        DrillWrong: There is none of that name, or it cannot be used.
    """
    if name not in _names():
        raise DrillWrong(name, f"there is no such drill; there are: {', '.join(sorted(_names()))}")
    return parse(text_of(name), name)


def text_of(name: str) -> str:
    """Return a drill of the package as it is written."""
    return (FOLDER / f"{name}{SUFFIX}").read_text(encoding="utf-8")


def read(path: Path) -> Drill:
    """Read a drill of one's own; it is called what its file is called.

    Raises:
        DrillWrong: The file cannot be read or used.
    """
    try:
        return parse(path.read_text(encoding="utf-8"), path.stem)
    except OSError as error:
        raise DrillWrong(str(path), str(error.strerror)) from None
    except UnicodeDecodeError:
        raise DrillWrong(str(path), "not UTF-8 text") from None


def parse(text: str, name: str) -> Drill:
    """Read a drill from TOML.

    Args:
        text: The TOML.
        name: What it must be called.

    Raises:
        DrillWrong: It is no TOML, a value is wrong, missing or unknown, or values contradict.
    """
    try:
        found = msgspec.convert(tomllib.loads(text), Drill)
    except tomllib.TOMLDecodeError as error:
        raise DrillWrong(name, f"not TOML: {error}") from None
    except msgspec.ValidationError as error:
        raise DrillWrong(name, str(error)) from None
    if found.name != name:
        raise DrillWrong(name, f"it calls itself {found.name}")
    check(found)
    return found


def _place(drill: Drill) -> tuple[int, int, int, str]:
    guards = list(Guard)
    first = min((guards.index(guard) for guard in drill.about), default=-1)
    return list(Round).index(drill.round), drill.level, first, drill.name
