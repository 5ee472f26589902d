"""`kvairlock capacity` against a gateway that answers as a test has it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from kvairlock.cli import operator as module
from kvairlock.cli.operator import Operator
from kvairlock.runtime.secrets import write_private

from .conftest import Command

BASIS = {
    "model": "recall",
    "dtype": "float32",
    "parallelism": "tp1",
    "memory_bytes": 3 * 2**20,
    "build": "0.1.0",
    "protocols": "messages 1, 2; tickets 1",
}


def node(role: str, state: str = "up", pages: int = 10, life: str = "a", **more: Any) -> Any:
    """One node of a status: of 16 mapped pages 4 are withdrawn, 3 drain and 2 are read."""
    report = {
        "node": f"{role}-0",
        "role": role,
        "incarnation": life,
        "epoch": 3,
        "fingerprint": "f00d",
        "basis": BASIS,
        "page_tokens": 16,
        "pages": pages,
        "landing_pages": 8 if role == "decode" else 0,
        "windows": 4 if role == "decode" else 0,
        "context_tokens": 8192,
        "groups": [],
        **more,
    }
    stages = {"free": 7, "readable": 2, "draining": 2, "fenced": 1, "withdrawn": 4}
    status = {"report": report, "pages": stages, "windows": 2, "windows_draining": 1}
    return {"role": role, "state": state, "report_ms": 20, "status": status}


def stack(prefill: Any = None, decode: Any = None, closed: Any = None) -> dict[str, Any]:
    return {
        "nodes": {
            "prefill-0": prefill or node("prefill"),
            "decode-0": decode or node("decode"),
        },
        "routes": {"prefill-0/decode-0": "closed" if closed else "up"},
        "closed": {"prefill-0/decode-0": closed} if closed else {},
        "route_tokens": {"prefill-0/decode-0": 0 if closed else 128},
        "promise_tokens": 0 if closed else 128,
        "commitment": {"classes": [{"name": "short", "context_tokens": 32, "concurrency": 2}]},
    }


Serve = Callable[..., list[httpx.Request]]


@pytest.fixture
def serve(home: Path, monkeypatch: pytest.MonkeyPatch) -> Serve:
    """Lets a gateway answer: each status in turn, then the last; POSTs with what is given."""
    write_private(home / "key", "kva-operator")
    monkeypatch.setenv("KVAIRLOCK_API_KEY", "kva-operator")

    def run(*statuses: dict[str, Any], posted: httpx.Response | None = None) -> list[httpx.Request]:
        asked: list[httpx.Request] = []
        waiting = list(statuses)

        def answer(request: httpx.Request) -> httpx.Response:
            asked.append(request)
            if request.method == "POST":
                return posted or httpx.Response(202, json={"sent": {}})
            return httpx.Response(200, json=waiting.pop(0) if len(waiting) > 1 else waiting[0])

        def opened(url: str, key: str) -> Operator:
            return Operator(url, key, httpx.MockTransport(answer))

        monkeypatch.setattr(module, "Operator", opened)
        return asked

    return run


def test_used_pages_include_what_drains(kvairlock: Command, serve: Serve) -> None:
    serve(stack())
    ran = kvairlock("capacity", "--json", "--length", "100", "--length", "17")
    assert (ran.status, ran.err) == (0, "")
    decode = ran.json["nodes"][1]
    figures = {name: decode[name] for name in ("mapped", "free", "used", "draining", "withdrawn")}
    assert figures == {"mapped": 16, "free": 7, "used": 5, "draining": 3, "withdrawn": 4}
    assert decode["surplus"] == 2, "12 are in use or free, 10 are to be"
    assert (decode["longest_tokens"], decode["epoch"]) == (128, 3)
    assert decode["concurrency"] == {"17": 4, "100": 1}
    assert decode["basis"] == BASIS
    prefill, (route,) = ran.json["nodes"][0], ran.json["routes"]
    assert prefill["concurrency"] == {"17": 5, "100": 1}
    assert route["concurrency"] == {"17": 4, "100": 1}, "what both hold"
    assert (route["state"], route["closed_by"], ran.json["ok"]) == ("up", None, True)


def test_without_a_length_the_promised_ones_count(kvairlock: Command, serve: Serve) -> None:
    serve(stack())
    ran = kvairlock("capacity", "--json")
    assert list(ran.json["nodes"][0]["concurrency"]) == ["32", "128"]


def test_a_closed_route_is_status_1_with_its_reason(kvairlock: Command, serve: Serve) -> None:
    empty = node("decode", pages=0)
    serve(stack(decode=empty, closed={"by": "nothing_fits", "node": "decode-0", "why": ""}))
    ran = kvairlock("capacity")
    assert ran.status == 1
    (line,) = [line for line in ran.out.splitlines() if line.startswith("prefill-0/decode-0")]
    assert line.split() == ["prefill-0/decode-0", "closed", "0", "0", "nothing_fits", "(decode-0)"]


@pytest.mark.parametrize("state", ["stale", "lost", "unseen"])
def test_figures_that_are_not_believed_are_not_shown(
    kvairlock: Command, serve: Serve, state: str
) -> None:
    serve(stack(decode=node("decode", state), closed={"by": state, "node": "decode-0", "why": ""}))
    ran = kvairlock("capacity", "--json", "--length", "16")
    assert ran.json["nodes"][1] == {"node": "decode-0", "role": "decode", "state": state}
    assert ran.json["routes"][0]["concurrency"] == {"16": 0}
    text = kvairlock("capacity").out
    (line,) = [line for line in text.splitlines() if line.startswith("decode-0")]
    assert set(line.split()[3:]) == {"-"}


def test_a_node_of_version_1_has_no_basis(kvairlock: Command, serve: Serve) -> None:
    serve(stack(prefill=node("prefill", basis=None)))
    assert kvairlock("capacity", "--json").json["nodes"][0]["basis"] is None
    assert "prefill-0" in kvairlock("capacity").out


def test_a_resize_waits_until_the_node_reports_it(kvairlock: Command, serve: Serve) -> None:
    after = stack(decode=node("decode", pages=4, epoch=4))
    asked = serve(stack(), stack(), stack(), after)
    ran = kvairlock("capacity", "--node", "decode-0", "--pages", "4")
    assert ran.status == 0
    first, second = ran.out.splitlines()
    assert first == "decode-0 reports 4 of 16 pages, epoch 4; longest request 64 tokens"
    assert second == "8 pages are still used, and are withdrawn as they come back"
    (posted,) = [request for request in asked if request.method == "POST"]
    assert (posted.url.path, json.loads(posted.content)) == ("/nodes/decode-0/pages", {"pages": 4})
    assert len([request for request in asked if request.method == "GET"]) == 4


def test_a_node_that_starts_again_meanwhile_is_not_taken_for_resized(
    kvairlock: Command, serve: Serve
) -> None:
    serve(stack(), stack(decode=node("decode", pages=4, life="b")))
    ran = kvairlock("capacity", "--node", "decode-0", "--pages", "4")
    assert (ran.status, ran.out) == (1, "")
    assert "started again" in ran.err


@pytest.mark.parametrize(("answered", "status"), [(400, 2), (404, 2), (503, 1), (501, 1)], ids=str)
def test_what_the_gateway_refuses_is_said(
    kvairlock: Command, serve: Serve, answered: int, status: int
) -> None:
    error = {"error": {"code": "x", "message": "81 pages are asked; 80 are mapped"}}
    serve(stack(), posted=httpx.Response(answered, json=error))
    ran = kvairlock("capacity", "--node", "decode-0", "--pages", "81")
    assert (ran.status, ran.out) == (status, "")
    assert "81 pages are asked" in ran.err


def old_status() -> dict[str, Any]:
    """What a gateway of 0.1.0 shows: no commitment, and not why a route is closed."""
    known = stack()
    return {name: known[name] for name in ("nodes", "routes", "promise_tokens")}


@pytest.mark.parametrize("answered", [{}, {"nodes": 3}, old_status()], ids=["empty", "odd", "old"])
@pytest.mark.parametrize("options", [(), ("--node", "decode-0", "--pages", "4")])
def test_a_gateway_that_says_less_than_is_needed_is_status_1_and_one_line(
    kvairlock: Command, serve: Serve, answered: dict[str, Any], options: tuple[str, ...]
) -> None:
    asked = serve(answered)
    ran = kvairlock("capacity", *options)
    assert (ran.status, ran.out) == (1, "")
    first, second = ran.err.splitlines()
    assert first.startswith("kvairlock: the gateway does not say what is needed: ")
    assert "of this release?" in second
    assert [request.method for request in asked] == ["GET"], "nothing is resized unseen"


def test_what_is_published_is_called_so_and_the_legend_has_a_column(
    kvairlock: Command, serve: Serve
) -> None:
    serve(stack())
    said = kvairlock("capacity").out.splitlines()[-1]
    assert said == "published: a context of 128 tokens; `of N`: requests of N tokens at one time"
    bare = stack(closed={"by": "breaker", "node": None, "why": "opened by hand"})
    bare["commitment"] = {"classes": []}
    serve(bare)
    ran = kvairlock("capacity")
    assert ran.out.splitlines()[-1] == "published: a context of 0 tokens"
    assert "breaker: opened by hand" in ran.out
    assert kvairlock("capacity", "--json").json["published_tokens"] == 0


@pytest.mark.parametrize("options", [("--node", "decode-0"), ("--pages", "4")])
def test_half_a_resize_is_a_wrong_command_line(
    kvairlock: Command, serve: Serve, options: tuple[str, ...]
) -> None:
    asked = serve(stack())
    ran = kvairlock("capacity", *options)
    assert ran.status == 2
    assert "belong together" in ran.err
    assert not asked
