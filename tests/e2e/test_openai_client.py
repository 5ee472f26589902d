"""The official `openai` package, unchanged, against the stack."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai.types import Completion

from kvairlock.drills.canaries import END

from .served import CANARY_TOKENS, Served

PROMPT_CHARACTERS = 300


@pytest.fixture(scope="module")
def client(plain: Served) -> Iterator[openai.OpenAI]:
    url, key = f"{plain.url}/v1", plain.keys.of["acme"]
    with openai.OpenAI(base_url=url, api_key=key, max_retries=0) as made:
        yield made


def figures(usage: Any) -> tuple[int, int, int]:
    return usage.prompt_tokens, usage.completion_tokens, usage.total_tokens


def generated(stack: Served, completion: Completion) -> tuple[int, int]:
    """What the decode node recorded as confirmed and generated."""
    ended = stack.one("request_ended", request=stack.records.request(completion.id), role="decode")
    assert ended["end"] == "completed"
    return ended["computed_tokens"], ended["generated_tokens"]


def test_models_are_listed_and_retrieved(client: openai.OpenAI) -> None:
    (model,) = client.models.list().data
    assert (model.id, model.object, model.owned_by) == ("recall", "model", "kvairlock")
    assert model.model_extra == {"max_model_len": 1024}
    assert client.models.retrieve("recall").id == "recall"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt-x")


def test_a_completion_recalls_the_canary_and_counts_what_was_done(
    client: openai.OpenAI, plain: Served
) -> None:
    prompt = plain.canaries.prompt("acme", PROMPT_CHARACTERS)
    answer = client.completions.create(
        model="recall", prompt=prompt.text, max_tokens=64, stop=[END]
    )
    (choice,) = answer.choices
    assert (choice.text, choice.finish_reason, choice.index) == (prompt.canary, "stop", 0)
    assert answer.usage is not None
    assert figures(answer.usage) == (300, CANARY_TOKENS, 317)
    assert generated(plain, answer) == (300, CANARY_TOKENS)
    assert (answer.model, answer.object) == ("recall", "text_completion")


def test_max_tokens_ends_the_answer_with_length(client: openai.OpenAI, plain: Served) -> None:
    prompt = plain.canaries.prompt("acme", PROMPT_CHARACTERS)
    answer = client.completions.create(model="recall", prompt=prompt.text, max_tokens=5)
    (choice,) = answer.choices
    assert (choice.text, choice.finish_reason) == (prompt.canary[:5], "length")
    assert answer.usage is not None
    assert figures(answer.usage) == (300, 5, 305)


def test_without_max_tokens_the_default_counts(client: openai.OpenAI, plain: Served) -> None:
    prompt = plain.canaries.prompt("acme", PROMPT_CHARACTERS)
    answer = client.completions.create(model="recall", prompt=prompt.text)
    assert (answer.choices[0].text, answer.choices[0].finish_reason) == (prompt.canary, "length")
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 16


def test_each_of_several_stops_ends_it_at_the_first_that_comes(
    client: openai.OpenAI, plain: Served
) -> None:
    prompt = plain.canaries.prompt("acme", PROMPT_CHARACTERS)
    stops = [prompt.canary[10:13], prompt.canary[4:8], "never"]
    answer = client.completions.create(
        model="recall", prompt=prompt.text, max_tokens=64, stop=stops
    )
    (choice,) = answer.choices
    assert (choice.text, choice.finish_reason) == (prompt.canary[:4], "stop")
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 8


def test_two_choices_share_the_prompt_and_are_both_counted(
    client: openai.OpenAI, plain: Served
) -> None:
    prompt = plain.canaries.prompt("acme", PROMPT_CHARACTERS)
    answer = client.completions.create(
        model="recall", prompt=prompt.text, max_tokens=64, stop=END, n=2
    )
    assert [(c.index, c.text) for c in answer.choices] == [(0, prompt.canary), (1, prompt.canary)]
    assert answer.usage is not None
    assert figures(answer.usage) == (300, 2 * CANARY_TOKENS, 334)
    assert generated(plain, answer) == (300, 2 * CANARY_TOKENS)


def test_a_prompt_of_token_ids_is_the_same_prompt(client: openai.OpenAI, plain: Served) -> None:
    prompt = plain.canaries.prompt("acme", 200)
    answer = client.completions.create(
        model="recall", prompt=list(prompt.text.encode()), max_tokens=64, stop=END
    )
    assert answer.choices[0].text == prompt.canary


def test_a_stream_gives_the_same_text_piece_by_piece(client: openai.OpenAI, plain: Served) -> None:
    prompt = plain.canaries.prompt("acme", PROMPT_CHARACTERS)
    stream = client.completions.create(
        model="recall", prompt=prompt.text, max_tokens=64, stop=END, stream=True
    )
    pieces = list(stream)
    assert len(pieces) > 8  # piece by piece, not at the end
    assert "".join(p.choices[0].text for p in pieces) == prompt.canary
    assert [p.choices[0].finish_reason for p in pieces][-1] == "stop"
    assert {p.id for p in pieces} == {pieces[0].id}
    assert all(p.usage is None for p in pieces)


def test_a_stream_of_two_choices_ends_with_the_usage_if_asked(
    client: openai.OpenAI, plain: Served
) -> None:
    prompt = plain.canaries.prompt("acme", PROMPT_CHARACTERS)
    stream = client.completions.create(
        model="recall",
        prompt=prompt.text,
        max_tokens=64,
        stop=END,
        n=2,
        stream=True,
        stream_options={"include_usage": True},
    )
    texts, usages = {0: "", 1: ""}, []
    for piece in stream:
        usages.append((len(piece.choices), piece.usage))
        for choice in piece.choices:
            texts[choice.index] += choice.text
    assert texts == {0: prompt.canary, 1: prompt.canary}
    choices, usage = usages[-1]
    assert choices == 0
    assert figures(usage) == (300, 2 * CANARY_TOKENS, 334)
    assert all(usage is None for _, usage in usages[:-1])


def test_leaving_a_stream_cancels_the_request(client: openai.OpenAI, plain: Served) -> None:
    prompt = plain.canaries.prompt("acme", 100)
    stream = client.completions.create(
        model="recall", prompt=prompt.text, max_tokens=900, stream=True
    )
    first = next(iter(stream))
    stream.close()
    request = plain.records.request(first.id)
    ended = plain.one("request_ended", request=request, role="decode")
    assert (ended["end"], ended["reason"]) == ("cancelled", "cancelled")
    assert 1 <= ended["generated_tokens"] < 900
    plain.baseline()


def test_an_over_long_request_is_a_bad_request_with_figures(
    client: openai.OpenAI, plain: Served
) -> None:
    prompt = plain.canaries.prompt("acme", 1020)
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model="recall", prompt=prompt.text, max_tokens=5)
    error = caught.value
    assert (error.code, error.type) == ("context_length_exceeded", "invalid_request_error")
    assert isinstance(error.body, dict)
    told = {name: error.body[name] for name in ("asked", "limit", "limit_name", "reason")}
    assert told == {
        "asked": 1025,
        "limit": 1024,
        "limit_name": "context_window",
        "reason": "context_length",
    }
    assert "1025" in error.message
    assert "1024" in error.message
    request = plain.records.request(error.response.headers["x-request-id"])
    plain.records.last("request_refused", request=request)
    assert plain.records.all("range_computed", request=request) == []


def test_a_refused_stream_is_the_same_exception(client: openai.OpenAI, plain: Served) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model="recall", prompt="x" * 2000, stream=True)
    assert caught.value.code == "context_length_exceeded"


def test_a_wrong_key_is_an_authentication_error(client: openai.OpenAI) -> None:
    with pytest.raises(openai.AuthenticationError) as caught:
        client.with_options(api_key="kva-00000000-wrong").models.list()
    assert caught.value.code == "invalid_api_key"
    with pytest.raises(openai.AuthenticationError):
        client.with_options(api_key="sk-other").completions.create(model="recall", prompt="x")


def test_an_unknown_model_is_not_found(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        client.completions.create(model="gpt-x", prompt="x")
    assert (caught.value.code, caught.value.param) == ("model_not_found", "model")


def test_an_endpoint_that_there_is_not_is_not_found(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError):
        client.embeddings.create(model="recall", input="x")


def test_an_unsupported_parameter_is_a_bad_request_that_names_it(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model="recall", prompt="x", presence_penalty=0.7, best_of=2)
    assert (caught.value.code, caught.value.param) == ("unsupported_parameter", "presence_penalty")
    assert "`presence_penalty`" in caught.value.message
    assert "`best_of`" in caught.value.message


def test_a_neutral_value_of_such_a_parameter_is_taken(client: openai.OpenAI, plain: Served) -> None:
    prompt = plain.canaries.prompt("acme", 120)
    answer = client.completions.create(
        model="recall",
        prompt=prompt.text,
        stop=END,
        max_tokens=32,
        temperature=0,
        top_p=1,
        seed=7,
        user="somebody",
    )
    assert answer.choices[0].text == prompt.canary


def test_likelihoods_of_a_completion(client: openai.OpenAI, plain: Served) -> None:
    prompt = plain.canaries.prompt("acme", 120)
    answer = client.completions.create(
        model="recall", prompt=prompt.text, stop=END, max_tokens=32, logprobs=2
    )
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert "".join(logprobs.tokens or []) == answer.choices[0].text == prompt.canary
    assert logprobs.text_offset == list(range(len(prompt.canary)))
    assert all(-0.01 < logprob <= 0 for logprob in logprobs.token_logprobs or [])
    for token, likely in zip(logprobs.tokens or [], logprobs.top_logprobs or [], strict=True):
        assert len(likely) == 2
        assert max(likely, key=likely.__getitem__) == token
