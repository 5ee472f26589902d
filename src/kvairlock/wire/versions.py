"""Which versions of the messages this build speaks; two processes use the highest that both do.

1   0.1.0
2   a capacity report has an epoch and says what it depends on
"""

from __future__ import annotations

from kvairlock.wire.tickets import VERSION as TICKET_VERSION

SPEAKS = (1, 2)
"""In rising order."""


def protocols() -> str:
    """Return all versions in words, as a capacity report states them."""
    return f"messages {SPEAKS[0]} to {SPEAKS[-1]}, tickets {TICKET_VERSION}"
