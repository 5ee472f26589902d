"""What a soak believes of the evidence: made by the sink that the processes use."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvairlock.core.terms import Incarnation, NodeName, Owner, Peer, Role
from kvairlock.drills.soak.evidence import hear
from kvairlock.runtime.evidence_settings import EvidenceSettings, Format
from kvairlock.runtime.recording import Value
from kvairlock.sink.recorder import Recorder
from kvairlock.wire.keys import Keyring

RING = Keyring({"k": bytes(32)})
ADMITTED: dict[str, Value] = {"prompt_tokens": 9, "max_tokens": 3}
ENDED: dict[str, Value] = {
    "reason": "",
    "computed_tokens": 9,
    "generated_tokens": 3,
    "reused_tokens": 0,
}
REFUSED: dict[str, Value] = {"reason": "capacity", "asked": None, "limit": None, "limit_name": None}


class Node:
    """A process that records."""

    def __init__(self, folder: Path, role: Role) -> None:
        peer = Peer(NodeName(role), role, Incarnation("1"))
        lines = EvidenceSettings(format=Format.JSONL)
        self.sink = Recorder(folder, peer, RING, settings=lines)

    def admit(self, request: str, stage: str) -> None:
        self.sink.record("request_admitted", owner(request), {"stage": stage, **ADMITTED})

    def end(self, request: str, end: str = "completed") -> None:
        self.sink.record("request_ended", owner(request), {"end": end, **ENDED})

    def refuse(self, request: str) -> None:
        fields: dict[str, Value] = {"stage": "decode_admission", **REFUSED}
        self.sink.record("request_refused", owner(request), fields)


def owner(request: str) -> Owner:
    return Owner("acme", request, 1)


@pytest.fixture
def nodes(tmp_path: Path) -> dict[Role, Node]:
    """A stack that has served `a`, and turned `b` away."""
    nodes = {role: Node(tmp_path, role) for role in Role}
    for request in ("a", "b"):
        nodes[Role.GATEWAY].admit(request, "gateway")
    nodes[Role.DECODE].admit("a", "decode_admission")
    nodes[Role.PREFILL].end("a")
    nodes[Role.DECODE].end("a")
    nodes[Role.DECODE].refuse("b")
    return nodes


def close(nodes: dict[Role, Node]) -> None:
    for node in nodes.values():
        node.sink.close()


def test_one_end_of_each_request_is_as_it_must_be(tmp_path: Path, nodes: dict[Role, Node]) -> None:
    close(nodes)
    told = hear(tmp_path)
    assert (told.ends_missing, told.ends_repeated) == (0, 0)
    assert (told.files, told.records, told.records_lost, told.files_open) == (3, 9, 0, 0)


def test_a_refusal_that_ends_an_admitted_request_is_no_second_end(
    tmp_path: Path, nodes: dict[Role, Node]
) -> None:
    for request in ("c", "d"):
        nodes[Role.GATEWAY].admit(request, "gateway")
        nodes[Role.DECODE].admit(request, "decode_admission")
        nodes[Role.DECODE].refuse(request)
    nodes[Role.DECODE].end("c", "rejected")
    close(nodes)
    told = hear(tmp_path)
    assert (told.ends_missing, told.ends_repeated) == (1, 0)


def test_an_end_on_prefill_alone_is_none(tmp_path: Path, nodes: dict[Role, Node]) -> None:
    nodes[Role.GATEWAY].admit("c", "gateway")
    nodes[Role.PREFILL].end("c")
    close(nodes)
    assert hear(tmp_path).ends_missing == 1


@pytest.mark.parametrize("role", [Role.PREFILL, Role.DECODE])
def test_a_second_end_on_one_node_shows(
    tmp_path: Path, nodes: dict[Role, Node], role: Role
) -> None:
    nodes[role].end("a", "cancelled")
    close(nodes)
    assert hear(tmp_path).ends_repeated == 1


def test_a_record_that_is_gone_shows_as_lost(tmp_path: Path, nodes: dict[Role, Node]) -> None:
    close(nodes)
    path = nodes[Role.DECODE].sink.path
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([lines[0], *lines[2:]]))
    assert hear(tmp_path).records_lost == 1


def test_a_file_without_its_close_marker_shows(tmp_path: Path, nodes: dict[Role, Node]) -> None:
    nodes[Role.GATEWAY].sink.close()
    nodes[Role.PREFILL].sink.close()
    nodes[Role.DECODE].sink.close(in_order=False)
    assert hear(tmp_path).files_open == 1


def test_waits_are_told_from_decodes_own_clock(
    tmp_path: Path, nodes: dict[Role, Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    now_ns = iter((0, 1_000_000, 9_000_000, 41_000_000, 42_000_000))
    monkeypatch.setattr("kvairlock.runtime.clock.now", lambda: next(now_ns, 50_000_000))
    for request in ("c", "d"):
        nodes[Role.DECODE].admit(request, "decode_admission")
    for request in ("c", "d"):
        pages: dict[str, Value] = {"lease": 1, "pages": (1,), "generations": (0,)}
        nodes[Role.DECODE].sink.record("pages_allocated", owner(request), pages)
    close(nodes)
    told = hear(tmp_path)
    assert (told.waited, told.wait_ms_max) == (1, 40)
