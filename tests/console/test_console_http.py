"""The console over HTTP: who may see it, what is in its stream, and what never is."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import httpx
import pytest

from kvairlock.core.memory.page import PageStage
from kvairlock.core.messages import NodeStatus, PageMap, Watch
from kvairlock.gateway.console.figures import NOT_TOLD
from kvairlock.gateway.console.page_maps import LEASE_MS
from kvairlock.gateway.console.shell import assets
from kvairlock.gateway.console.viewers import VIEWERS_MAX
from kvairlock.runtime.link import Link
from tests.gateway.fake_nodes import DECODE_TOKENS, PREFILL_TOKENS, WAIT_S, FakeNode, FakeNodes
from tests.gateway.stacks import Stack, stack, until

PAGES = 4
EVENTS_MAX = 200
HELD = "held-request/1"


async def tells_once(link: Link, watch: Watch) -> None:
    """Tell of four free pages, and of no change afterwards."""
    if watch.lease_ms and watch.view not in TOLD:
        TOLD.add(watch.view)
        await link.send(page_map(watch.view))


TOLD: set[str] = set()


def page_map(view: str, stage: int = PageStage.FREE) -> PageMap:
    span = (0).to_bytes(4, "little") + PAGES.to_bytes(4, "little")
    return PageMap(view, 0, PAGES, span, bytes([stage] * PAGES), bytes(8 * PAGES), 0)


def holding_a_point(node: FakeNode) -> NodeStatus:
    """What a node states while a failpoint holds the thread of a request."""
    return replace(FakeNode.status(node), points=(f"write.piece {HELD}",))


@pytest.fixture(scope="module")
def gateway() -> Iterator[Stack]:
    """A gateway whose decode node tells of its pages, and whose prefill node can't."""

    def start(nodes: FakeNodes) -> None:
        nodes.start("prefill-0", PREFILL_TOKENS, speaks=(1,))
        decode = nodes.start("decode-0", DECODE_TOKENS, ["prefill-0"])
        decode.watched = tells_once
        decode.status = partial(holding_a_point, decode)  # type: ignore[method-assign]

    with stack(start=start) as running:
        yield running


@contextmanager
def looking(gateway: Stack, key: str | None = None) -> Iterator[Iterator[tuple[str, Any]]]:
    """Look at the console as an operator, or with another key."""
    headers = gateway.headers(key or gateway.operator_key)
    with gateway.http.stream("GET", "/console/live", headers=headers) as response:
        assert response.status_code == 200, response.read()
        yield events(response)


def events(response: httpx.Response) -> Iterator[tuple[str, Any]]:
    name = ""
    for line in response.iter_lines():
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield name, json.loads(line.removeprefix("data: "))


def first(stream: Iterator[tuple[str, Any]], wanted: str) -> Any:
    """Return the next event of a name."""
    for _, (name, told) in zip(range(EVENTS_MAX), stream, strict=False):
        if name == wanted:
            return told
    raise AssertionError(f"no event {wanted}")


# The page


@pytest.mark.parametrize("path", ["/console", "/console/app.js", "/console/style.css"])
def test_the_page_is_open_and_its_headers_forbid_what_it_does_not_need(
    gateway: Stack, path: str
) -> None:
    response = gateway.http.get(path)
    assert response.status_code == 200
    policy = response.headers["content-security-policy"].split("; ")
    assert {"default-src 'none'", "frame-ancestors 'none'", "form-action 'none'"} <= set(policy)
    assert not [part for part in policy if "unsafe" in part or "*" in part or "http" in part]
    assert response.headers["x-frame-options"] == "DENY"
    assert response.headers["x-content-type-options"] == "nosniff"
    assert response.headers["cache-control"] == "no-store"
    assert response.headers["referrer-policy"] == "no-referrer"


def test_the_page_holds_nothing_of_the_stack(gateway: Stack) -> None:
    page = gateway.http.get("/console").text
    for word in ("decode-0", "prefill-0", "recall", "acme-secret-name", "staff"):
        assert word not in page


@pytest.mark.parametrize(
    "path", ["/console/..%2Fapp.py", "/console/none.js", "/console/", "/CONSOLE"]
)
def test_there_is_no_other_file(gateway: Stack, path: str) -> None:
    assert gateway.http.get(path).status_code == 404


# The key


@pytest.mark.parametrize(
    ("authorization", "status", "code"),
    [
        (None, 401, "missing_api_key"),
        ("Bearer kva-AAAAAAAA-wrong", 401, "invalid_api_key"),
        ("Basic c3RhZmY6", 401, "missing_api_key"),
    ],
)
def test_without_a_known_key_there_is_no_stream(
    gateway: Stack, authorization: str | None, status: int, code: str
) -> None:
    headers = {} if authorization is None else {"authorization": authorization}
    for path in ("/console/live", "/console/live?key=" + gateway.operator_key):
        response = gateway.http.get(path, headers=headers)
        assert (response.status_code, response.json()["error"]["code"]) == (status, code)


def test_a_tenants_key_sees_nothing_and_posts_nothing(gateway: Stack) -> None:
    seen = gateway.http.get("/console/live", headers=gateway.headers())
    posted = gateway.http.post("/console/drills", headers=gateway.headers(), json={"rows": []})
    for response in (seen, posted):
        assert response.status_code == 403
        assert response.json()["error"]["code"] == "operator_only"


def test_a_key_that_is_revoked_ends_its_streams(gateway: Stack) -> None:
    key = gateway.keys.issue("leaving", "none", operator=True)
    with looking(gateway, key) as stream:
        first(stream, "figures")
        gateway.keys.revoke(key.split("-")[1])
        assert first(stream, "end") == {"why": "this API key is not known"}
        assert list(stream) == []


def test_a_head_of_the_stream_does_not_stream(gateway: Stack) -> None:
    response = gateway.http.head("/console/live", headers=gateway.headers(gateway.operator_key))
    assert (response.status_code, response.content) == (200, b"")


# The stream


def test_a_viewer_is_told_how_stages_are_numbered_first(gateway: Stack) -> None:
    with looking(gateway) as stream:
        name, told = next(stream)
    assert name == "hello"
    assert told["stages"] == [stage.name.lower() for stage in PageStage]


def test_figures_have_every_part_and_then_only_those_that_changed(gateway: Stack) -> None:
    with looking(gateway) as stream:
        whole = first(stream, "figures")
        gateway.complete(prompt="x" * 4000)
        later = first(stream, "figures")
    assert {"stack", "nodes", "routes", "refusals", "outcomes", "violations"} <= whole.keys()
    assert {"coverage", "waivers", "drills"} <= whole.keys()
    assert later.keys() < whole.keys()
    assert "drills" not in later


def test_the_page_reads_every_figure_that_it_is_told(gateway: Stack) -> None:
    gateway.complete(prompt="x" * 4000)
    with looking(gateway) as stream:
        told = first(stream, "figures")
    scripts = "".join(asset.body.decode() for name, asset in assets().items() if ".js" in name)
    sections = [
        told["stack"],
        *(row for part in told.values() if isinstance(part, list) for row in part),
    ]
    unread = {
        key for section in sections for key in section if not re.search(rf"\b{key}\b", scripts)
    }
    assert unread == set()


def test_what_a_node_does_not_state_is_said_to_be_unknown(gateway: Stack) -> None:
    with looking(gateway) as stream:
        nodes = {node["node"]: node for node in first(stream, "figures")["nodes"]}
    assert nodes["prefill-0"]["map"] == NOT_TOLD
    assert nodes["prefill-0"]["drains"] is None, "version 1 states no waits"
    assert nodes["decode-0"]["map"] == ""
    assert nodes["decode-0"]["drains"] == []


def test_each_viewer_gets_the_whole_map_first(gateway: Stack) -> None:
    with looking(gateway) as one, looking(gateway) as other:
        for stream in (one, other):
            told = first(stream, "pages")
            assert (told["node"], told["extent"], told["pool_pages"]) == (
                "decode-0",
                "whole",
                PAGES,
            )


def test_nodes_are_watched_only_while_somebody_looks(gateway: Stack) -> None:
    heard = gateway.decode.heard
    with looking(gateway) as stream:
        first(stream, "pages")
    last = gateway.decode.next(Watch)
    while isinstance(last, Watch) and last.lease_ms:
        assert last.lease_ms == LEASE_MS
        last = gateway.decode.next(Watch)
    assert not [m for m in list(heard.queue) if isinstance(m, Watch) and m.lease_ms]


def test_refusals_are_counted_live(gateway: Stack) -> None:
    with looking(gateway) as stream:
        before = first(stream, "figures")["refusals"]
        refused = gateway.complete(prompt="x" * 4000)
        assert refused.status_code == 400
        while "refusals" not in (told := first(stream, "figures")):
            pass
    counts = [sum(row["count"] for row in rows) for rows in (before, told["refusals"])]
    assert counts[1] == counts[0] + 1
    assert told["refusals"][0]["reason"] == "context_length"


def test_no_tenant_no_key_and_no_request_is_in_the_stream(gateway: Stack) -> None:
    answered = gateway.complete()
    gateway.complete(prompt="x" * 4000)
    assert answered.status_code == 200
    headers, said = gateway.headers(gateway.operator_key), ""
    with gateway.http.stream("GET", "/console/live", headers=headers) as response:
        for line in response.iter_lines():
            said += line
            if line.startswith("event: sign"):
                break
    assert '"refusals"' in said
    secrets = ["acme-secret-name", "rival-secret-name", "staff", 'hello"', "xxxx", HELD]
    secrets += [gateway.operator_key, gateway.tenant_key, answered.headers["x-request-id"]]
    assert not [secret for secret in secrets if secret in said]


def test_only_so_many_may_look_at_one_time(gateway: Stack) -> None:
    with httpx.Client(base_url=gateway.url, timeout=10, trust_env=False) as more:
        headers = gateway.headers(gateway.operator_key)
        open_ = [more.stream("GET", "/console/live", headers=headers) for _ in range(VIEWERS_MAX)]
        try:
            assert [each.__enter__().status_code for each in open_] == [200] * VIEWERS_MAX
            refused = gateway.http.get("/console/live", headers=headers)
            assert refused.status_code == 429
            assert refused.json()["error"]["code"] == "console_full"
            assert refused.headers["retry-after"] == "5"
        finally:
            for each in open_:
                each.__exit__(None, None, None)
    until(lambda: gateway.http.head("/console/live", headers=headers).status_code == 200)


# Drills


ROW = {
    "drill": "range",
    "round": "receipt",
    "level": 2,
    "guards_off": ["range"],
    "held": False,
    "failed_as_expected": True,
    "saw": "a canary of acme-secret-name",
    "seconds": 1.5,
}


def post_drills(gateway: Stack, body: object) -> httpx.Response:
    headers = gateway.headers(gateway.operator_key)
    return gateway.http.post("/console/drills", json=body, headers=headers)


def test_results_of_drills_are_shown_as_they_were_posted(gateway: Stack) -> None:
    held = {**ROW, "guards_off": [], "held": True, "failed_as_expected": None}
    again = {**ROW, "guards_off": ["range"] * 1000}
    leaked = {**held, "drill": "late-write", "held": False}
    rows = [ROW, again, held, leaked]
    assert post_drills(gateway, {"ok": False, "rows": rows}).json() == {"kept": 4}
    with looking(gateway) as stream:
        while not (shown := first(stream, "figures").get("drills")):
            pass  # figures that another viewer was shown just before are good for a moment
    assert [(row["drill"], row["outcome"]) for row in shown] == [
        ("late-write", "leaked"),
        ("range", "held"),
        ("range", "failed as expected"),
    ]
    assert shown[2]["guards_off"] == ["range"]
    assert "acme-secret-name" not in str(shown), "what was seen is not kept"


@pytest.mark.parametrize(
    "body",
    [
        {},
        [],
        {"rows": [{**ROW, "drill": "<b>"}]},
        {"rows": [{**ROW, "drill": "range\n"}]},
        {"rows": [{**ROW, "seconds": -1}]},
        {"rows": [{**ROW, "guards_off": ["no-such-guard"]}]},
        {"rows": [{**ROW, "held": "yes"}]},
        {"rows": [{k: v for k, v in ROW.items() if k != "failed_as_expected"}]},
    ],
    ids=str,
)
def test_another_document_is_refused(gateway: Stack, body: object) -> None:
    response = post_drills(gateway, body)
    assert response.status_code == 400
    assert "kvairlock drill --json" in response.json()["error"]["message"]


# Ends


def test_a_map_that_makes_no_sense_closes_the_channel_of_its_node() -> None:
    async def lies(link: Link, watch: Watch) -> None:
        await link.send(page_map(watch.view, stage=99))

    def start(nodes: FakeNodes) -> None:
        nodes.start("prefill-0", PREFILL_TOKENS)
        nodes.start("decode-0", DECODE_TOKENS, ["prefill-0"]).watched = lies

    with stack(start=start) as running:
        with looking(running) as stream:
            first(stream, "figures")
            until(lambda: bool(running.evidence("frame_refused")))
        (refused, *_) = running.evidence("frame_refused")
    assert (refused["peer"], refused["reason"]) == ("decode-0", "malformed")


def test_a_gateway_that_stops_ends_its_streams_at_once() -> None:
    with stack() as running, looking(running) as stream:
        first(stream, "figures")
        running.process.terminate()
        assert first(stream, "end") == {"why": "the gateway is stopping"}
        assert running.process.wait(WAIT_S) == 0
