"""`kvairlock recover` and `breaker` against a gateway that answers as a test has it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from kvairlock.cli import operator as module
from kvairlock.cli.operator import Operator

from .conftest import Command

ROUTE = "prefill-0/decode-0"
MISSING = ["corrected", "refuses", "in_effect"]

Json = dict[str, Any]
Serve = Callable[..., list[httpx.Request]]


def told(state: str = "open", on_record: str = "no", missing: list[str] | None = None) -> Json:
    """What a gateway says of a route, with its three records."""
    lacks = [] if on_record == "yes" else ["it is not shown yet"]
    known = {"on_record": on_record, "facts": ["seen"], "lacks": lacks}
    return {
        "route": ROUTE,
        "takes_requests": "yes" if state == "closed" else "no: breaker",
        "kept": "yes",
        "breaker": state,
        "explained": f"its breaker is {state}",
        "missing": MISSING if missing is None else missing,
        "records": [{"record": name, **known} for name in MISSING],
        "entered": 0,
    }


CLOSED = told("closed", missing=[])


@pytest.fixture
def serve(home: Path, monkeypatch: pytest.MonkeyPatch) -> Serve:
    """Lets a gateway answer: GET and POST each with what is given."""
    monkeypatch.setenv("KVAIRLOCK_API_KEY", "kva-operator")

    def run(get: Json, post: Json | httpx.Response | None = None) -> list[httpx.Request]:
        asked: list[httpx.Request] = []

        def answer(request: httpx.Request) -> httpx.Response:
            asked.append(request)
            if request.method == "POST" and isinstance(post, httpx.Response):
                return post
            return httpx.Response(200, json=get if request.method == "GET" else post)

        def opened(url: str, key: str) -> Operator:
            return Operator(url, key, httpx.MockTransport(answer))

        monkeypatch.setattr(module, "Operator", opened)
        return asked

    return run


def test_a_route_that_was_recovered_is_status_0_with_its_records(
    kvairlock: Command, serve: Serve
) -> None:
    asked = serve(told(), told("closed", "yes", []))
    ran = kvairlock("recover", ROUTE, "--json")
    assert (ran.status, ran.json["breaker"], len(ran.json["records"])) == (0, "closed", 3)
    assert [(r.method, r.url.path) for r in asked] == [
        ("GET", f"/routes/{ROUTE}"),
        ("POST", f"/routes/{ROUTE}/recover"),
    ]
    said = kvairlock("recover", ROUTE)
    assert said.out.count("on record") == 3
    assert "missing" not in said.out + said.err.replace("\n", "")


def test_a_record_that_is_missing_is_status_1_and_named(kvairlock: Command, serve: Serve) -> None:
    serve(told(), told("half_open", missing=["refuses"]))
    ran = kvairlock("recover", ROUTE)
    assert ran.status == 1
    assert "refuses: missing" in ran.out
    assert ran.err.splitlines()[-2:] == [
        "kvairlock: missing: refuses",
        "  next: docs/breaker.md says what each needs",
    ]


@pytest.mark.parametrize("options", [(), ("--show",)])
def test_nothing_is_missing_of_a_breaker_that_is_closed(
    kvairlock: Command, serve: Serve, options: tuple[str, ...]
) -> None:
    asked = serve(CLOSED)
    ran = kvairlock("recover", ROUTE, *options)
    assert (ran.status, ran.out, ran.err) == (0, f"{ROUTE}: its breaker is closed\n", "")
    assert kvairlock("recover", ROUTE, "--json", *options).json["records"] == []
    assert {request.method for request in asked} == {"GET"}


def test_an_opening_that_is_not_written_down_is_status_1_and_said(
    kvairlock: Command, serve: Serve
) -> None:
    serve(CLOSED, told())
    assert kvairlock("breaker", "open", ROUTE, "--reason", "new pool").status == 0
    serve({"routes": [{**told(), "kept": "no: disk full"}]}, {**told(), "kept": "no: disk full"})
    ran = kvairlock("breaker", "open", ROUTE, "--reason", "new pool")
    assert ran.status == 1
    assert "not written down (no: disk full): a restart of the gateway would undo it" in ran.out
    listed = " ".join(kvairlock("breaker", "list").out.split())
    assert "written down" in listed


def test_the_list_is_status_1_if_one_is_not_closed(kvairlock: Command, serve: Serve) -> None:
    serve({"routes": [CLOSED]})
    assert kvairlock("breaker", "list").status == 0
    serve({"routes": [CLOSED, {**told(), "route": "prefill-1/decode-0"}]})
    ran = kvairlock("breaker", "list")
    assert ran.status == 1
    assert "corrected, refuses, in_effect" in " ".join(ran.out.split())


@pytest.mark.parametrize(("answered", "status"), [(400, 2), (404, 2), (409, 1), (503, 1)])
def test_what_the_gateway_refuses_has_the_status_that_its_kind_has_everywhere(
    kvairlock: Command, serve: Serve, answered: int, status: int
) -> None:
    serve(told(), httpx.Response(answered, json={"error": {"message": "`reason` must say why"}}))
    ran = kvairlock("breaker", "open", ROUTE, "--reason", "")
    assert (ran.status, ran.out) == (status, "")
    assert "`reason` must say why" in ran.err


@pytest.mark.parametrize(
    "words",
    [
        ("recover", ROUTE),
        ("recover", ROUTE, "--show"),
        ("breaker", "list"),
        ("breaker", "open", ROUTE, "--reason", "new pool"),
        ("breaker", "try", ROUTE),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize(
    "answered", [{}, {"routes": [{}]}, {**told(), "breaker": "ajar"}], ids=["empty", "odd", "word"]
)
def test_an_answer_that_says_less_is_status_1_and_one_line(
    kvairlock: Command, serve: Serve, words: tuple[str, ...], answered: Json
) -> None:
    serve(answered, answered)
    for options in ((), ("--json",)):
        ran = kvairlock(*words, *options)
        assert (ran.status, ran.out) == (1, "")
        assert ran.err.startswith("kvairlock: the gateway does not say what is needed: ")


def test_an_opening_that_the_gateway_cannot_keep_is_status_1(
    kvairlock: Command, serve: Serve
) -> None:
    serve(told(), told())
    assert kvairlock("breaker", "open", ROUTE, "--reason", "new pool").status == 0
    serve(told(), {**told(), "kept": "no: the disk is full"})
    ran = kvairlock("breaker", "open", ROUTE, "--reason", "new pool")
    assert ran.status == 1
    assert "the disk is full" in ran.out


def test_a_gateway_without_a_route_is_not_fine(kvairlock: Command, serve: Serve) -> None:
    serve({"routes": []})
    assert kvairlock("breaker", "list").status == 1


def test_a_record_that_is_not_known_is_never_passed_over(kvairlock: Command, serve: Serve) -> None:
    odd = json.loads(json.dumps(told("closed", "yes", [])).replace('"refuses"', '"promises"'))
    serve(told(), odd)
    ran = kvairlock("recover", ROUTE)
    assert (ran.status, ran.out) == (1, "")
