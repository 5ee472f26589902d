"""Where this user keeps things, as the XDG base directory specification has it."""

from __future__ import annotations

import os
from pathlib import Path


def of_user(variable: str, below_home: str) -> Path:
    """Return this project's folder below one of the user's base directories.

    Args:
        variable: The variable that names the base directory, for example `XDG_CACHE_HOME`.
        below_home: The base directory if it is unset, relative to the home.
    """
    base = os.environ.get(variable, "")
    # The specification has relative paths ignored.
    root = Path(base) if base.startswith("/") else Path.home() / below_home
    return root / "kvairlock"
