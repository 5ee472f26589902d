"""Commands that start stacks of their own, told to end in the middle of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kvairlock.drills.stack import wait_for


def running(folder: Path) -> list[int]:
    """Processes that have this folder on their command line."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if os.fsencode(folder) in (process / "cmdline").read_bytes():
                found.append(int(process.name))
        except OSError:  # it has ended meanwhile
            continue
    return found


@pytest.mark.parametrize(
    "words", [("demo",), ("soak",), ("cost",), ("drill", "range")], ids=lambda words: words[0]
)
def test_sigterm_leaves_no_process_and_no_key_behind(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "kvairlock", *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "HOME": str(tmp_path), "TMPDIR": str(temporary)},
    )
    try:
        wait_for("keys and a stack", lambda: next(temporary.glob("*/**/stack.log"), None))
        assert list(temporary.glob("*/**/keys.toml")), "there is something to be put away"
        process.send_signal(signal.SIGTERM)
        assert process.wait(40) == 128 + signal.SIGTERM
    finally:
        process.kill()
        process.wait()
    assert list(temporary.iterdir()) == []
    assert running(tmp_path) == []
