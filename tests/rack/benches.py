"""Devices that can be held and can refuse, for the sinks that are put on the rack."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from threading import Event

import pytest

from kvairlock.core.terms import Peer
from kvairlock.runtime.evidence_settings import EvidenceSettings, Format
from kvairlock.runtime.recording import Sink
from kvairlock.sink import recorder
from kvairlock.sink.contract_bench import Bench
from kvairlock.sink.reading import LINES, files, read_folder
from kvairlock.sink.recorder import Recorder
from kvairlock.wire.keys import Keyring
from tests.rack.tiny_sink import Forwarding

TIMEOUT_S = 10.0


class Device:
    """A place for bytes, with a gate in front of it."""

    def __init__(self) -> None:
        self.written = bytearray()
        self.open, self.refusing = Event(), Event()
        self.held, self.refused = Event(), Event()
        self.open.set()

    def put(self, data: bytes) -> None:
        """Take bytes; waits while it is held, and raises OSError while it refuses."""
        if not self.open.is_set():
            self.held.set()
            self.open.wait()
        if self.refusing.is_set():
            self.refused.set()
            raise OSError("the device is full")
        self.written += data


class GatedBench(Bench):
    """What all benches over such a device have in common."""

    def __init__(self, device: Device) -> None:
        self.device = device

    def hold(self) -> None:
        self.device.open.clear()

    def wait_held(self) -> None:
        _wait(self.device.held)

    def refuse(self) -> None:
        self.device.refused.clear()
        self.device.refusing.set()

    def wait_refused(self) -> None:
        _wait(self.device.refused)

    def resume(self) -> None:
        self.device.refusing.clear()
        self.device.open.set()

    def close(self) -> None:
        self.sink.close(in_order=False)


class ForwardingBench(GatedBench):
    """The tiny sink, or one that is made like it, in front of a device in memory."""

    def __init__(self, make: Callable[[Callable[[bytes], None]], Sink]) -> None:
        super().__init__(Device())
        self.sink, self.waiting_max = make(self.device.put), Forwarding.WAITING_MAX

    def raw(self) -> bytes:
        return bytes(self.device.written)

    def records(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.raw().splitlines()]


class RecorderBench(GatedBench):
    """kvairlock's own sink: lines go to its open segment through the gate."""

    def __init__(
        self, folder: Path, peer: Peer, ring: Keyring, form: Format, patch: pytest.MonkeyPatch
    ) -> None:
        super().__init__(Device())
        self.folder, self._write = folder, os.write
        patch.setattr(os, "write", self._gated)
        self.sink = Recorder(folder, peer, ring, settings=EvidenceSettings(format=form))
        self.waiting_max = recorder.WAITING_MAX

    def _gated(self, fd: int, data: bytes) -> int:
        path = Path(f"/proc/self/fd/{fd}").resolve()
        if path.parent == self.folder and path.suffix == LINES:
            self.device.put(bytes(data))
        return self._write(fd, data)

    def raw(self) -> bytes:
        return bytes(self.device.written) + b"".join(p.read_bytes() for p in files(self.folder))

    def records(self) -> list[dict[str, object]]:
        return read_folder(self.folder)


def _wait(event: Event) -> None:
    if not event.wait(TIMEOUT_S):
        raise TimeoutError
