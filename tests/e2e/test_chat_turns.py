"""A conversation goes on: its second turn reads the pages of the first, and nobody else's does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import openai
import pytest

from .served import Served, serving

SETTINGS = """
[[prefill]]
name = "prefill-0"
pages = 128
prefix_share = 0.5

[[decode]]
name = "decode-0"
pages = 256
tenant_share = 1.0

[limits]
beat_ms = 50
"""
PAGE_TOKENS = 16
SCOPES = {"acme": "private", "bravo": "private", "closed": "none"}
WORDS = "the quick brown fox jumps over the lazy dog, " * 4


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A stack that keeps prefixes."""
    with serving(tmp_path_factory.mktemp("turns"), SETTINGS, SCOPES) as running:
        yield running


def client(stack: Served, tenant: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{stack.url}/v1", api_key=stack.keys.of[tenant], max_retries=0)


def answer(stack: Served, tenant: str, messages: list[Any]) -> Any:
    """Ask for a few tokens."""
    with client(stack, tenant) as asking:
        return asking.chat.completions.create(model="recall", messages=messages, max_tokens=8)


def cached(given: Any) -> int:
    tokens: int = given.usage.prompt_tokens_details.cached_tokens
    return tokens


def turns(marker: str) -> tuple[list[Any], int]:
    """Return a first turn, and how many of its tokens fill whole pages."""
    content = marker + WORDS
    tokens = len(f"user: {content}\nassistant:")
    assert tokens % PAGE_TOKENS  # the last page is not full: it is nobody's to share
    return [{"role": "user", "content": content}], tokens // PAGE_TOKENS * PAGE_TOKENS


def next_turn(so_far: list[Any], given: Any) -> list[Any]:
    """Go on as the official client's users do: the answer as it came, and a new question."""
    former = given.choices[0].message.model_dump()
    return [*so_far, former, {"role": "user", "content": "and then?"}]


def test_each_turn_reads_the_full_pages_of_the_turn_before(stack: Served) -> None:
    first, kept = turns("one ")
    given = answer(stack, "acme", first)
    assert (cached(given), kept) == (0, 192)
    second = next_turn(first, given)
    given = answer(stack, "acme", second)
    assert cached(given) == kept
    kept_now = given.usage.prompt_tokens // PAGE_TOKENS * PAGE_TOKENS
    assert kept_now > kept
    given = answer(stack, "acme", next_turn(second, given))
    assert cached(given) == kept_now


@pytest.mark.parametrize("stranger", ["bravo", "closed"])
def test_another_tenant_with_the_very_same_text_reads_nothing(stack: Served, stranger: str) -> None:
    first, kept = turns(f"two {stranger[0]} ")
    given = answer(stack, "acme", first)
    second = next_turn(first, given)
    assert cached(answer(stack, stranger, second)) == 0
    assert cached(answer(stack, "acme", second)) == kept


def test_a_tenant_without_a_scope_reads_nothing_not_even_its_own(stack: Served) -> None:
    first, _ = turns("three ")
    given = answer(stack, "closed", first)
    assert cached(answer(stack, "closed", next_turn(first, given))) == 0


def test_what_was_read_changes_no_token(stack: Served) -> None:
    first, kept = turns("four ")
    computed, read = answer(stack, "acme", first), answer(stack, "acme", first)
    assert (cached(computed), cached(read)) == (0, kept)
    assert read.choices[0].message.content == computed.choices[0].message.content


def test_a_stream_tells_it_too(stack: Served) -> None:
    first, kept = turns("five ")
    answer(stack, "acme", first)
    with client(stack, "acme") as asking:
        stream = asking.chat.completions.create(
            model="recall",
            messages=first,
            max_tokens=4,
            stream=True,
            stream_options={"include_usage": True},
        )
        *_, last = list(stream)
        completion = asking.completions.create(
            model="recall", prompt=f"user: {first[0]['content']}\nassistant:", max_tokens=4
        )
    assert cached(last) == kept
    # A completion of the same tokens is the same prompt.
    assert cached(completion) == kept
