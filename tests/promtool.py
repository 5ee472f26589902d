"""promtool, Prometheus' own checker of rules and metrics, where it is installed."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable

import pytest

Promtool = Callable[..., "subprocess.CompletedProcess[str]"]


def found() -> Promtool:
    """Return what runs promtool with arguments, and text on stdin; without it, skip the test."""
    place = shutil.which("promtool")
    if place is None:
        pytest.skip("promtool is not installed (script/packages installs it)")

    def run(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [place, *arguments], input=stdin, text=True, capture_output=True, check=False
        )

    return run
