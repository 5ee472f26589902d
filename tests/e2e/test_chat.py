"""Chats against a whole stack, with the official client: answers, draws, likelihoods, streams."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from .served import Served, error_of

CANARY = "0123456789abcdef"
TELL: Any = [
    {"role": "system", "content": f"words before assistant:{CANARY}. words behind"},
    {"role": "user", "content": "tell"},
]
"""The canary model continues after the last `assistant:` as it did after the one before."""

TELL_TOKENS = len(f"system: {TELL[0]['content']}\nuser: tell\nassistant:")

CHOOSE: Any = [{"role": "user", "content": "assistant:left. assistant:right."}]
"""Two continuations that are equally likely; what comes second is sure."""

CHOICES = {"left", "right"}
DRAWN = {"temperature": 1, "top_p": 0.9}
"""Draws one of the two; without `top_p` one draw in five thousand is something else."""


@pytest.fixture(scope="module")
def client(plain: Served) -> Iterator[openai.OpenAI]:
    url, key = f"{plain.url}/v1", plain.keys.of["acme"]
    with openai.OpenAI(base_url=url, api_key=key, max_retries=0) as made:
        yield made


def ask(client: openai.OpenAI, messages: Any, **more: Any) -> Any:
    """Ask for an answer that ends at the first full stop."""
    fields = {"stop": ".", "max_completion_tokens": 64, **more}
    return client.chat.completions.create(model="recall", messages=messages, **fields)


def texts(answer: Any) -> list[str]:
    return [choice.message.content for choice in answer.choices]


def test_a_chat_is_answered_and_counted(client: openai.OpenAI, plain: Served) -> None:
    answer = ask(client, TELL)
    assert answer.id.startswith("chatcmpl-")
    assert texts(answer) == [CANARY]
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage.prompt_tokens == TELL_TOKENS
    assert answer.usage.completion_tokens == len(CANARY) + 1
    assert answer.usage.prompt_tokens_details.cached_tokens == 0
    request = plain.records.request(answer.id)
    ended = plain.one("request_ended", request=request, role="decode")
    assert (ended["computed_tokens"], ended["generated_tokens"]) == (
        TELL_TOKENS,
        len(CANARY) + 1,
    )


def test_the_length_ends_it(client: openai.OpenAI) -> None:
    answer = ask(client, TELL, max_completion_tokens=5)
    assert (texts(answer), answer.choices[0].finish_reason) == ([CANARY[:5]], "length")


def test_a_stream_gives_the_same_text_piece_by_piece(client: openai.OpenAI) -> None:
    stream = ask(client, TELL, stream=True, n=2, stream_options={"include_usage": True})
    *pieces, last = list(stream)
    assert len(pieces) > 8
    said = {0: "", 1: ""}
    for piece in pieces:
        (choice,) = piece.choices
        said[choice.index] += choice.delta.content or ""
    assert said == {0: CANARY, 1: CANARY}
    assert sorted(p.choices[0].index for p in pieces if p.choices[0].delta.role) == [0, 1]
    assert [p.choices[0].finish_reason for p in pieces].count("stop") == 2
    assert last.usage.total_tokens == TELL_TOKENS + 2 * (len(CANARY) + 1)


def test_equal_seeds_draw_equally_and_others_do_not(client: openai.OpenAI) -> None:
    drawn = [texts(ask(client, CHOOSE, seed=seed, **DRAWN))[0] for seed in range(8)]
    again = [texts(ask(client, CHOOSE, seed=seed, **DRAWN))[0] for seed in range(8)]
    assert drawn == again
    assert set(drawn) == CHOICES


def test_choices_of_one_request_draw_on_their_own(client: openai.OpenAI) -> None:
    drawn = texts(ask(client, CHOOSE, seed=3, n=8, **DRAWN))
    assert drawn == texts(ask(client, CHOOSE, seed=3, n=8, **DRAWN))
    assert set(drawn) == CHOICES


def test_without_a_seed_each_request_draws_anew(client: openai.OpenAI) -> None:
    # By chance all are equal once in 2**31 runs.
    drawn = [text for _ in range(4) for text in texts(ask(client, CHOOSE, n=8, **DRAWN))]
    assert set(drawn) == CHOICES


def test_without_a_temperature_nothing_is_drawn(client: openai.OpenAI) -> None:
    assert len({text for _ in range(2) for text in texts(ask(client, CHOOSE, n=8))}) == 1


def test_a_small_top_p_leaves_one_token(client: openai.OpenAI) -> None:
    drawn = texts(ask(client, CHOOSE, temperature=1, top_p=0.1, seed=3, n=8))
    assert len(set(drawn)) == 1


def test_likelihoods_are_the_models(client: openai.OpenAI) -> None:
    answer = ask(client, CHOOSE, logprobs=True, top_logprobs=3)
    tokens = answer.choices[0].logprobs.content
    assert "".join(token.token for token in tokens) == texts(answer)[0]
    first = tokens[0]
    assert first.logprob == pytest.approx(math.log(0.5), abs=1e-3)
    assert {t.token for t in first.top_logprobs[:2]} == {"l", "r"}
    assert [t.logprob for t in first.top_logprobs[:2]] == pytest.approx(
        [math.log(0.5)] * 2, abs=1e-3
    )
    assert first.top_logprobs[2].logprob < math.log(0.01)
    assert all(token.logprob > math.log(0.99) for token in tokens[1:])
    assert [token.bytes for token in tokens] == [[ord(c)] for c in texts(answer)[0]]


def test_without_top_logprobs_there_are_no_alternatives(client: openai.OpenAI) -> None:
    stream = ask(client, TELL, logprobs=True, stream=True)
    tokens = [token for piece in stream for token in piece.choices[0].logprobs.content]
    assert "".join(token.token for token in tokens) == CANARY
    assert all(token.top_logprobs == [] for token in tokens)


def test_a_default_length_fits_the_window(client: openai.OpenAI) -> None:
    content = "x" * (1024 - 40 - len("user: \nassistant:"))
    messages: Any = [{"role": "user", "content": content}]
    answer = client.chat.completions.create(model="recall", messages=messages)
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (984, 40)
    assert answer.choices[0].finish_reason == "length"
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="recall", messages=messages, max_tokens=41)
    assert caught.value.code == "context_length_exceeded"


@pytest.mark.parametrize(
    ("messages", "code", "param"),
    [
        ([], "invalid_value", "messages"),
        ([{"role": "user"}], "invalid_value", "messages[0].content"),
        ([{"role": "tool", "content": "x"}], "unsupported_content", "messages[0].role"),
        (
            [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}],
            "unsupported_content",
            "messages[0].content[0]",
        ),
    ],
)
def test_other_conversations_are_bad_requests(
    client: openai.OpenAI, messages: Any, code: str, param: str
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        ask(client, messages)
    assert (caught.value.code, caught.value.param) == (code, param)


def test_tools_are_refused_by_name(plain: Served) -> None:
    body = {"model": "recall", "messages": TELL, "tools": [{"type": "function"}]}
    response = plain.http.post("/v1/chat/completions", headers=plain.auth("acme"), json=body)
    assert response.status_code == 400
    assert (error_of(response)["code"], error_of(response)["param"]) == (
        "unsupported_parameter",
        "tools",
    )


def test_it_leaves_nothing_behind(plain: Served) -> None:
    plain.serves("bravo")
    plain.baseline()
