"""Bodies of /v1/chat/completions: conversations, lengths and likelihoods."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from openai.types.chat import ChatCompletionMessage

from kvairlock.engine.tokenizer import ByteTokenizer, ChatMessage, ConversationRefused
from kvairlock.gateway.errors import ApiError, Refused
from kvairlock.gateway.parameters import parse

from .asking import CHAT, OFFER, parsed, refused, valid

Turn = dict[str, object]
USER: Turn = {"role": "user", "content": "hi"}


def prompt(*messages: Turn) -> str:
    """Return what the model reads of a conversation."""
    tokens = parsed(CHAT, messages=list(messages)).prompt_tokens
    return bytes(tokens.tolist()).decode()


def refused_turn(turn: object) -> ApiError:
    """Return the error of a conversation whose second message is wrong."""
    return refused(CHAT, messages=[USER, turn, USER])


def test_a_conversation_becomes_the_models_own_form() -> None:
    assert prompt({"role": "system", "content": "be kind"}, USER) == (
        "system: be kind\nuser: hi\nassistant:"
    )
    former: Turn = {"role": "assistant", "content": "yes?"}
    assert prompt(USER, former, {"role": "user", "content": ""}) == (
        "user: hi\nassistant: yes?\nuser: \nassistant:"
    )


def test_a_developer_is_the_system() -> None:
    assert prompt({"role": "developer", "content": "a"}, USER).startswith("system: a\n")


def test_parts_of_text_are_lines() -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    assert prompt({"role": "user", "content": parts}) == "user: one\ntwo\nassistant:"


def test_a_former_answer_is_taken_as_the_official_client_sends_it_back() -> None:
    former = ChatCompletionMessage.model_validate(
        {"role": "assistant", "content": "yes?", "refusal": None}
    ).model_dump()
    assert {"refusal", "audio", "function_call", "tool_calls", "annotations"} <= set(former)
    request = parsed(CHAT, messages=[USER, {**former, "tool_calls": []}, USER])
    assert b"assistant: yes?\n" in bytes(request.prompt_tokens.tolist())
    assert request.ignored == ()


def test_other_members_of_messages_are_ignored_and_named_once() -> None:
    named = {**USER, "name": "ann", "thought": "x", "empty": None}
    assert parsed(CHAT, messages=[named, named]).ignored == ("messages.name", "messages.thought")


WRONG: list[tuple[object, str]] = [
    (5, ""), ("hi", ""), (None, ""), ([], ""),
    ({}, ".role"), ({"role": "boss", "content": "x"}, ".role"), ({"role": 5}, ".role"),
    ({"role": None, "content": "x"}, ".role"), ({"role": ["user"]}, ".role"),
    ({"role": "user"}, ".content"), ({"role": "user", "content": None}, ".content"),
    ({"role": "assistant", "content": None}, ".content"),
    ({"role": "user", "content": 5}, ".content"), ({"role": "user", "content": {}}, ".content"),
    ({"role": "user", "content": []}, ".content"),
    ({"role": "user", "content": ["x"]}, ".content[0]"),
    ({"role": "user", "content": [{"text": "x"}]}, ".content[0]"),
    ({"role": "user", "content": [{"type": 5}]}, ".content[0]"),
    ({"role": "user", "content": [{"type": "text"}]}, ".content[0].text"),
    ({"role": "user", "content": [{"type": "text", "text": None}]}, ".content[0].text"),
]  # fmt: skip


@pytest.mark.parametrize(("turn", "place"), WRONG)
def test_wrong_messages_are_400_and_named_by_their_place(turn: object, place: str) -> None:
    error = refused_turn(turn)
    assert (error.status, error.code) == (400, "invalid_value")
    assert error.param == f"messages[1]{place}"
    assert f"`messages[1]{place}`" in error.message


TEXT = {"type": "text", "text": "see"}
UNSUPPORTED: list[tuple[Turn, str]] = [
    ({"role": "tool", "content": "x", "tool_call_id": "1"}, ".role"),
    ({"role": "function", "content": "x", "name": "f"}, ".role"),
    ({"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}, ".tool_calls"),
    ({"role": "assistant", "content": None, "function_call": {"name": "f"}}, ".function_call"),
    ({"role": "assistant", "content": "x", "refusal": "no"}, ".refusal"),
    ({"role": "assistant", "content": "x", "audio": {"id": "1"}}, ".audio"),
    ({"role": "user", "content": [TEXT, {"type": "image_url", "image_url": {}}]}, ".content[1]"),
    ({"role": "user", "content": [{"type": "input_audio"}]}, ".content[0]"),
    ({"role": "user", "content": [TEXT, TEXT, {"type": "file"}]}, ".content[2]"),
    ({"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}, ".content[0]"),
]  # fmt: skip


@pytest.mark.parametrize(("turn", "place"), UNSUPPORTED)
def test_what_is_no_text_is_refused_by_its_place(turn: Turn, place: str) -> None:
    error = refused_turn(turn)
    assert (error.status, error.code) == (400, "unsupported_content")
    assert error.param == f"messages[1]{place}"


def test_an_assistants_turn_is_not_continued() -> None:
    error = refused(CHAT, messages=[USER, {"role": "assistant", "content": "I think"}])
    assert (error.status, error.code) == (400, "unsupported_content")
    assert error.param == "messages[1]"


@pytest.mark.parametrize("messages", [None, [], "hi", {}, 5])
def test_without_messages_it_is_400(messages: object) -> None:
    error = refused(CHAT, messages=messages)
    assert (error.status, error.param, error.code) == (400, "messages", "invalid_value")


class Strict(ByteTokenizer):
    """A model whose template has no form for a system prompt."""

    def encode_chat(self, messages: Sequence[ChatMessage]) -> NDArray[np.int32]:
        if messages[0].role == "system":
            raise ConversationRefused("it knows no system prompt")
        return np.empty(0, dtype=np.int32)


def test_a_conversation_that_the_template_refuses_is_400_with_its_reason() -> None:
    offer = replace(OFFER, tokenizer=Strict())
    with pytest.raises(Refused) as caught:
        parse({**valid(CHAT), "messages": [{**USER, "role": "system"}]}, offer, CHAT)
    error = caught.value.error
    assert (error.status, error.code, error.param) == (400, "conversation_refused", "messages")
    assert "it knows no system prompt" in error.message
    with pytest.raises(Refused) as caught:
        parse(valid(CHAT), offer, CHAT)
    assert (caught.value.error.code, caught.value.error.param) == ("empty_prompt", "messages")


@pytest.mark.parametrize(
    ("fields", "most", "enough"),
    [
        ({}, 256, 1),
        ({"max_tokens": 9}, 9, 9),
        ({"max_completion_tokens": 9}, 9, 9),
        ({"max_tokens": 9, "max_completion_tokens": 9}, 9, 9),
        ({"max_tokens": None, "max_completion_tokens": 9}, 9, 9),
    ],
)
def test_the_length_has_two_names(fields: dict[str, object], most: int, enough: int) -> None:
    request = parsed(CHAT, **fields)
    assert (request.max_tokens, request.enough_tokens) == (most, enough)


def test_two_lengths_are_400() -> None:
    error = refused(CHAT, max_tokens=8, max_completion_tokens=9)
    assert (error.status, error.param) == (400, "max_completion_tokens")
    for wrong in (0, -1, "9", 1.5, True, 2**31):
        assert refused(CHAT, max_completion_tokens=wrong).param == "max_completion_tokens"


@pytest.mark.parametrize(
    ("fields", "alternatives"),
    [
        ({}, None),
        ({"logprobs": False}, None),
        ({"logprobs": True}, 0),
        ({"logprobs": True, "top_logprobs": 0}, 0),
        ({"logprobs": True, "top_logprobs": 20}, 20),
    ],
)
def test_likelihoods(fields: dict[str, object], alternatives: int | None) -> None:
    assert parsed(CHAT, **fields).alternatives == alternatives


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"logprobs": 1}, "logprobs"),
        ({"logprobs": "true"}, "logprobs"),
        ({"top_logprobs": 0}, "top_logprobs"),
        ({"logprobs": False, "top_logprobs": 2}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": -1}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": True}, "top_logprobs"),
    ],
)
def test_wrong_likelihoods_are_400(fields: dict[str, object], param: str) -> None:
    error = refused(CHAT, **fields)
    assert (error.status, error.param, error.code) == (400, param, "invalid_value")
