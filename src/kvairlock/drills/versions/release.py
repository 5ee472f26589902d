"""A release that processes can be started from: this one, or an earlier one that is at hand."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import kvairlock
from kvairlock.drills.stack import DrillFailed
from kvairlock.runtime.secrets import VARIABLE

SPEAK = """\
import runpy, sys
from kvairlock.wire import versions
versions.SPEAKS = ({speaks},)
runpy.run_module({module!r}, run_name="__main__", alter_sys=True)
"""
"""Runs a program that speaks other versions than it knows, as one of another release does."""

ASK = "import kvairlock; print(kvairlock.__version__, kvairlock.__file__)"
FIRST = "0.1.0"


@dataclass(frozen=True, slots=True)
class Release:
    """A build of the package, and how its programs are started.

    Args:
        version: What it calls itself.
        python: The interpreter of its environment.
        source: Folder that the package is imported from, or None if it is installed there.
    """

    version: str
    python: Path
    source: Path | None

    def command(self, module: str, speaks: tuple[int, ...] | None = None) -> tuple[str, ...]:
        """Return what starts a program, before its options.

        Args:
            module: The program's module.
            speaks: The versions of the messages that it is made to speak; None for its own.
        """
        if speaks is None:
            return str(self.python), "-m", module
        words = ", ".join(map(str, speaks))
        return str(self.python), "-c", SPEAK.format(speaks=words, module=module)

    @property
    def environment(self) -> Mapping[str, str]:
        """The environment of its programs: of the user's keys nothing, of its source all."""
        return _environment(self.source)

    def gateway_options(self, state: Path) -> tuple[str, ...]:
        """Return the options of its gateway that not every release has.

        Args:
            state: Folder of what a gateway remembers.
        """
        return () if self.version == FIRST else ("--state", str(state))

    def front(self, context_tokens: int) -> str:
        """Return the TOML of a gateway on a free port that publishes a context window."""
        commitment = "" if self.version == FIRST else "\n[commitment]\n"
        return f"[gateway]\nport = 0\n{commitment}context_tokens = {context_tokens}\n"


def this_release() -> Release:
    """Return the release that is running."""
    source = Path(kvairlock.__file__).parent.parent
    return Release(kvairlock.__version__, Path(sys.executable), source)


def release_at(path: Path) -> Release:
    """Return an earlier release.

    Args:
        path: A source tree of it, run with this interpreter and its packages; or the interpreter
            of an environment in which it is installed.

    Raises:
        DrillFailed: There is none.
    """
    source = path.resolve() / "src"
    if (source / "kvairlock").is_dir():
        return Release(_version(Path(sys.executable), source), Path(sys.executable), source)
    if path.is_file():
        python = path.absolute()  # not resolved: a link to an interpreter is what an environment is
        return Release(_version(python, None), python, None)
    raise DrillFailed(f"{path} is neither a source tree of kvairlock nor an interpreter")


def _version(python: Path, source: Path | None) -> str:
    """Ask a release what it calls itself; another one must not be taken for it."""
    said = subprocess.run(
        [python, "-c", ASK],
        env=_environment(source),
        capture_output=True,
        text=True,
        check=False,
    )
    if said.returncode:
        raise DrillFailed(f"{python} cannot import kvairlock: {said.stderr.strip()[-200:]}")
    version, place = said.stdout.split(maxsplit=1)
    if source is not None and not Path(place.strip()).is_relative_to(source):
        raise DrillFailed(f"{source} has no kvairlock: what is imported is {place.strip()}")
    return version


def _environment(source: Path | None) -> dict[str, str]:
    kept = {n: v for n, v in os.environ.items() if n not in {VARIABLE, "PYTHONPATH"}}
    return kept if source is None else {**kept, "PYTHONPATH": str(source)}
