"""What every command waits for before it does anything."""

from __future__ import annotations

import subprocess
import sys

LOADED = "import sys, kvairlock.cli; print(*sys.modules)"
SIMULATOR, TRAINED = "kvairlock.sim", "kvairlock.engine.llama"


def test_no_command_waits_for_what_only_another_needs() -> None:
    argv = [sys.executable, "-c", LOADED]
    loaded = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split()
    assert "kvairlock.cli.explore" in loaded
    assert [name for name in loaded if name.startswith((SIMULATOR, TRAINED))] == []
