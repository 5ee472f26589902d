"""Bodies of /v1/completions: prompts, and the number of alternatives."""

from __future__ import annotations

import base64

import numpy as np
import pytest

from kvairlock.gateway.bodies import read_object
from kvairlock.gateway.errors import Refused
from kvairlock.gateway.parameters import PROMPT_TOKENS_MAX, parse
from kvairlock.gateway.steering import believed_ticket, strip

from .asking import COMPLETION, OFFER, parsed, refused, valid


def test_a_prompt_is_text_or_token_ids() -> None:
    request = parsed(COMPLETION)
    assert request.prompt_tokens.tolist() == [104, 105]
    assert request.prompt_tokens.dtype == np.int32
    assert (request.max_tokens, request.enough_tokens) == (16, 1)
    assert request.demand.context_tokens == 18
    assert parsed(COMPLETION, prompt=[0, 255, 7]).prompt_tokens.tolist() == [0, 255, 7]


@pytest.mark.parametrize("count", [None, 0, 5])
def test_logprobs_is_the_number_of_alternatives(count: int | None) -> None:
    assert parsed(COMPLETION, logprobs=count).alternatives == count


WRONG: list[tuple[str, object, str]] = [
    ("logprobs", 6, "invalid_value"), ("logprobs", -1, "invalid_value"),
    ("logprobs", True, "invalid_value"), ("logprobs", 1.0, "invalid_value"),
    ("prompt", "", "empty_prompt"), ("prompt", [], "empty_prompt"),
    ("prompt", None, "invalid_value"),
    ("prompt", 5, "invalid_value"), ("prompt", {}, "invalid_value"),
    ("prompt", ["a"], "several_prompts"), ("prompt", [[1], [2]], "several_prompts"),
    ("prompt", [1, "a"], "several_prompts"), ("prompt", [256], "invalid_value"),
    ("prompt", [-1], "invalid_value"), ("prompt", [1.0], "invalid_value"),
    ("prompt", [True], "invalid_value"), ("prompt", [2**31], "invalid_value"),
    ("prompt", [None], "invalid_value"), ("prompt", [10**30], "invalid_value"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value", "code"), WRONG)
def test_wrong_values_are_400_and_name_the_parameter(name: str, value: object, code: str) -> None:
    error = refused(COMPLETION, **{name: value})
    assert (error.status, error.param, error.code) == (400, name, code)


def test_a_missing_prompt_is_400() -> None:
    with pytest.raises(Refused) as caught:
        parse({"model": "recall"}, OFFER, COMPLETION)
    assert (caught.value.error.status, caught.value.error.param) == (400, "prompt")


def test_a_prompt_that_no_message_can_carry_is_413() -> None:
    assert refused(COMPLETION, prompt="x" * (PROMPT_TOKENS_MAX + 1)).status == 413
    largest = parsed(COMPLETION, prompt="x" * PROMPT_TOKENS_MAX)
    assert len(largest.prompt_tokens) == PROMPT_TOKENS_MAX


def test_no_message_repeats_the_prompt() -> None:
    secret = "hunter2"
    for fields in ({"prompt": [secret]}, {"prompt": {secret: 1}}, {"stop": [secret, 5]}):
        assert secret not in refused(COMPLETION, **fields).message


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
        **valid(COMPLETION), "kv_transfer_params": {}, "bootstrap_host": "h", "bootstrap_port": 1,
        "bootstrap_room": 2, "disagg_prefill_dp_rank": 3,
    }  # fmt: skip
    stripped = strip(fields)
    assert fields == valid(COMPLETION)
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
