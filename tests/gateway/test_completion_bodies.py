"""Bodies of /v1/completions: what is taken, what is refused and by which name."""

from __future__ import annotations

import base64
import json

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kvairlock.engine.model import load_tokenizer
from kvairlock.gateway.completions import (
    NEUTRAL,
    PROMPT_TOKENS_MAX,
    CompletionRequest,
    Offer,
    believed_ticket,
    header_names,
    parse,
    read_object,
    strip,
)
from kvairlock.gateway.errors import ApiError, Refused

OFFER = Offer("recall", load_tokenizer("recall"), max_tokens_default=16, choices_max=8)
VALID: dict[str, object] = {"model": "recall", "prompt": "hi"}


def parsed(**fields: object) -> CompletionRequest:
    return parse({**VALID, **fields}, OFFER)


def refused(**fields: object) -> ApiError:
    with pytest.raises(Refused) as caught:
        parsed(**fields)
    return caught.value.error


def test_defaults() -> None:
    request = parsed()
    assert request.prompt_tokens.tolist() == [104, 105]
    assert request.prompt_tokens.dtype == np.int32
    assert (request.max_tokens, request.n, request.stop) == (16, 1, ())
    assert (request.stream, request.include_usage, request.ignored) == (False, False, ())
    assert request.demand.context_tokens == 18


def test_everything_that_is_read() -> None:
    request = parsed(
        prompt=[0, 255, 7],
        max_tokens=3,
        n=8,
        stop=["a", "é"],
        stream=True,
        stream_options={"include_usage": True},
        seed=4,
        user="someone",
    )
    assert request.prompt_tokens.tolist() == [0, 255, 7]
    assert (request.max_tokens, request.n, request.stop) == (3, 8, (b"a", "é".encode()))
    assert (request.stream, request.include_usage, request.ignored) == (True, True, ())


def test_nulls_are_as_good_as_absent() -> None:
    nulls = dict.fromkeys(("max_tokens", "n", "stop", "stream", "stream_options", *NEUTRAL))
    assert parsed(**nulls).demand == parsed().demand


NEUTRAL_VALUES: list[tuple[str, object]] = [
    ("temperature", 0), ("temperature", 0.0), ("top_p", 1), ("top_p", 1.0), ("logprobs", None),
    ("echo", False), ("best_of", 1), ("frequency_penalty", 0), ("presence_penalty", 0.0),
    ("logit_bias", {}), ("suffix", ""), ("stop", []), ("stop", "x"), ("stream", False),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value"), NEUTRAL_VALUES)
def test_neutral_values_are_taken(name: str, value: object) -> None:
    assert parsed(**{name: value}).ignored == ()


UNSUPPORTED: list[tuple[str, object]] = [
    ("temperature", 1), ("temperature", 0.7), ("temperature", "0"), ("temperature", False),
    ("top_p", 0.5), ("top_p", True), ("logprobs", 0), ("logprobs", 5), ("echo", True), ("echo", 0),
    ("best_of", 2), ("frequency_penalty", 0.1), ("presence_penalty", -1), ("suffix", "end"),
    ("logit_bias", {"50256": -100}), ("logit_bias", []),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value"), UNSUPPORTED)
def test_other_values_are_refused_by_name(name: str, value: object) -> None:
    error = refused(**{name: value})
    assert (error.status, error.code, error.param) == (400, "unsupported_parameter", name)
    assert f"`{name}`" in error.message


def test_all_unsupported_parameters_are_named_at_once() -> None:
    error = refused(top_p=0.1, temperature=2, echo=True)
    assert all(f"`{name}`" in error.message for name in ("top_p", "temperature", "echo"))


WRONG: list[tuple[str, object, str]] = [
    ("max_tokens", 0, "invalid_value"), ("max_tokens", -1, "invalid_value"),
    ("max_tokens", 1.5, "invalid_value"), ("max_tokens", "5", "invalid_value"),
    ("max_tokens", True, "invalid_value"), ("max_tokens", 2**31, "invalid_value"),
    ("n", 0, "invalid_value"), ("n", 9, "invalid_value"), ("n", "1", "invalid_value"),
    ("stop", 5, "invalid_value"), ("stop", "", "invalid_value"), ("stop", [""], "invalid_value"),
    ("stop", ["a"] * 5, "invalid_value"), ("stop", [1], "invalid_value"),
    ("stream", 1, "invalid_value"), ("stream", "true", "invalid_value"),
    ("stream_options", {"include_usage": True}, "invalid_value"),
    ("prompt", "", "empty_prompt"), ("prompt", [], "empty_prompt"),
    ("prompt", None, "invalid_value"),
    ("prompt", 5, "invalid_value"), ("prompt", {}, "invalid_value"),
    ("prompt", ["a"], "several_prompts"), ("prompt", [[1], [2]], "several_prompts"),
    ("prompt", [1, "a"], "several_prompts"), ("prompt", [256], "invalid_value"),
    ("prompt", [-1], "invalid_value"), ("prompt", [1.0], "invalid_value"),
    ("prompt", [True], "invalid_value"), ("prompt", [2**31], "invalid_value"),
    ("prompt", [None], "invalid_value"), ("model", 5, "invalid_value"),
    ("model", "", "invalid_value"), ("model", None, "invalid_value"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value", "code"), WRONG)
def test_wrong_values_are_400_and_name_the_parameter(name: str, value: object, code: str) -> None:
    error = refused(**{name: value})
    assert (error.status, error.param, error.code) == (400, name, code)


@pytest.mark.parametrize("options", [5, [], {"include_usage": 1}, "x"])
def test_wrong_stream_options_are_400(options: object) -> None:
    error = refused(stream=True, stream_options=options)
    assert (error.status, error.param) == (400, "stream_options")


def test_missing_members_are_400() -> None:
    for missing in ("model", "prompt"):
        fields = {name: value for name, value in VALID.items() if name != missing}
        with pytest.raises(Refused) as caught:
            parse(fields, OFFER)
        assert (caught.value.error.status, caught.value.error.param) == (400, missing)


def test_an_unknown_model_is_404() -> None:
    error = refused(model="other")
    assert (error.status, error.code, error.param) == (404, "model_not_found", "model")


def test_a_prompt_that_no_message_can_carry_is_413() -> None:
    assert refused(prompt="x" * (PROMPT_TOKENS_MAX + 1)).status == 413
    assert len(parsed(prompt="x" * PROMPT_TOKENS_MAX).prompt_tokens) == PROMPT_TOKENS_MAX


def test_no_message_repeats_the_prompt() -> None:
    secret = "hunter2"
    for fields in ({"prompt": [secret]}, {"prompt": {secret: 1}}, {"stop": [secret, 5]}):
        assert secret not in refused(**fields).message


BODIES = [
    b"", b"nonsense", b"[1]", b'"x"', b"null", b"NaN", b'{"a": NaN}', b"{", b"\xff", b'{"a":1}x',
    b"[" * 100_000, b'{"a":' * 100_000, b'{"a": 1e999}', b'{"a": "\\ud800"}', b'{"a": "\xff"}',
    b'{"n": ' + b"9" * 5000 + b"}", "{}".encode("utf-16"),
]  # fmt: skip


@pytest.mark.parametrize("body", BODIES, ids=range(len(BODIES)))
def test_what_is_no_json_object_is_400(body: bytes) -> None:
    with pytest.raises(Refused) as caught:
        read_object(body)
    error = caught.value.error
    assert (error.status, error.code) == (400, "malformed_json")


def test_of_repeated_members_the_last_counts() -> None:
    assert read_object(b'{"n": 1, "n": 2}') == {"n": 2}


def test_strip_takes_what_steers_transfers_and_nothing_else() -> None:
    fields: dict[str, object] = {
        **VALID, "kv_transfer_params": {}, "bootstrap_host": "h", "bootstrap_port": 1,
        "bootstrap_room": 2, "disagg_prefill_dp_rank": 3,
    }  # fmt: skip
    stripped = strip(fields)
    assert fields == VALID
    assert list(stripped) == sorted(stripped)
    assert len(stripped) == 5


def test_believed_tickets() -> None:
    text = base64.urlsafe_b64encode(b"\xffticket").decode()
    assert believed_ticket({"kv_transfer_params": {"ticket": text}}) == b"\xffticket"
    for nothing in ({}, {"kv_transfer_params": 5}, {"kv_transfer_params": {"ticket": 5}}):
        assert believed_ticket(dict(nothing)) is None
    for wrong in ("a", "é"):
        with pytest.raises(Refused) as caught:
            believed_ticket({"kv_transfer_params": {"ticket": wrong}})
        assert caught.value.error.param == "kv_transfer_params"


def test_header_names_are_bounded_and_plain() -> None:
    assert header_names(["a", "b\r\nc", "é", "d-e_f.1"]) == "a, b??c, ?, d-e_f.1"
    long = header_names(["x" * 1000] * 100)
    assert long.endswith(", ...")
    assert len(long) == 16 * (64 + 2) + 3
    assert header_names(["x" * 64] * 16).count("x" * 64) == 16


WORDS = st.sampled_from([*VALID, *NEUTRAL, "max_tokens", "n", "stop", "stream", "stream_options"])
SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8) | st.just("recall")
)  # fmt: skip
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)


@settings(max_examples=300, deadline=None, derandomize=True)
@example({"prompt": "x", "model": "recall", "n": 10**30})
@given(st.dictionaries(WORDS | st.text(max_size=8), VALUES, max_size=8))
def test_any_object_is_a_request_or_a_4xx(fields: dict[str, object]) -> None:
    answer = outcome(json.dumps({**VALID, **fields}).encode())
    if isinstance(answer, ApiError):
        assert 400 <= answer.status < 500
        assert answer.param in {**VALID, **fields}
    else:
        assert answer.demand.prompt_tokens >= 1
        assert 1 <= answer.max_tokens < 2**31
        assert 1 <= answer.n <= 8
        assert not set(answer.ignored) & set(NEUTRAL)


def outcome(body: bytes) -> CompletionRequest | ApiError:
    try:
        fields = read_object(body)
        strip(fields)
        return parse(fields, OFFER)
    except Refused as error:
        return error.error


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.binary(max_size=64))
def test_any_bytes_are_a_400(body: bytes) -> None:
    answer = outcome(body)
    assert isinstance(answer, ApiError)
    assert answer.status == 400
