"""What the contract of sinks needs: a sink, and a device that can be held and can refuse."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Protocol

from kvairlock.core.terms import Owner

Value = str | int | tuple[int, ...] | tuple[str, ...] | None


class Sink(Protocol):
    """Where a process records what it does."""

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


class Bench(ABC):
    """A sink under test and its device. Waiting calls raise TimeoutError instead of hanging."""

    sink: Sink
    waiting_max: int
    """How many records may wait for the device."""

    @abstractmethod
    def hold(self) -> None:
        """Let the device take nothing: a write waits until `resume`."""

    @abstractmethod
    def wait_held(self) -> None:
        """Wait until a write waits for the device."""

    @abstractmethod
    def refuse(self) -> None:
        """Let the device fail every write until `resume`."""

    @abstractmethod
    def wait_refused(self) -> None:
        """Wait until a write has failed."""

    @abstractmethod
    def resume(self) -> None:
        """Let the device work again; idempotent."""

    @abstractmethod
    def raw(self) -> bytes:
        """Return everything that was written."""

    @abstractmethod
    def records(self) -> list[dict[str, object]]:
        """Return the records that were written whole, in their order, as an audit reads them."""

    @abstractmethod
    def close(self) -> None:
        """Give everything up; the sink may be closed before."""
