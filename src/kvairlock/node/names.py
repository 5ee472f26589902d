"""Fresh random names: what the core is given, since it draws nothing itself."""

from __future__ import annotations

import secrets

from kvairlock.core.terms import WindowId


def fresh_window() -> WindowId:
    """Return a window's name; it is never used again."""
    return WindowId(secrets.token_hex(8))


def fresh_seed() -> int:
    """Return the seed of one transfer's page digests, below 2**63."""
    return secrets.randbits(63)
