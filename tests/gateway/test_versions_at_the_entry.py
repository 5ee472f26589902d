"""Nodes of other versions: which are spoken with, and which keep their route closed."""

from __future__ import annotations

from typing import Any

import pytest

from kvairlock.core.messages import Resize
from kvairlock.wire.versions import SPEAKS, Versions

from .fake_nodes import DECODE_TOKENS, PREFILL_TOKENS, FakeNodes
from .stacks import Stack, stack, until

DRILL = '[gateway]\nport = 0\n[drill]\nenabled = true\n[[decode]]\nname = "decode-0"\n'
TWO_DECODES = DRILL + '[[decode]]\nname = "decode-1"\n'
FIRST: Versions = (1,)
LATER: Versions = (SPEAKS[-1] + 1,)


def status(running: Stack) -> dict[str, Any]:
    headers = running.headers(running.operator_key)
    found: dict[str, Any] = running.http.get("/status", headers=headers).json()
    return found


def ask(running: Stack, route: str) -> Any:
    headers = running.headers(running.operator_key, x_kvairlock_route=route)
    body = {"model": "recall", "prompt": "hello"}
    return running.http.post("/v1/completions", json=body, headers=headers)


def pair(nodes: FakeNodes, prefill: Versions, decode: Versions) -> None:
    nodes.start("prefill-0", PREFILL_TOKENS, speaks=prefill)
    nodes.start("decode-0", DECODE_TOKENS, ["prefill-0"], speaks=decode)


def until_up(running: Stack) -> None:
    until(lambda: running.http.get("/healthz").status_code == 200)


@pytest.mark.parametrize(
    ("prefill", "decode"), [(FIRST, FIRST), (FIRST, SPEAKS), (SPEAKS, FIRST), (SPEAKS, SPEAKS)]
)
def test_nodes_of_every_version_that_is_spoken_serve_together(
    prefill: Versions, decode: Versions
) -> None:
    with stack(start=lambda nodes: pair(nodes, prefill, decode)) as running:
        until_up(running)
        assert running.complete().json()["choices"][0]["text"] == "hello"
        nodes = status(running)["nodes"]
        assert nodes["prefill-0"]["speaks"] == list(prefill)
        assert nodes["decode-0"]["speaks"] == list(decode)
        assert running.stop() == 0
        opened = {r["peer"]: r["messages"] for r in running.evidence("channel_opened")}
        assert opened == {"prefill-0": prefill[-1], "decode-0": decode[-1]}


def test_a_node_without_a_version_in_common_is_refused_by_name_while_others_serve() -> None:
    def start(nodes: FakeNodes) -> None:
        pair(nodes, SPEAKS, SPEAKS)
        nodes.start("decode-1", DECODE_TOKENS, ["prefill-0"], speaks=LATER)

    with stack(TWO_DECODES, start) as running:
        until_up(running)
        until(lambda: status(running)["nodes"]["decode-1"]["state"] == "incompatible")
        refused = ask(running, "prefill-0/decode-1")
        assert refused.status_code == 503
        error = refused.json()["error"]
        assert (error["code"], error["reason"]) == ("route_closed", "route_closed")
        why = "no version in common: messages 1, 2 here, messages 3 there"
        assert error["message"].endswith(f"incompatible (decode-1): {why}")
        told = status(running)
        assert told["nodes"]["decode-1"]["why"] == why
        assert told["routes"] == {"prefill-0/decode-0": "up", "prefill-0/decode-1": "closed"}
        assert told["closed"]["prefill-0/decode-1"]["by"] == "incompatible"
        assert ask(running, "prefill-0/decode-0").status_code == 200
        refusals = {(r["peer"], r["reason"]) for r in running.evidence("frame_refused")}
        assert refusals == {("decode-1", "version")}


def test_a_pair_without_a_version_in_common_is_refused_although_both_are_understood() -> None:
    """Even if decode claims a link: what it says of an impossible one is not believed."""
    with stack(DRILL, lambda nodes: pair(nodes, FIRST, SPEAKS[1:])) as running:
        until(lambda: "prefill-0/decode-0" in status(running)["closed"])
        until(lambda: status(running)["closed"]["prefill-0/decode-0"]["by"] == "incompatible")
        why = "no version in common: messages 1 at prefill, messages 2 at decode"
        refused = running.complete()
        assert refused.status_code == 503
        assert refused.headers["retry-after"] == "5"
        assert refused.json()["error"]["message"] == f"no route is up: {why}"
        assert why in ask(running, "prefill-0/decode-0").json()["error"]["message"]
        assert (
            running.http.get("/v1/models", headers=running.headers()).json()["data"][0][
                "max_model_len"
            ]
            == 0
        )


def test_a_route_opens_when_an_incompatible_node_gives_way_to_another() -> None:
    with stack(start=lambda nodes: pair(nodes, SPEAKS, LATER)) as running:
        until(lambda: status(running)["nodes"]["decode-0"]["state"] == "incompatible")
        assert running.complete().status_code == 503
        running.nodes.stop("decode-0")
        running.nodes.start("decode-0", DECODE_TOKENS, ["prefill-0"], speaks=FIRST)
        until_up(running)
        assert running.complete().status_code == 200
        node = status(running)["nodes"]["decode-0"]
        assert (node["state"], node["why"], node["speaks"]) == ("up", "", [1])


def test_what_version_1_has_no_form_for_is_refused_to_who_asks_and_the_channel_stays() -> None:
    with stack(start=lambda nodes: pair(nodes, FIRST, SPEAKS)) as running:
        until_up(running)
        headers = running.headers(running.operator_key)
        answers = {
            name: running.http.post(f"/nodes/{name}/pages", json={"pages": 4}, headers=headers)
            for name in ("prefill-0", "decode-0")
        }
        assert answers["prefill-0"].status_code == 501
        assert answers["decode-0"].status_code == 202
        assert running.nodes.nodes["decode-0"].next(Resize) == Resize(4)
        assert running.complete().status_code == 200
        assert running.stop() == 0
        assert not running.evidence("frame_refused")
        opened = [str(r["peer"]) for r in running.evidence("channel_opened")]
        assert sorted(opened) == ["decode-0", "prefill-0"]
