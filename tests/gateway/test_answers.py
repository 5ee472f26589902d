"""Answers in both shapes: texts, roles, ends, likelihoods and usage."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from openai.types import Completion
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from kvairlock.core.ends import End
from kvairlock.core.messages import Alternative, Chunk, Ended, Score
from kvairlock.core.terms import TransferId
from kvairlock.gateway.answers import Answer
from kvairlock.gateway.shapes import ChatShape, Shape, TextShape

from .asking import asked

TRANSFER = TransferId("r/1")
ENDED = Ended(TRANSFER, End.COMPLETED, None, 40, 6, 32, None)
TEXT, CHAT = TextShape(), ChatShape()
EURO = "€".encode()
SCORES = (
    Score(b"a", -0.5, (Alternative(b"a", -0.5), Alternative(b"b", -1.5))),
    Score(EURO[:1], -0.25, (Alternative(b"c", -0.125), Alternative(b"d", -math.inf))),
)
REST = (Score(EURO[1:], -1.0, ()), Score(b"z", -math.inf, ()))


def chunk(text: bytes, finish: str = "", choice: int = 0, scores: tuple[Score, ...] = ()) -> Chunk:
    return Chunk(TRANSFER, choice, 1, text, finish, scores)


def data(event: bytes) -> Any:
    return json.loads(event.removeprefix(b"data: "))


def whole(shape: Shape, alternatives: int | None, *chunks: Chunk) -> Any:
    answer = Answer("cmpl-1", asked(alternatives=alternatives), shape)
    for each in chunks:
        answer.take(each)
    # As clients get it: what JSON cannot say would fail here.
    return json.loads(json.dumps(answer.whole(ENDED), allow_nan=False))


SCORED = (chunk(b"a" + EURO[:1], scores=SCORES), chunk(EURO[1:] + b"z", "stop", scores=REST))


def test_a_text_completion() -> None:
    told = whole(TEXT, None, chunk(b"hel"), chunk(b"lo", "length"))
    assert told.pop("created") > 1_700_000_000
    assert told == {
        "id": "cmpl-1",
        "object": "text_completion",
        "model": "recall",
        "choices": [{"index": 0, "text": "hello", "logprobs": None, "finish_reason": "length"}],
        "usage": {
            "prompt_tokens": 40,
            "completion_tokens": 6,
            "total_tokens": 46,
            "prompt_tokens_details": {"cached_tokens": 32},
        },
    }
    Completion.model_validate(told | {"created": 1}, strict=True)


def test_a_chat_completion() -> None:
    told = whole(CHAT, None, chunk(b"hel"), chunk(b"lo", "stop"))
    assert told["object"] == "chat.completion"
    assert told["choices"] == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "hello", "refusal": None},
            "logprobs": None,
            "finish_reason": "stop",
        }
    ]
    assert told["usage"]["prompt_tokens_details"] == {"cached_tokens": 32}
    ChatCompletion.model_validate(told, strict=True)


def test_a_chat_stream_tells_the_role_once_per_choice() -> None:
    answer = Answer("chatcmpl-1", asked(n=2), CHAT)
    sent = [
        answer.take(chunk(EURO[:2], choice=1)),
        answer.take(chunk(b"a")),
        answer.take(chunk(EURO[2:], choice=1)),
        answer.take(chunk(b"b", "length")),
        answer.take(chunk(b"", "stop", choice=1)),
    ]
    assert sent[0] == b""
    told = [data(event) for event in sent[1:]]
    for each in told:
        ChatCompletionChunk.model_validate(each, strict=True)
    assert {each["object"] for each in told} == {"chat.completion.chunk"}
    choices = [each["choices"][0] for each in told]
    assert [(c["index"], c["delta"], c["finish_reason"]) for c in choices] == [
        (0, {"role": "assistant", "content": "a"}, None),
        (1, {"role": "assistant", "content": "€"}, None),
        (0, {"content": "b"}, "length"),
        (1, {}, "stop"),
    ]
    assert answer.unfinished() is None
    assert answer.last_events(ENDED) == b"data: [DONE]\n\n"


def test_an_empty_answer_has_a_role_and_an_end() -> None:
    answer = Answer("chatcmpl-1", asked(), CHAT)
    (choice,) = data(answer.take(chunk(b"", "stop")))["choices"]
    assert choice["delta"] == {"role": "assistant", "content": ""}
    assert choice["finish_reason"] == "stop"


def test_likelihoods_of_a_text_completion() -> None:
    (choice,) = whole(TEXT, 2, *SCORED)["choices"]
    assert choice["text"] == "a€z"
    assert choice["logprobs"] == {
        "tokens": ["a", "�", "��", "z"],
        "token_logprobs": [-0.5, -0.25, -1.0, -9999.0],
        "top_logprobs": [
            {"a": -0.5, "b": -1.5},
            {"c": -0.125, "d": -9999.0, "�": -0.25},
            {"��": -1.0},
            {"z": -9999.0},
        ],
        "text_offset": [0, 1, 1, 2],
    }


def test_likelihoods_of_a_chat() -> None:
    (choice,) = whole(CHAT, 2, *SCORED)["choices"]
    assert choice["message"]["content"] == "a€z"
    assert choice["logprobs"]["refusal"] is None
    first, second, third, _ = choice["logprobs"]["content"]
    assert first == {
        "token": "a",
        "logprob": -0.5,
        "bytes": [97],
        "top_logprobs": [
            {"token": "a", "logprob": -0.5, "bytes": [97]},
            {"token": "b", "logprob": -1.5, "bytes": [98]},
        ],
    }
    assert (second["token"], second["bytes"], second["logprob"]) == ("�", [0xE2], -0.25)
    assert third["bytes"] == [0x82, 0xAC]
    joined = b"".join(bytes(t["bytes"]) for t in choice["logprobs"]["content"])
    assert joined.decode() == choice["message"]["content"]


@pytest.mark.parametrize("shape", [TEXT, CHAT], ids=["text", "chat"])
def test_a_stream_has_each_likelihood_once_and_offsets_go_on(shape: Shape) -> None:
    answer = Answer("cmpl-1", asked(alternatives=0), shape)
    parts = (
        chunk(EURO[:1], scores=(Score(EURO[:1], -1.0, ()),)),
        chunk(EURO[1:], scores=(Score(EURO[1:], -2.0, ()),)),
        chunk(b"y", "length", scores=(Score(b"y", -3.0, ()),)),
    )
    told = [data(answer.take(part))["choices"][0]["logprobs"] for part in parts]
    if shape is TEXT:
        assert [each["token_logprobs"] for each in told] == [[-1.0], [-2.0], [-3.0]]
        assert [each["text_offset"] for each in told] == [[0], [0], [1]]
    else:
        assert [each["content"][0]["logprob"] for each in told] == [-1.0, -2.0, -3.0]


def test_asked_for_and_without_tokens_it_is_an_empty_list() -> None:
    assert whole(CHAT, 0, chunk(b"", "stop"))["choices"][0]["logprobs"]["content"] == []
    assert whole(TEXT, 0, chunk(b"", "stop"))["choices"][0]["logprobs"]["tokens"] == []


@pytest.mark.parametrize("shape", [TEXT, CHAT], ids=["text", "chat"])
def test_usage_ends_a_stream_that_asked_for_it(shape: Shape) -> None:
    answer = Answer("cmpl-1", asked(include_usage=True), shape)
    assert data(answer.take(chunk(b"a", "stop")))["usage"] is None
    usage, done, _ = answer.last_events(ENDED).split(b"\n\n")
    assert data(usage)["choices"] == []
    assert data(usage)["usage"]["prompt_tokens_details"] == {"cached_tokens": 32}
    assert done == b"data: [DONE]"
