"""Bad input over real HTTP: a clear error, and nothing is lost."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from kvairlock.drills.stack import wait_for

from .served import Served, error_of, question, text_of

JSON_TYPE = {"content-type": "application/json"}
GOOD: dict[str, Any] = {"model": "recall", "prompt": "x", "max_tokens": 1}


def send(stack: Served, body: bytes | dict[str, Any]) -> Any:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {**stack.auth("acme"), **JSON_TYPE}
    return stack.http.post("/v1/completions", headers=headers, content=content)


@pytest.fixture(autouse=True, scope="module")
def nothing_is_lost(plain: Served) -> Any:
    """After all of this module's bad input the stack serves and all its pages are free."""
    yield
    plain.serves("bravo")
    plain.baseline()


@pytest.mark.parametrize(
    ("header", "code"),
    [
        (None, "missing_api_key"),
        ("Basic YTpi", "missing_api_key"),
        ("Bearer", "missing_api_key"),
        ("Bearer nonsense", "invalid_api_key"),
        ("Bearer kva-00000000-wrong", "invalid_api_key"),
    ],
)
def test_without_a_known_key_it_is_401(plain: Served, header: str | None, code: str) -> None:
    headers = {} if header is None else {"authorization": header}
    response = plain.http.post("/v1/completions", headers=headers, json=GOOD)
    assert response.status_code == 401
    assert error_of(response)["code"] == code
    assert response.headers["www-authenticate"] == "Bearer"


def test_a_known_key_with_another_secret_is_401(plain: Served) -> None:
    key = plain.keys.of["acme"]
    other = key[:-1] + ("a" if key[-1] != "a" else "b")
    response = plain.http.post(
        "/v1/completions", headers={"authorization": f"Bearer {other}"}, json=GOOD
    )
    assert (response.status_code, error_of(response)["code"]) == (401, "invalid_api_key")


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b'{"model": "recall", "prompt": ', b"\xff\xfe", b"[" * 5000, b"not json"],
    ids=["empty", "open", "torn", "no-utf8", "deep", "words"],
)
def test_a_broken_body_is_400(plain: Served, body: bytes) -> None:
    response = send(plain, body)
    assert (response.status_code, error_of(response)["code"]) == (400, "malformed_json")


@pytest.mark.parametrize("body", [b"null", b"[]", b'"x"', b"7"])
def test_a_body_that_is_no_object_is_400(plain: Served, body: bytes) -> None:
    response = send(plain, body)
    assert (response.status_code, error_of(response)["code"]) == (400, "malformed_json")
    assert "object" in error_of(response)["message"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("model", 7),
        ("model", ""),
        ("model", None),
        ("prompt", 7),
        ("prompt", None),
        ("prompt", {"text": "x"}),
        ("prompt", [1, 2.5]),
        ("prompt", [True]),
        ("prompt", [-1]),
        ("prompt", [256]),
        ("prompt", [2**31 - 1]),
        ("prompt", [10**30]),
        ("max_tokens", "5"),
        ("max_tokens", 1.5),
        ("max_tokens", True),
        ("max_tokens", 0),
        ("max_tokens", -1),
        ("max_tokens", 2**31),
        ("n", 0),
        ("n", -1),
        ("n", 9),
        ("n", "2"),
        ("stop", 7),
        ("stop", ""),
        ("stop", ["a", 1]),
        ("stop", ["a", "b", "c", "d", "e"]),
        ("temperature", 3),
        ("temperature", "hot"),
        ("top_p", 0),
        ("seed", 0.5),
        ("logprobs", 6),
        ("stream", "yes"),
        ("stream", 1),
        ("stream_options", {"include_usage": True}),
    ],
)
def test_a_wrong_value_is_400_and_names_its_parameter(
    plain: Served, name: str, value: object
) -> None:
    response = send(plain, {**GOOD, name: value})
    assert response.status_code == 400, response.text
    error = error_of(response)
    assert (error["param"], error["type"]) == (name, "invalid_request_error")
    assert f"`{name}`" in error["message"]


@pytest.mark.parametrize("name", ["model", "prompt"])
def test_a_missing_parameter_is_400(plain: Served, name: str) -> None:
    response = send(plain, {k: v for k, v in GOOD.items() if k != name})
    assert (response.status_code, error_of(response)["param"]) == (400, name)


@pytest.mark.parametrize("prompt", ["", []])
def test_an_empty_prompt_is_400(plain: Served, prompt: object) -> None:
    response = send(plain, {**GOOD, "prompt": prompt})
    assert (response.status_code, error_of(response)["code"]) == (400, "empty_prompt")


def test_several_prompts_are_400(plain: Served) -> None:
    response = send(plain, {**GOOD, "prompt": ["x", "y"]})
    assert (response.status_code, error_of(response)["code"]) == (400, "several_prompts")


def test_a_lone_surrogate_never_fails_the_gateway(plain: Served) -> None:
    response = send(plain, b'{"model": "recall", "prompt": "\\ud800", "max_tokens": 1}')
    assert response.status_code == 400
    assert error_of(response)["type"] == "invalid_request_error"


def test_an_unknown_model_is_404(plain: Served) -> None:
    response = send(plain, {**GOOD, "model": "gpt-x"})
    assert (response.status_code, error_of(response)["code"]) == (404, "model_not_found")


@pytest.mark.parametrize("announced", [True, False])
def test_a_huge_body_is_413(plain: Served, announced: bool) -> None:
    body = json.dumps({**GOOD, "prompt": "x" * (1024 * 1024)}).encode()
    pieces = (body[at : at + 65536] for at in range(0, len(body), 65536))
    headers = {**plain.auth("acme"), **JSON_TYPE}
    content = body if announced else pieces
    response = plain.http.post("/v1/completions", headers=headers, content=content)
    assert response.status_code == 413
    error = error_of(response)
    assert (error["code"], error["limit"]) == ("body_too_large", 1024 * 1024)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("best_of", 2),
        ("top_k", 5),
        ("min_p", 0.1),
        ("response_format", {"type": "json_object"}),
        ("echo", True),
        ("suffix", "x"),
        ("logit_bias", {"5": 1}),
        ("frequency_penalty", 0.1),
        ("presence_penalty", -0.1),
    ],
)
def test_an_unsupported_parameter_is_400_by_name(plain: Served, name: str, value: object) -> None:
    response = send(plain, {**GOOD, name: value})
    error = error_of(response)
    assert (response.status_code, error["code"], error["param"]) == (
        400,
        "unsupported_parameter",
        name,
    )
    assert f"`{name}`" in error["message"]


def test_unknown_parameters_are_ignored_and_said(plain: Served) -> None:
    prompt = plain.canaries.prompt("acme", 120)
    response = plain.post(prompt, shiny=True, bright=0.1)
    assert response.status_code == 200
    assert response.headers["x-kvairlock-ignored"] == "bright, shiny"
    assert text_of(response) == prompt.canary


def test_transfer_parameters_are_stripped_and_recorded(plain: Served) -> None:
    prompt = plain.canaries.prompt("acme", 120)
    steering = {"ticket": "AAAA", "remote_host": "elsewhere", "do_remote_prefill": True}
    response = plain.post(prompt, kv_transfer_params=steering, bootstrap_room=3)
    assert response.status_code == 200
    assert text_of(response) == prompt.canary
    names = ["bootstrap_room", "kv_transfer_params"]
    assert response.headers["x-kvairlock-stripped"] == ", ".join(names)
    request = plain.records.request(response.headers["x-request-id"])
    recorded = plain.one("parameters_stripped", request=request)
    assert recorded["names"] == names
    assert recorded["tenant"] == plain.records.tenant("acme")


def test_drill_headers_and_endpoints_mean_nothing_outside_drill_mode(plain: Served) -> None:
    prompt = plain.canaries.prompt("acme", 120)
    headers = {
        **plain.auth("acme"),
        "x-kvairlock-route": "nowhere/nowhere",
        "x-kvairlock-show-ticket": "1",
    }
    response = plain.http.post("/v1/completions", headers=headers, json=question(prompt))
    assert (response.status_code, text_of(response)) == (200, prompt.canary)
    assert "x-kvairlock-ticket" not in response.headers
    body = {"node": "decode-0", "action": "arm", "point": "land"}
    armed = plain.http.post("/drill/points", headers=plain.auth("operator"), json=body)
    assert armed.status_code == 404


def test_status_is_for_operators_only(plain: Served) -> None:
    assert plain.http.get("/status").status_code == 401
    assert plain.http.get("/status", headers=plain.auth("acme")).status_code == 403
    assert plain.http.get("/status", headers=plain.auth("operator")).status_code == 200


@pytest.mark.parametrize(("method", "path"), [("GET", "/v1/completions"), ("POST", "/v1/models")])
def test_a_wrong_method_is_405(plain: Served, method: str, path: str) -> None:
    response = plain.http.request(method, path, headers=plain.auth("acme"))
    assert (response.status_code, error_of(response)["code"]) == (405, "method_not_allowed")


NODES = ("prefill-0", "decode-0")
GARBAGE = [
    b"",
    b"\x00",
    b"GET / HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n",
    b"\xff" * 64,
    bytes(4096),
]


@pytest.mark.parametrize("data", GARBAGE, ids=["nothing", "torn", "http", "oversized", "zeros"])
@pytest.mark.parametrize("node", NODES)
def test_garbage_on_a_nodes_socket_is_refused_and_harms_nobody(
    plain: Served, node: str, data: bytes
) -> None:
    before = len(plain.records.all("frame_refused", node=node))
    with socket.socket(socket.AF_UNIX) as channel:
        channel.settimeout(5)
        channel.connect(str(Path(plain.facts["run"]) / f"{node}.sock"))
        channel.sendall(data)
        channel.shutdown(socket.SHUT_WR)
        assert channel.recv(4096) == b""  # closed, and not a word to whom did not authenticate
    plain.serves("acme")
    if len(data) > 1:
        wait_for("the refusal", lambda: refusals(plain, node) > before or None)


def refusals(plain: Served, node: str) -> int:
    return len(plain.records.all("frame_refused", node=node, peer="unknown"))
