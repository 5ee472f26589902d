"""A folder for kvairlock's own sink, with segments of a few records."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import cast

import pytest

from kvairlock.core.terms import Incarnation, Peer
from kvairlock.drills.stack import wait_for
from kvairlock.runtime.evidence_settings import EvidenceSettings, Format
from kvairlock.runtime.recording import Sink
from kvairlock.sink import parquet, seals, segments
from kvairlock.sink.contract import PEER, RING
from kvairlock.sink.contract_store import Store
from kvairlock.sink.reading import read_folder
from kvairlock.sink.recorder import Recorder
from kvairlock.sink.segments import Segments


class RecorderStore(Store):
    """Where `Recorder` keeps its files."""

    def __init__(self, folder: Path, form: Format, patch: pytest.MonkeyPatch) -> None:
        self.folder, self._form, self._patch = folder, form, patch
        patch.setattr(segments, "MIB", 2000)  # bytes: eight beats, about

    def begin(self, life: str) -> Sink:
        peer = Peer(PEER.node, PEER.role, Incarnation(life))
        settings = EvidenceSettings(format=self._form, segment_mib=1)
        return Recorder(self.folder, peer, RING, settings=settings)

    def wait_written(self, sink: Sink) -> None:
        wait_for("records to be written", lambda: self._written() == sink.records or None)

    def _written(self) -> int:
        return len(read_folder(self.folder))

    def die(self, sink: Sink) -> None:
        """Close its descriptors, as the kernel would: no line more, no seal."""
        files = cast(Recorder, sink)._segments
        files.close = lambda: only_closes(files)  # type: ignore[method-assign]
        sink.close(in_order=False)

    def refuse_seals(self) -> None:
        self._put, self._convert = seals._put, parquet.convert
        self._patch.setattr(seals, "_put", _no_room)
        self._patch.setattr(parquet, "convert", _no_room)

    def resume(self) -> None:
        self._patch.setattr(seals, "_put", self._put)
        self._patch.setattr(parquet, "convert", self._convert)


def only_closes(files: Segments) -> None:
    for file in (files._file, *files._full.values()):
        os.close(file)


def _no_room(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")
