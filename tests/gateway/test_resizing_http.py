"""Nodes whose figures change, or are no longer said, as clients and operators see it."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from kvairlock.core.messages import Resize, Submit

from .fake_nodes import DECODE_TOKENS, PREFILL_TOKENS, FakeNodes
from .stacks import Stack, stack, until

OTHERS_PAGES = PREFILL_TOKENS // 16


def promise(running: Stack) -> int:
    response = running.http.get("/v1/models/recall", headers=running.headers())
    window: int = response.json()["max_model_len"]
    return window


def status(running: Stack) -> dict[str, Any]:
    headers = running.headers(running.operator_key)
    told: dict[str, Any] = running.http.get("/status", headers=headers).json()
    return told


def resize(running: Stack, name: str, body: object, key: str | None = None) -> httpx.Response:
    headers = running.headers(key or running.operator_key)
    return running.http.post(f"/nodes/{name}/pages", json=body, headers=headers)


def code_of(response: httpx.Response) -> tuple[int, str]:
    return response.status_code, response.json()["error"]["code"]


def test_a_node_that_beats_and_does_not_report_closes_its_route() -> None:
    def start(nodes: FakeNodes) -> None:
        nodes.start("prefill-0", PREFILL_TOKENS)
        nodes.start("prefill-1", 2 * PREFILL_TOKENS)
        nodes.start("decode-0", DECODE_TOKENS, ["prefill-0", "prefill-1"])

    settings = '[gateway]\nport = 0\n[[prefill]]\nname = "prefill-0"\n[[prefill]]\n' + (
        'name = "prefill-1"\n'
    )
    with stack(settings, start) as running:
        until(lambda: promise(running) == 512)
        running.nodes.nodes["prefill-1"].beats_only = True
        until(lambda: promise(running) == 256)
        told = status(running)
        assert told["nodes"]["prefill-1"]["state"] == "stale"
        assert told["nodes"]["prefill-1"]["status"]["report"]["pages"] == 32, "it is shown"
        assert told["nodes"]["prefill-1"]["report_ms"] >= 400
        assert told["routes"] == {"prefill-0/decode-0": "up", "prefill-1/decode-0": "closed"}
        closed = told["closed"]["prefill-1/decode-0"]
        assert (closed["by"], closed["node"]) == ("stale", "prefill-1")
        assert running.complete(prompt="x" * 300).json()["error"]["limit"] == 256
        assert running.complete(prompt="x" * 200).status_code == 200
        submit = running.decode.next(Submit)
        assert isinstance(submit, Submit)
        assert submit.prefill == "prefill-0"
        assert not running.evidence("peer_lost"), "its channel is as it was"
        running.nodes.nodes["prefill-1"].beats_only = False
        until(lambda: promise(running) == 512)
        assert status(running)["nodes"]["prefill-1"]["state"] == "up"


def test_the_only_route_closed_by_staleness_is_a_503_and_serves_again() -> None:
    with stack() as running:
        until(lambda: promise(running) == 256)
        running.decode.beats_only = True
        until(lambda: running.http.get("/healthz").status_code == 503)
        assert running.http.get("/healthz").json()["nodes"]["decode-0"] == "stale"
        refused = running.complete()
        assert code_of(refused) == (503, "route_closed")
        assert refused.headers["retry-after"] == "5"
        running.decode.beats_only = False
        until(lambda: running.complete().status_code == 200)


def test_an_earlier_epoch_is_recorded_and_the_later_one_stays() -> None:
    with stack() as running:
        until(lambda: promise(running) == 256)
        prefill = running.nodes.nodes["prefill-0"]
        prefill.tokens, prefill.epoch = 128, 4
        until(lambda: promise(running) == 128)
        prefill.tokens, prefill.epoch = 256, 3
        until(lambda: bool(running.evidence("message_ignored")))
        until(lambda: promise(running) == 0)
        ignored = running.evidence("message_ignored")[0]
        assert (ignored["message"], ignored["reason"]) == ("nodestatus", "epoch 3 is over")
        told = status(running)["nodes"]["prefill-0"]
        assert (told["state"], told["status"]["report"]["pages"]) == ("stale", 8)
        prefill.epoch = 5
        until(lambda: promise(running) == 256)


def test_a_node_that_contradicts_itself_is_dropped_until_it_says_something_later() -> None:
    with stack() as running:
        until(lambda: promise(running) == 256)
        prefill = running.nodes.nodes["prefill-0"]
        prefill.tokens = 1024
        until(lambda: bool(running.evidence("frame_refused")))
        until(lambda: promise(running) == 0)
        refused = running.evidence("frame_refused")[0]
        assert (refused["peer"], refused["reason"]) == ("prefill-0", "malformed")
        prefill.epoch = 1
        until(lambda: promise(running) == 512)


def test_a_report_of_another_life_than_the_channels_is_refused() -> None:
    with stack() as running:
        until(lambda: promise(running) == 256)
        prefill = running.nodes.nodes["prefill-0"]
        prefill.tokens, prefill.reported_incarnation = 2 * PREFILL_TOKENS, "another"
        until(lambda: bool(running.evidence("frame_refused")))
        until(lambda: promise(running) == 0)
        refused = running.evidence("frame_refused")[0]
        assert (refused["peer"], refused["reason"]) == ("prefill-0", "identity")
        shown = status(running)["nodes"]["prefill-0"]["status"]
        assert shown is None or shown["report"]["pages"] == OTHERS_PAGES
        prefill.tokens, prefill.reported_incarnation = PREFILL_TOKENS, prefill.incarnation
        until(lambda: promise(running) == 256)


def test_a_new_life_is_judged_by_its_own_figures_only() -> None:
    with stack() as running:
        until(lambda: promise(running) == 256)
        running.nodes.stop("prefill-0")
        until(lambda: promise(running) == 0)
        assert status(running)["nodes"]["prefill-0"]["state"] == "lost"
        assert status(running)["nodes"]["prefill-0"]["status"]["report"]["pages"] == OTHERS_PAGES
        again = running.nodes.start("prefill-0", 128)
        until(lambda: promise(running) == 128)
        report = status(running)["nodes"]["prefill-0"]["status"]["report"]
        assert (report["incarnation"], report["pages"]) == (again.incarnation, 8)


def test_a_node_on_which_nothing_fits_closes_its_route(gateway: Stack) -> None:
    with stack(start=lambda nodes: _empty(nodes)) as running:
        until(lambda: "prefill-0/decode-0" in status(running)["closed"])
        until(lambda: status(running)["closed"]["prefill-0/decode-0"]["by"] == "nothing_fits")
        told = status(running)
        assert told["closed"]["prefill-0/decode-0"]["node"] == "prefill-0"
        assert told["route_tokens"] == {"prefill-0/decode-0": 0}
        assert code_of(running.complete()) == (503, "route_closed")


def _empty(nodes: FakeNodes) -> None:
    nodes.start("prefill-0", 0)
    nodes.start("decode-0", DECODE_TOKENS, ["prefill-0"])


# The operator's endpoint


@pytest.mark.parametrize("pages", [0, 5, OTHERS_PAGES])
def test_a_node_is_told_how_many_pages_requests_may_have(gateway: Stack, pages: int) -> None:
    answer = resize(gateway, "prefill-0", {"pages": pages})
    assert answer.status_code == 202
    assert answer.json() == {
        "sent": {"node": "prefill-0", "pages": pages, "mapped": OTHERS_PAGES, "epoch": 0}
    }
    assert gateway.nodes.nodes["prefill-0"].next(Resize) == Resize(pages)


def test_more_pages_than_were_mapped_are_refused_with_figures(gateway: Stack) -> None:
    refused = resize(gateway, "prefill-0", {"pages": OTHERS_PAGES + 1})
    assert code_of(refused) == (400, "pages_not_mapped")
    error = refused.json()["error"]
    told = (error["asked"], error["limit"], error["limit_name"], error["param"])
    assert told == (OTHERS_PAGES + 1, OTHERS_PAGES, "mapped_pages", "pages")


@pytest.mark.parametrize(
    "body", [{}, {"pages": -1}, {"pages": True}, {"pages": "8"}, {"pages": 1.5}, {"pages": None}]
)
def test_a_number_that_makes_no_sense_is_400(gateway: Stack, body: dict[str, object]) -> None:
    refused = resize(gateway, "prefill-0", body)
    assert code_of(refused) == (400, "invalid_value")
    assert refused.json()["error"]["param"] == "pages"


def test_an_unknown_node_is_404_and_a_tenant_is_403(gateway: Stack) -> None:
    assert code_of(resize(gateway, "prefill-9", {"pages": 1})) == (404, "not_found")
    tenant = resize(gateway, "prefill-0", {"pages": 1}, gateway.tenant_key)
    assert code_of(tenant) == (403, "operator_only")
    assert gateway.http.post("/nodes/prefill-0/pages", json={"pages": 1}).status_code == 401
    assert gateway.http.get("/nodes/prefill-0/pages").status_code == 405


def test_a_node_that_is_not_heard_cannot_be_told() -> None:
    with stack() as running:
        running.nodes.stop("prefill-0")
        until(lambda: status(running)["nodes"]["prefill-0"]["state"] == "lost")
        refused = resize(running, "prefill-0", {"pages": 1})
        assert code_of(refused) == (503, "node_lost")
