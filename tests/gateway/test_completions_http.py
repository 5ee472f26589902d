"""The OpenAI API over HTTP: answers, refusals before an answer, and what clients see of both."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator

import httpx
import numpy as np
import openai
import pytest

from kvairlock.core.ends import End
from kvairlock.core.errors import Reason, Refusal, Stage
from kvairlock.core.messages import Cancel, Submit
from kvairlock.runtime.settings import GatewaySettings
from kvairlock.wire import tickets
from kvairlock.wire.keys import Keyring, input_digest

from .fake_nodes import LAYOUT, PREFILL_TOKENS, Talk, stay_silent, wait_for_cancel
from .stacks import LIMITS, Stack, stack, until

FULL = Refusal(Reason.CAPACITY, Stage.DECODE_ADMISSION, "no pages: 3 asked, 2 free", 3, 2, "pages")


def error_of(response: httpx.Response) -> dict[str, object]:
    error: dict[str, object] = response.json()["error"]
    return error


def client(gateway: Stack) -> openai.OpenAI:
    return openai.OpenAI(
        base_url=f"{gateway.url}/v1",
        api_key=gateway.tenant_key,
        max_retries=0,
        http_client=openai.DefaultHttpxClient(trust_env=False),
    )


def events(response: httpx.Response) -> list[str]:
    return [line.removeprefix("data: ") for line in response.text.split("\n\n") if line]


def test_official_client_lists_the_model_and_its_promised_window(gateway: Stack) -> None:
    (model,) = client(gateway).models.list().data
    assert (model.id, model.object, model.owned_by) == ("recall", "model", "kvairlock")
    assert client(gateway).models.retrieve("recall").to_dict()["max_model_len"] == PREFILL_TOKENS
    with pytest.raises(openai.NotFoundError) as caught:
        client(gateway).models.retrieve("other")
    assert caught.value.code == "model_not_found"


def test_official_client_completes_with_usage_from_the_engine(gateway: Stack) -> None:
    done = client(gateway).completions.create(model="recall", prompt="twelve bytes", max_tokens=9)
    assert done.id.startswith("cmpl-")
    assert (done.object, done.model) == ("text_completion", "recall")
    assert [(c.index, c.text, c.finish_reason) for c in done.choices] == [(0, "hello", "length")]
    assert done.usage is not None
    # Not 12 and 9: the figures are what the decode node reported.
    assert (done.usage.prompt_tokens, done.usage.completion_tokens) == (7, 3)
    assert done.usage.total_tokens == 10


def test_official_client_streams_choices_and_usage(gateway: Stack) -> None:
    stream = client(gateway).completions.create(
        model="recall", prompt="x", n=2, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    texts = {0: "", 1: ""}
    for chunk in chunks[:-1]:
        assert chunk.usage is None
        texts[chunk.choices[0].index] += chunk.choices[0].text
    assert texts == {0: "hello", 1: "hello"}
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.total_tokens == 10


def test_stream_is_server_sent_events_that_end_with_done(gateway: Stack) -> None:
    response = gateway.complete(stream=True)
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert response.headers["x-request-id"].startswith("cmpl-")
    *pieces, done = events(response)
    assert done == "[DONE]"
    assert [json.loads(piece)["choices"][0]["finish_reason"] for piece in pieces] == [
        None,
        "length",
    ]
    assert all("usage" not in json.loads(piece) for piece in pieces)


def test_characters_split_between_chunks_arrive_whole_per_choice(gateway: Stack) -> None:
    async def split(talk: Talk) -> None:
        euro, snow = "€".encode(), "☃".encode()
        await talk.chunk(euro[:1], 0)
        await talk.chunk(snow[:2], 1)
        await talk.chunk(euro[1:], 0, "stop")
        await talk.chunk(snow[2:] + b"\xff", 1, "stop")
        await talk.end()

    gateway.decode.script = split
    streamed = events(gateway.complete(n=2, stream=True))[:-1]
    pieces = [json.loads(piece)["choices"][0] for piece in streamed]
    assert [(p["index"], p["text"]) for p in pieces] == [(0, "€"), (1, "☃�")]
    whole = gateway.complete(n=2).json()["choices"]
    assert [c["text"] for c in whole] == ["€", "☃�"]


def test_decode_gets_a_signed_ticket_for_this_tenant_and_input(gateway: Stack) -> None:
    response = gateway.complete(gateway.other_key, prompt="top secret", max_tokens=4, n=2)
    assert response.status_code == 200
    submit = gateway.decode.next(Submit)
    assert isinstance(submit, Submit)
    while submit.tenant != "rival-secret-name":
        submit = gateway.decode.next(Submit)
        assert isinstance(submit, Submit)
    ring = gateway.decode.ring
    ticket = tickets.verify(ring, submit.ticket)
    assert (ticket.owner.tenant, ticket.owner.attempt) == ("rival-secret-name", 1)
    assert ticket.owner.request == response.headers["x-request-id"] == response.json()["id"]
    assert submit.transfer == ticket.owner.transfer
    assert (ticket.prompt_tokens, ticket.max_tokens, ticket.choices) == (10, 4, 2)
    assert ticket.scope == "group:shared"
    assert 0 < ticket.expires_unix_s - time.time() <= GatewaySettings().ticket_s
    tokens = np.frombuffer(submit.tokens, dtype="<i4")
    assert bytes(tokens.tolist()) == b"top secret"
    expected = input_digest(ring, ring.active_id, ticket.salt, LAYOUT, submit.tokens)
    assert ticket.input_digest == expected
    assert submit.prefill == "prefill-0"


def test_equal_requests_have_unequal_tickets(gateway: Stack) -> None:
    seen = []
    for _ in range(2):
        gateway.complete(prompt="the same")
        submit = gateway.decode.next(Submit)
        assert isinstance(submit, Submit)
        seen.append(submit)
    assert seen[0].ticket != seen[1].ticket
    assert seen[0].nonce != seen[1].nonce


@pytest.mark.parametrize(
    ("authorization", "code"),
    [
        (None, "missing_api_key"),
        ("Basic abc", "missing_api_key"),
        ("Bearer", "missing_api_key"),
        ("Bearer kva-00000000-wrong", "invalid_api_key"),
        ("Bearer \xff", "invalid_api_key"),
    ],
)
def test_unknown_keys_get_401(gateway: Stack, authorization: str | None, code: str) -> None:
    headers = {} if authorization is None else {"authorization": authorization.encode("latin-1")}
    for method, path in (("POST", "/v1/completions"), ("GET", "/v1/models"), ("GET", "/status")):
        response = gateway.http.request(method, path, headers=headers)  # type: ignore[arg-type]
        assert response.status_code == 401
        assert response.headers["www-authenticate"] == "Bearer"
        assert error_of(response)["code"] == code
        assert error_of(response)["type"] == "authentication_error"


def test_right_id_with_a_wrong_secret_is_401(gateway: Stack) -> None:
    wrong = gateway.tenant_key[:-1] + ("A" if gateway.tenant_key[-1] != "A" else "B")
    assert gateway.complete(wrong).status_code == 401


def test_official_client_raises_authentication_error(gateway: Stack) -> None:
    with pytest.raises(openai.AuthenticationError):
        client(gateway).with_options(api_key="kva-no").models.list()


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/", 404, "not_found"),
        ("POST", "/v1/embeddings", 404, "not_found"),
        ("GET", "/v1/chat/completions", 405, "method_not_allowed"),
        ("POST", "/v1/completions/", 404, "not_found"),
        ("GET", "/v1/completions", 405, "method_not_allowed"),
        ("DELETE", "/v1/models", 405, "method_not_allowed"),
        ("POST", "/drill/points", 404, "not_found"),
    ],
)
def test_unknown_paths_and_methods_have_openai_errors(
    gateway: Stack, method: str, path: str, status: int, code: str
) -> None:
    response = gateway.http.request(method, path, headers=gateway.headers(gateway.operator_key))
    assert (response.status_code, error_of(response)["code"]) == (status, code)
    assert error_of(response)["type"] == "invalid_request_error"


def test_unknown_model_is_404_and_names_nothing(gateway: Stack) -> None:
    response = gateway.complete(model="gpt-4")
    assert response.status_code == 404
    assert error_of(response)["code"] == "model_not_found"
    assert error_of(response)["param"] == "model"


def test_bodies_over_the_limit_are_413_with_and_without_content_length(gateway: Stack) -> None:
    limit = 1024 * 1024
    frame = json.dumps({"model": "recall", "prompt": ""}).encode()

    def body(size: int) -> bytes:
        return frame.replace(b'""', b'"' + b"x" * (size - len(frame)) + b'"')

    def pieces(data: bytes) -> Iterator[bytes]:
        for at in range(0, len(data), 65536):
            yield data[at : at + 65536]

    for size, status in ((limit, 400), (limit + 1, 413), (2 * limit, 413)):
        assert len(body(size)) == size
        for content in (body(size), pieces(body(size))):
            response = gateway.http.post(
                "/v1/completions", content=content, headers=gateway.headers()
            )
            assert response.status_code == status
            expected = "body_too_large" if status == 413 else "context_length_exceeded"
            assert error_of(response)["code"] == expected
            if status == 413:
                assert error_of(response)["limit"] == limit


def test_a_length_over_the_limit_is_refused_before_the_body_is_sent(gateway: Stack) -> None:
    host, port = gateway.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=5) as raw:
        head = (
            f"POST /v1/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer "
            f"{gateway.tenant_key}\r\ncontent-length: 99999999\r\nexpect: 100-continue\r\n\r\n"
        )
        raw.sendall(head.encode())
        answer = raw.recv(65536)
    assert answer.startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize(
    ("prompt", "max_tokens", "n", "refused"),
    [
        (239, 16, 1, None),
        (240, 16, 1, None),
        (241, 16, 1, (257, PREFILL_TOKENS, "context_window")),
        (255, 1, 1, None),
        (256, 1, 1, (257, PREFILL_TOKENS, "context_window")),
        (257, 1, 1, (257, PREFILL_TOKENS, "route_prefill_tokens")),
        (512, 16, 1, (512, PREFILL_TOKENS, "route_prefill_tokens")),
        (10, 246, 1, None),
        (10, 247, 1, (257, PREFILL_TOKENS, "context_window")),
        (10, 503, 1, (513, PREFILL_TOKENS, "context_window")),
        (17, 111, 4, None),  # 8 + 3 * 7 = 29 of 32 pages
        (17, 127, 4, (528, 512, "route_decode_tokens")),  # 9 + 3 * 8 = 33 of 32 pages
        (10, 2**31 - 1, 1, (2**31 + 9, PREFILL_TOKENS, "context_window")),
    ],
)
def test_context_limits(
    gateway: Stack,
    prompt: int,
    max_tokens: int,
    n: int,
    refused: tuple[int, int, str] | None,
) -> None:
    response = gateway.complete(prompt="x" * prompt, max_tokens=max_tokens, n=n)
    if refused is None:
        assert response.status_code == 200
        return
    assert response.status_code == 400
    error = error_of(response)
    assert error["code"] == "context_length_exceeded"
    assert (error["reason"], error["stage"]) == ("context_length", "gateway")
    assert (error["asked"], error["limit"], error["limit_name"]) == refused
    assert all(str(figure) in str(error["message"]) for figure in refused)


def test_an_over_long_prompt_never_reaches_a_node(gateway: Stack) -> None:
    while not gateway.decode.heard.empty():
        gateway.decode.heard.get()
    assert gateway.complete(prompt="x" * 300).status_code == 400
    assert gateway.complete(prompt="after").status_code == 200
    submit = gateway.decode.next(Submit)
    assert isinstance(submit, Submit)
    assert len(submit.tokens) == 4 * len("after")


@pytest.mark.parametrize("stream", [False, True])
def test_refusals_before_the_first_chunk_keep_their_status(gateway: Stack, stream: bool) -> None:
    async def refuse(talk: Talk) -> None:
        await talk.end(refusal=FULL)

    gateway.decode.script = refuse
    response = gateway.complete(stream=stream)
    assert response.status_code == 503
    assert response.headers["retry-after"] == "1"
    error = error_of(response)
    assert (error["code"], error["type"]) == ("route_full", "server_error")
    assert (error["stage"], error["asked"], error["limit"]) == ("decode_admission", 3, 2)
    with pytest.raises(openai.InternalServerError) as caught:
        client(gateway).completions.create(model="recall", prompt="x", stream=stream)
    assert caught.value.code == "route_full"


def test_an_error_after_the_first_chunk_ends_the_stream_without_done(gateway: Stack) -> None:
    async def fail_late(talk: Talk) -> None:
        await talk.chunk(b"so far")
        await talk.end(refusal=FULL)

    gateway.decode.script = fail_late
    response = gateway.complete(stream=True)
    assert response.status_code == 200
    first, last = [json.loads(piece) for piece in events(response)]
    assert first["choices"][0]["text"] == "so far"
    assert last["error"]["code"] == "route_full"
    with pytest.raises(openai.APIError, match="no pages"):
        list(client(gateway).completions.create(model="recall", prompt="x", stream=True))


@pytest.mark.parametrize("stream", [False, True])
def test_completion_without_a_finish_is_no_answer(gateway: Stack, stream: bool) -> None:
    async def forget(talk: Talk) -> None:
        await talk.chunk(b"one", 0, "stop")
        await talk.end()

    gateway.decode.script = forget
    response = gateway.complete(n=2, stream=stream)
    if stream:
        *_, last = events(response)
        assert json.loads(last)["error"]["code"] == "missing_evidence"
    else:
        assert response.status_code == 502
        assert error_of(response)["code"] == "missing_evidence"


def test_an_end_without_a_reason_is_no_answer(gateway: Stack) -> None:
    async def fail(talk: Talk) -> None:
        await talk.end_as(End.FAILED)

    gateway.decode.script = fail
    response = gateway.complete()
    assert (response.status_code, error_of(response)["code"]) == (502, "missing_evidence")


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_is_cancelled_at_the_node(gateway: Stack, stream: bool) -> None:
    gateway.decode.script = wait_for_cancel if stream else stay_silent
    body = {"model": "recall", "prompt": f"leaving {stream}", "stream": stream}
    while not gateway.decode.heard.empty():
        gateway.decode.heard.get()
    with httpx.Client(base_url=gateway.url, trust_env=False, timeout=5) as leaving:
        if stream:
            with leaving.stream(
                "POST", "/v1/completions", json=body, headers=gateway.headers()
            ) as response:
                next(response.iter_raw())
        else:
            with pytest.raises(httpx.ReadTimeout):
                leaving.post("/v1/completions", json=body, headers=gateway.headers(), timeout=0.3)
    submit = gateway.decode.next(Submit)
    cancel = gateway.decode.next(Cancel)
    assert isinstance(submit, Submit)
    assert isinstance(cancel, Cancel)
    assert cancel.transfer == submit.transfer
    until(lambda: in_flight(gateway) == 0)


def test_a_client_that_does_not_read_is_cancelled_at_the_node() -> None:
    async def flood(talk: Talk) -> None:
        for _ in range(48):
            await talk.chunk(b"x" * 1024 * 1024)
        await talk.cancelled.wait()
        await talk.end_as(End.CANCELLED)

    with stack(limits=LIMITS + "decode_ms = 300\n") as running:
        running.decode.script = flood
        host, port = running.url.removeprefix("http://").split(":")
        body = b'{"model": "recall", "prompt": "x", "stream": true}'
        head = (
            f"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n"
            f"authorization: Bearer {running.tenant_key}\r\n\r\n"
        )
        with socket.create_connection((host, int(port))) as raw:
            raw.sendall(head.encode() + body)
            assert isinstance(running.decode.next(Cancel), Cancel)
        until(lambda: in_flight(running) == 0)


def in_flight(gateway: Stack) -> int:
    response = gateway.http.get("/status", headers=gateway.headers(gateway.operator_key))
    count: int = response.json()["in_flight"]
    return count


def test_transfer_parameters_are_stripped_recorded_and_told(gateway: Stack) -> None:
    response = gateway.complete(
        kv_transfer_params={"ticket": "c3RvbGVu"}, bootstrap_room=7, temperature=0
    )
    assert response.status_code == 200
    assert response.headers["x-kvairlock-stripped"] == "bootstrap_room, kv_transfer_params"
    assert "x-kvairlock-ignored" not in response.headers

    def recorded() -> list[dict[str, object]]:
        records = gateway.evidence("parameters_stripped")
        return [r for r in records if r["names"] == ["bootstrap_room", "kv_transfer_params"]]

    until(lambda: len(recorded()) > 0)
    assert "c3RvbGVu" not in json.dumps(recorded())
    # Also when the request is refused for something else.
    refused = gateway.complete(kv_transfer_params={}, max_tokens=-1)
    assert refused.status_code == 400
    assert refused.headers["x-kvairlock-stripped"] == "kv_transfer_params"


def test_unknown_parameters_are_ignored_and_named_safely(gateway: Stack) -> None:
    response = gateway.complete(None, **{"shiny": 3, "evil\r\nset-cookie: a": 1, "é": 2})
    assert response.status_code == 200
    assert response.headers["x-kvairlock-ignored"] == "evil??set-cookie??a, shiny, ?"
    assert "set-cookie" not in response.headers


def test_evidence_has_admissions_and_refusals_without_tenants(gateway: Stack) -> None:
    gateway.complete(prompt="y" * 33, max_tokens=5)
    gateway.complete(prompt="y" * 999)
    until(lambda: any(r["asked"] == 999 for r in gateway.evidence("request_refused")))
    admitted = [r for r in gateway.evidence("request_admitted") if r["prompt_tokens"] == 33]
    assert [(r["stage"], r["max_tokens"]) for r in admitted] == [("gateway", 5)]
    refused = [r for r in gateway.evidence("request_refused") if r["asked"] == 999]
    assert (refused[0]["reason"], refused[0]["limit"]) == ("context_length", 256)
    assert refused[0]["limit_name"] == "route_prefill_tokens"
    assert "acme" not in json.dumps([*admitted, *refused])
    assert refused[0]["tenant"] == admitted[0]["tenant"]


def test_keys_of_a_cluster_do_not_show_in_the_ready_line(gateway: Stack) -> None:
    ring: Keyring = gateway.decode.ring
    assert set(gateway.ready) == {"ready", "role", "pid", "incarnation", "url"}
    assert ring.keys["k1"].hex() not in json.dumps(gateway.ready)
