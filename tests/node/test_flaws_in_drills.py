"""What does wrong on purpose is part of a node process in drill mode only."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from kvairlock.core.terms import Incarnation, NodeName, Peer, Role
from kvairlock.engine.model import load
from kvairlock.node import measuring, process
from kvairlock.node.decode import DecodeHost
from kvairlock.node.flawed_decode import FlawedDecode
from kvairlock.node.flawed_prefill import FlawedPrefill
from kvairlock.node.host import Equipment, Host
from kvairlock.node.prefill import PrefillHost
from kvairlock.runtime import settings
from kvairlock.runtime.failpoints import FailpointError, Flaw
from kvairlock.runtime.guarding import Guarding
from kvairlock.runtime.secrets import new_key
from kvairlock.sink.recorder import Recorder
from kvairlock.transport.memory import PoolMemory
from kvairlock.wire.keys import Keyring

NODES = '[[prefill]]\nname = "p"\npages = 4\n[[decode]]\nname = "d"\npages = 4\n'
DRILL = "[drill]\nenabled = true\n"


async def built(folder: Path, text: str, name: str, role: Role) -> tuple[type[Host], bool]:
    """The class of a node of some settings, and whether a flaw can be armed in it."""
    read, ring = settings.parse(text), Keyring.parse(new_key("test"))
    node, peer = process.node_settings(read, name), Peer(NodeName(name), role, Incarnation("1"))
    model = load(read.model)
    layout = model.layout(read.page_tokens)
    report = measuring.measure(read, node, model, peer)
    memory, sink = PoolMemory(4, layout.page_bytes), Recorder(folder, peer, ring)
    try:
        host = process.build(
            Equipment(
                read, report, peer, ring, model, layout, memory, sink, folder, Guarding(read, 0)
            ),
            node,
        )
        try:
            host.points.arm(Flaw.TORN)
        except FailpointError:
            return type(host), False
        return type(host), True
    finally:
        sink.close()


@pytest.mark.parametrize(
    ("name", "role", "drill", "plain"),
    [
        ("p", Role.PREFILL, FlawedPrefill, PrefillHost),
        ("d", Role.DECODE, FlawedDecode, DecodeHost),
    ],
)
def test_a_node_is_flawed_in_drill_mode_only(
    name: str, role: Role, drill: type[Host], plain: type[Host], tmp_path: Path
) -> None:
    assert anyio.run(built, tmp_path / "a", NODES + DRILL, name, role) == (drill, True)
    assert anyio.run(built, tmp_path / "b", NODES, name, role) == (plain, False)
