"""Evidence that a node has sealed, for tests that do something to it."""

from __future__ import annotations

from pathlib import Path

from kvairlock.core.terms import Incarnation, NodeName, Owner, Peer, Role
from kvairlock.runtime.evidence_settings import EvidenceSettings
from kvairlock.sink.contract import BEAT
from kvairlock.sink.recorder import Recorder
from kvairlock.sink.seals import Seals
from kvairlock.wire.keys import KEY_BYTES, Keyring

RING = Keyring({"k1": b"k" * KEY_BYTES})
OWNER = Owner("acme", "request-1", 1)


def peer(life: str, node: str = "decode-0") -> Peer:
    return Peer(NodeName(node), Role.DECODE, Incarnation(life))


def recorder(folder: Path, life: str, node: str = "decode-0") -> Recorder:
    return Recorder(folder, peer(life, node), RING, settings=EvidenceSettings())


def lived(folder: Path, *lives: str, node: str = "decode-0", beats: int = 3) -> list[Path]:
    """Let a node live and end in order, life after life; return the file of each."""
    files = []
    for life in lives:
        sink = recorder(folder, life, node)
        for _ in range(beats):
            sink.record("beat", None, BEAT)
        sink.close()
        files.append(sink.path)
    return files


def seals_of(folder: Path, node: str = "decode-0", ring: Keyring = RING) -> Seals:
    return Seals(folder, node, ring)
