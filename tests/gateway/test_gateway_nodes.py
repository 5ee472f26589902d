"""Nodes that die, fall silent, come back or are not who they should be, seen through HTTP."""

from __future__ import annotations

import concurrent.futures
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import anyio
import httpx
import pytest

from kvairlock.core.messages import Inspect, Ruling, Submit, Watch
from kvairlock.core.terms import NodeName, TransferId
from kvairlock.gateway.nodes import SUBMITS_WAITING_MAX, Connection, Nodes, OutboxFull
from kvairlock.runtime.link import ChannelClosed
from kvairlock.runtime.secrets import new_key
from kvairlock.runtime.settings import LimitSettings
from kvairlock.wire.keys import Keyring

from .fake_nodes import (
    DECODE_TOKENS,
    PREFILL_TOKENS,
    FakeNodes,
    Talk,
    stay_silent,
    wait_for_cancel,
)
from .stacks import Stack, stack, until

DECODE = NodeName("decode-0")
NO_ROUTES = SimpleNamespace(nodes={})


def healthy(running: Stack) -> bool:
    return running.http.get("/healthz").status_code == 200


def started(running: Stack) -> TransferId:
    submit = running.decode.next(Submit)
    assert isinstance(submit, Submit)
    return submit.transfer


def test_a_node_that_dies_ends_its_requests_and_serves_again() -> None:
    with stack() as running, concurrent.futures.ThreadPoolExecutor() as pool:
        running.decode.script = stay_silent
        waiting = pool.submit(running.complete)
        streaming = pool.submit(running.complete, stream=True)
        started(running)
        started(running)
        first_life = running.decode.incarnation
        running.nodes.stop("decode-0")
        for asked in (waiting, streaming):
            response = asked.result(10)
            assert response.status_code == 503
            assert response.headers["retry-after"] == "1"
            assert response.json()["error"]["code"] == "node_lost"
            assert response.json()["error"]["stage"] == "gateway"
        until(lambda: not healthy(running))
        closed = running.complete()
        assert (closed.status_code, closed.headers["retry-after"]) == (503, "5")
        assert closed.json()["error"]["code"] == "route_closed"
        assert running.http.get("/healthz").json() == {
            "status": "no_route",
            "nodes": {"prefill-0": "up", "decode-0": "lost"},
            "breakers": {"prefill-0/decode-0": "closed"},
        }
        running.nodes.start("decode-0", DECODE_TOKENS, ["prefill-0"])
        until(lambda: healthy(running))
        assert running.complete().json()["choices"][0]["text"] == "hello"
        assert running.stop() == 0
        lives = [r["peer_incarnation"] for r in running.evidence("peer_up") if is_decode(r)]
        assert lives == [first_life, running.decode.incarnation]
        lost = [r["peer_incarnation"] for r in running.evidence("peer_lost") if is_decode(r)]
        assert lost == [first_life]


def is_decode(record: dict[str, object]) -> bool:
    return record["peer"] == "decode-0"


def test_a_node_lost_in_mid_stream_is_the_streams_last_event() -> None:
    with stack() as running:
        running.decode.script = wait_for_cancel
        body = {"model": "recall", "prompt": "x", "stream": True}
        with running.http.stream(
            "POST", "/v1/completions", json=body, headers=running.headers()
        ) as response:
            lines = (line for line in response.iter_lines() if line)
            assert json.loads(next(lines)[6:])["choices"][0]["text"] == "first"
            running.nodes.stop("decode-0")
            (last,) = list(lines)
        assert json.loads(last[6:])["error"]["code"] == "node_lost"


def test_a_silent_node_is_lost_and_found_again() -> None:
    with stack() as running, concurrent.futures.ThreadPoolExecutor() as pool:
        running.decode.script = stay_silent
        waiting = pool.submit(running.complete)
        started(running)
        running.decode.mute = True
        response = waiting.result(10)
        assert response.json()["error"]["code"] == "node_lost"
        running.decode.mute = False
        until(lambda: healthy(running))


def test_a_lost_prefill_node_closes_its_routes_only() -> None:
    def start(nodes: FakeNodes) -> None:
        nodes.start("prefill-0", PREFILL_TOKENS)
        nodes.start("prefill-1", 2 * PREFILL_TOKENS)
        nodes.start("decode-0", DECODE_TOKENS, ["prefill-0", "prefill-1"])

    settings = '[gateway]\nport = 0\n[[prefill]]\nname = "prefill-0"\n[[prefill]]\n' + (
        'name = "prefill-1"\n'
    )
    with stack(settings, start) as running:
        assert promise(running) == 512
        assert running.complete(prompt="x" * 300).status_code == 200
        assert route_of(running) == "prefill-1"
        running.nodes.stop("prefill-1")
        until(lambda: promise(running) == 256)
        assert healthy(running)
        assert running.complete(prompt="x" * 300).json()["error"]["limit"] == 256
        assert running.complete(prompt="x" * 200).status_code == 200
        assert route_of(running) == "prefill-0"


def promise(running: Stack) -> int:
    response = running.http.get("/v1/models/recall", headers=running.headers())
    window: int = response.json()["max_model_len"]
    return window


def route_of(running: Stack) -> str:
    submit = running.decode.next(Submit)
    assert isinstance(submit, Submit)
    return submit.prefill


def refusals_of(running: Stack) -> set[object]:
    return {(r["peer"], r["reason"]) for r in running.evidence("frame_refused")}


def test_a_node_with_another_cluster_key_never_comes_up() -> None:
    def start(nodes: FakeNodes) -> None:
        nodes.start("prefill-0", PREFILL_TOKENS)
        nodes.start("decode-0", DECODE_TOKENS, ["prefill-0"], ring=Keyring.parse(new_key("k1")))

    with stack(start=start, limits="[limits]\nstart_ms = 300\n") as running:
        assert running.http.get("/healthz").json()["nodes"]["decode-0"] == "unseen"
        response = running.complete()
        assert (response.status_code, response.json()["error"]["code"]) == (503, "route_closed")


@pytest.mark.parametrize("fault", ["another name", "another message"])
def test_a_node_that_speaks_out_of_turn_is_dropped(fault: str) -> None:
    with stack() as running:
        if fault == "another name":
            running.decode.reported_name = "decode-7"
        else:
            running.decode.extra = Ruling(TransferId("x/1"), True, None)
        expected = ("decode-0", "identity" if fault == "another name" else "malformed")
        until(lambda: expected in refusals_of(running))
        running.decode.reported_name = "decode-0"
        until(lambda: healthy(running))


def test_a_message_of_a_gateway_to_a_gateway_is_no_reason_to_crash() -> None:
    with stack() as running:
        running.decode.extra = Inspect()
        until(lambda: ("decode-0", "malformed") in refusals_of(running))
        until(lambda: healthy(running))
        assert running.process.poll() is None


def test_impossible_chunks_cost_the_node_its_channel() -> None:
    async def wrong(talk: Talk) -> None:
        await talk.chunk(b"x", choice=5)

    with stack() as running:
        running.decode.script = wrong
        response: httpx.Response = running.complete()
        assert (response.status_code, response.json()["error"]["code"]) == (503, "node_lost")
        until(lambda: healthy(running))


def test_only_requests_count_against_the_requests_that_may_wait() -> None:
    nodes = Nodes(Path(), cast(Any, None), LimitSettings(), cast(Any, NO_ROUTES), cast(Any, None))
    connection = nodes._open[DECODE] = Connection(DECODE, cast(Any, None))
    submit = object.__new__(Submit)
    for _ in range(SUBMITS_WAITING_MAX):
        nodes.post(DECODE, Watch("v", 0, 250))
        nodes.post(DECODE, Inspect())
        nodes.post(DECODE, submit)
    with pytest.raises(OutboxFull):
        nodes.post(DECODE, submit)
    nodes.post(DECODE, Inspect())
    assert len(connection.outbox) == 3 * SUBMITS_WAITING_MAX + 1


def test_requests_that_were_sent_wait_no_more() -> None:
    class Reader:
        """Takes one message, and no other."""

        def __init__(self) -> None:
            self.left = 1

        async def send(self, message: object) -> None:
            if not self.left:
                raise ChannelClosed
            self.left -= 1

    async def run() -> None:
        connection = Connection(DECODE, cast(Any, Reader()))
        for message in (object.__new__(Submit), Inspect(), object.__new__(Submit)):
            connection.put(message)
        with pytest.raises(ChannelClosed):
            await connection.write()
        assert connection.requests_waiting == 1

    anyio.run(run)
