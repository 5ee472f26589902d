"""Chats over HTTP with the official client, in front of nodes that answer as the test says."""

from __future__ import annotations

from typing import Any

import openai
import pytest

from kvairlock.core.messages import Alternative, Sampling, Score, Submit

from .fake_nodes import DECODE_TOKENS, PREFILL_TOKENS, Talk
from .stacks import Stack

HELLO: Any = [{"role": "user", "content": "hello"}]
HELLO_TOKENS = len("user: hello\nassistant:")


@pytest.fixture
def client(gateway: Stack) -> openai.OpenAI:
    while not gateway.decode.heard.empty():
        gateway.decode.heard.get()
    return openai.OpenAI(
        base_url=f"{gateway.url}/v1",
        api_key=gateway.tenant_key,
        max_retries=0,
        http_client=openai.DefaultHttpxClient(trust_env=False),
    )


def submitted(gateway: Stack) -> Submit:
    submit = gateway.decode.next(Submit)
    assert isinstance(submit, Submit)
    return submit


def test_a_chat_is_answered_with_usage_from_the_engine(
    client: openai.OpenAI, gateway: Stack
) -> None:
    async def answer(talk: Talk) -> None:
        await talk.chunk(b"hi!", finish="stop")
        await talk.end(computed=22, generated=4, reused=16)

    gateway.decode.script = answer
    done = client.chat.completions.create(model="recall", messages=HELLO)
    assert done.id.startswith("chatcmpl-")
    assert (done.object, done.model) == ("chat.completion", "recall")
    (choice,) = done.choices
    assert (choice.message.role, choice.message.content) == ("assistant", "hi!")
    assert (choice.finish_reason, choice.logprobs) == ("stop", None)
    assert done.usage is not None
    assert (done.usage.prompt_tokens, done.usage.completion_tokens) == (22, 4)
    assert done.usage.prompt_tokens_details is not None
    assert done.usage.prompt_tokens_details.cached_tokens == 16
    submit = submitted(gateway)
    assert bytes(submit.tokens[::4]) == b"user: hello\nassistant:"


def test_the_id_of_the_answer_is_in_the_headers_and_not_the_clients(
    client: openai.OpenAI,
) -> None:
    raw = client.chat.completions.with_raw_response.create(
        model="recall", messages=HELLO, extra_headers={"x-request-id": "mine"}
    )
    assert raw.headers["x-request-id"] == raw.parse().id != "mine"
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="recall", messages=[])
    assert str(caught.value.request_id).startswith("chatcmpl-")


def test_a_stream_tells_the_role_the_text_and_the_usage(client: openai.OpenAI) -> None:
    stream = client.chat.completions.create(
        model="recall", messages=HELLO, stream=True, n=2, stream_options={"include_usage": True}
    )
    *pieces, last = list(stream)
    texts = {0: "", 1: ""}
    roles = []
    for piece in pieces:
        (choice,) = piece.choices
        texts[choice.index] += choice.delta.content or ""
        roles += [choice.index] if choice.delta.role == "assistant" else []
    assert texts == {0: "hello", 1: "hello"}
    assert roles == [0, 1]
    assert {piece.object for piece in pieces} == {"chat.completion.chunk"}
    assert last.choices == []
    assert last.usage is not None
    assert last.usage.total_tokens == 10


def test_what_is_asked_of_sampling_reaches_the_node(client: openai.OpenAI, gateway: Stack) -> None:
    client.chat.completions.create(
        model="recall", messages=HELLO, temperature=0.7, top_p=0.5, seed=11, max_tokens=5,
        stop=["\n"], logprobs=True, top_logprobs=4, n=3,
    )  # fmt: skip
    submit = submitted(gateway)
    assert submit.sampling == Sampling(0.7, 0.5, 11)
    assert (submit.alternatives, submit.choices, submit.max_tokens) == (4, 3, 5)
    assert submit.stop == (b"\n",)
    client.completions.create(model="recall", prompt="x", logprobs=2, temperature=2, seed=-1)
    submit = submitted(gateway)
    assert submit.sampling == Sampling(2.0, 1.0, 2**63 - 1)
    assert submit.alternatives == 2
    client.completions.create(model="recall", prompt="x")
    submit = submitted(gateway)
    assert (submit.sampling.temperature, submit.alternatives) == (0.0, None)


SCORE = Score(b"hi", -0.5, (Alternative(b"hi", -0.5), Alternative(b"ho", -1.0)))


async def score(talk: Talk) -> None:
    """Answer with one token and its likelihood."""
    await talk.chunk(b"hi", finish="length", scores=(SCORE,))
    await talk.end()


@pytest.mark.parametrize("stream", [False, True])
def test_likelihoods_of_a_chat(client: openai.OpenAI, gateway: Stack, stream: bool) -> None:
    gateway.decode.script = score
    answer: Any = client.chat.completions.create(
        model="recall", messages=HELLO, logprobs=True, top_logprobs=2, stream=stream
    )
    for piece in answer if stream else [answer]:
        (token,) = piece.choices[0].logprobs.content
        assert (token.token, token.logprob, token.bytes) == ("hi", -0.5, [104, 105])
        assert [(t.token, t.logprob) for t in token.top_logprobs] == [("hi", -0.5), ("ho", -1.0)]


@pytest.mark.parametrize("stream", [False, True])
def test_likelihoods_of_a_completion(client: openai.OpenAI, gateway: Stack, stream: bool) -> None:
    gateway.decode.script = score
    answer: Any = client.completions.create(model="recall", prompt="x", logprobs=2, stream=stream)
    for piece in answer if stream else [answer]:
        told = piece.choices[0].logprobs
        assert (told.tokens, told.token_logprobs, told.text_offset) == (["hi"], [-0.5], [0])
        assert told.top_logprobs == [{"hi": -0.5, "ho": -1.0}]


def test_a_default_length_is_cut_to_the_room_there_is(
    gateway: Stack, client: openai.OpenAI
) -> None:
    room = PREFILL_TOKENS - HELLO_TOKENS
    assert room < 256
    assert gateway.chat().status_code == 200
    assert submitted(gateway).max_tokens == room
    assert gateway.chat(max_tokens=room).status_code == 200
    refused = gateway.chat(max_tokens=room + 1)
    assert refused.json()["error"]["code"] == "context_length_exceeded"
    # 32 pages: one is shared, 3 are each choice's own, so 64 tokens are the context of each.
    assert DECODE_TOKENS == 512
    assert gateway.chat(n=8).status_code == 200
    assert [submitted(gateway).max_tokens for _ in range(2)] == [room, 64 - HELLO_TOKENS]


def test_a_prompt_that_leaves_no_room_is_refused_for_its_own_length(gateway: Stack) -> None:
    content = "x" * (PREFILL_TOKENS - len("user: \nassistant:"))
    error = gateway.chat(messages=[{"role": "user", "content": content}]).json()["error"]
    assert (error["code"], error["asked"]) == ("context_length_exceeded", PREFILL_TOKENS + 1)
    assert error["limit"] == PREFILL_TOKENS


def test_a_large_conversation_is_judged_like_a_small_one(gateway: Stack) -> None:
    response = gateway.chat(messages=[{"role": "user", "content": "x" * 100_000}])
    assert response.status_code == 400
    assert response.json()["error"]["code"] == "context_length_exceeded"
    response = gateway.chat(messages=[{"role": "user", "content": "x" * 100_000}], top_k=1)
    assert response.json()["error"]["code"] == "unsupported_parameter"


def test_official_errors(client: openai.OpenAI) -> None:
    image: Any = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="recall", messages=image)
    assert (caught.value.code, caught.value.param) == (
        "unsupported_content",
        "messages[0].content[0]",
    )
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(model="other", messages=HELLO)
    with pytest.raises(openai.AuthenticationError):
        client.with_options(api_key="kva-x").chat.completions.create(model="recall", messages=HELLO)


def test_unknown_members_are_named(gateway: Stack) -> None:
    turn = {"role": "user", "content": "x", "name": "ann"}
    response = gateway.chat(messages=[turn], shiny=1, kv_transfer_params={})
    assert response.status_code == 200
    assert response.headers["x-kvairlock-ignored"] == "messages.name, shiny"
    assert response.headers["x-kvairlock-stripped"] == "kv_transfer_params"
