"""What the contract of sinks needs: a sink, and a device that can be held and can refuse."""

from __future__ import annotations

from abc import ABC, abstractmethod

from kvairlock.runtime.recording import Sink


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
        """Let the device fail every write from now on, until `resume`."""

    @abstractmethod
    def wait_refused(self) -> None:
        """Wait until a write has failed since `refuse`."""

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
