from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kvairlock.core.terms import Incarnation, NodeName, Peer, Role
from kvairlock.sink.recorder import Recorder
from kvairlock.wire.keys import Keyring

from .fake_nodes import greet
from .stacks import Stack, stack


@pytest.fixture(scope="session")
def shared_stack() -> Iterator[Stack]:
    """One gateway for all tests that leave it as they found it."""
    with stack() as running:
        yield running


@pytest.fixture
def gateway(shared_stack: Stack) -> Iterator[Stack]:
    """The shared gateway, with nodes that greet unless the test says otherwise."""
    yield shared_stack
    shared_stack.decode.script = greet


@pytest.fixture
def ring() -> Keyring:
    return Keyring({"k1": bytes(range(32))})


@pytest.fixture
def evidence(tmp_path: Path, ring: Keyring) -> Iterator[Recorder]:
    peer = Peer(NodeName("gateway"), Role.GATEWAY, Incarnation("test"))
    sink = Recorder(tmp_path / "evidence", peer, ring)
    yield sink
    sink.close()
