"""Where a process records what it does: the port behind which evidence is kept.

Gateway and nodes know this protocol only. What keeps the records is `kvairlock.sink`; what any
keeper must promise is its contract suite (docs/rack.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from kvairlock.core.effects import Value
from kvairlock.core.terms import Owner

__all__ = ["Sink", "Value"]


class Sink(Protocol):
    """Where a process records what it does."""

    @property
    def records(self) -> int:
        """How many records were numbered so far."""

    @property
    def lost(self) -> int:
        """How many of them could not be written so far."""

    def pseudonym(self, kind: str, name: str) -> str:
        """Return the keyed digest that stands for a `tenant` or a `request`.

        A request is named with its attempt: `REQUEST/ATTEMPT`.
        """

    def record(self, event: str, owner: Owner | None, fields: Mapping[str, Value]) -> None:
        """Number a record and see to it that it is written; return at once.

        What is lost, for want of room or because the device refuses it, is counted, and recorded
        as `evidence_lost` as soon as that can be written. Raises InvariantBroken if the record does
        not fit its row of the schema, and nothing else.
        """

    def close(self, *, in_order: bool = True) -> None:
        """Write what waits, `node_closed` behind it if nothing was left undone; idempotent."""
