"""What a client was told is on record as it went out: status, finish, usage, or nothing at all."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from kvairlock.core.messages import Cancel

from .fake_nodes import PREFILL_TOKENS, Talk, stay_silent
from .stacks import Stack, until


def told(gateway: Stack, before: int) -> dict[str, Any]:
    """Return the one response that was recorded since there were so many."""
    until(lambda: len(gateway.evidence("response_sent")) > before)
    (record,) = gateway.evidence("response_sent")[before:]
    return record


def figures(record: dict[str, Any]) -> tuple[object, ...]:
    names = ("http_status", "finish", "prompt_tokens", "generated_tokens")
    return tuple(record[name] for name in names)


@pytest.fixture
def before(gateway: Stack) -> int:
    return len(gateway.evidence("response_sent"))


async def two_ways(talk: Talk) -> None:
    await talk.chunk(b"hello", 0, "length")
    await talk.chunk(b"hel", 1, "stop")
    await talk.end(computed=7, generated=3)


def test_an_answer_is_recorded_with_the_usage_that_it_states(gateway: Stack, before: int) -> None:
    gateway.decode.script = two_ways
    usage = gateway.complete(n=2, prompt="two ways").json()["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (7, 3)
    record = told(gateway, before)
    assert figures(record) == (200, ["length", "stop"], 7, 3)
    assert record["request"] == gateway.evidence("request_admitted")[-1]["request"]


@pytest.mark.parametrize(("options", "stated"), [({}, (0, 0)), ({"include_usage": True}, (7, 3))])
def test_a_stream_states_usage_only_where_its_client_asks_for_it(
    gateway: Stack, before: int, options: dict[str, bool], stated: tuple[int, int]
) -> None:
    asked = {"stream": True, **({"stream_options": options} if options else {})}
    assert gateway.complete(None, **asked).status_code == 200
    assert figures(told(gateway, before)) == (200, ["length"], *stated)


def test_a_refusal_is_recorded_with_its_status_and_states_nothing(
    gateway: Stack, before: int
) -> None:
    assert gateway.complete(prompt="x" * (PREFILL_TOKENS + 1)).status_code == 400
    record = told(gateway, before)
    assert figures(record) == (400, [], 0, 0)
    assert record["request"] == gateway.evidence("request_refused")[-1]["request"]


def test_a_client_that_left_was_told_nothing(gateway: Stack, before: int) -> None:
    gateway.decode.script = stay_silent
    body = {"model": "recall", "prompt": "leaving without a word"}
    with (
        httpx.Client(base_url=gateway.url, trust_env=False) as leaving,
        pytest.raises(httpx.ReadTimeout),
    ):
        leaving.post("/v1/completions", json=body, headers=gateway.headers(), timeout=0.3)
    gateway.decode.next(Cancel)
    assert figures(told(gateway, before)) == (0, [], 0, 0)


def test_what_was_never_a_request_has_no_response_on_record(gateway: Stack, before: int) -> None:
    assert gateway.complete(prompt=None).status_code == 400
    assert gateway.complete().status_code == 200
    assert figures(told(gateway, before))[0] == 200
