"""What a command needs that a plain installation does not have: it says so, and how to get it."""

from __future__ import annotations

import gc
from importlib.util import find_spec

from kvairlock.cli.output import fail

AUDIT = ("ibis", "duckdb", "sqlglot", "cryptography")
"""What `kvairlock[audit]` brings."""
GC_OBJECTS = 100_000


def need_audit() -> None:
    """End the command unless what reads and signs evidence is installed; get ready for it."""
    missing = [package for package in AUDIT if find_spec(package) is None]
    if missing:
        fail(f"the package {missing[0]} is not there", "pip install 'kvairlock[audit]'")
    # Its modules and plans are a million objects that stay: to look among them for garbage as often
    # as usual takes a fifth of a small audit.
    gc.set_threshold(GC_OBJECTS)
