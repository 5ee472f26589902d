"""What a command needs that a plain installation does not have: it says so, and how to get it."""

from __future__ import annotations

from importlib.util import find_spec

from kvairlock.cli.output import fail

AUDIT = ("ibis", "duckdb", "sqlglot", "cryptography")
"""What `kvairlock[audit]` brings."""


def need_audit() -> None:
    """End the command unless what reads and signs evidence is installed."""
    missing = [package for package in AUDIT if find_spec(package) is None]
    if missing:
        fail(f"the package {missing[0]} is not there", "pip install 'kvairlock[audit]'")
