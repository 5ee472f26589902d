"""SmolLM2 over two nodes says, token for token, what one process and what another engine say.

What one process says is computed here. What llama.cpp says is in the golden answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
import openai
import pytest

from kvairlock.core.messages import Sampling
from kvairlock.drills.client import Call
from kvairlock.drills.stack import wait_for
from kvairlock.engine.model import Model, load, load_tokenizer
from kvairlock.engine.tokenizer import ChatMessage, Tokenizer
from kvairlock.runtime.threads import limit_blas
from tests.engine.generating import PAGE_TOKENS, Tokens, answer

from .served import Json, Served, serving
from .smollm2 import (
    COPYING,
    GOLDEN,
    MODEL,
    SEALING,
    SETTINGS,
    ask,
    cached,
    drawn,
    expected,
    fields,
    golden,
    seen,
)

pytestmark = pytest.mark.slow

BOUNDARIES = {15: 0, 16: 200, 17: 0, 32: 0, 33: 200}
"""Prompts of so many tokens of the golden text `long`, and where they begin.

Two likeliest tokens of theirs are never closer than 0.04, so rounding decides nothing.
"""

TOGETHER = [one for one in GOLDEN if one["name"] != "long"]
ALONE = (
    "code",
    "digits",
    "whitespace",
    "contractions",
    "chat",
    "chat with a system prompt",
    "chat of several turns",
)
FEW = 12
"""Tokens of an answer where more of them would only take longer."""

LEAVER_TOKENS = 200

SCOPES = {
    **dict.fromkeys(("acme", "bravo", "leaver"), "none"),
    **dict.fromkeys(("reader", "talker"), "private"),
    **{f"reader-{count}": "private" for count in BOUNDARIES},
}
"""Who reads again what was computed for it has a private scope."""

Alone = Callable[[Tokens, int], list[int]]


@pytest.fixture(scope="module")
def stack(smollm2_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One prefill node, and a decode node for each way of landing."""
    folder = tmp_path_factory.mktemp("smollm2")
    with serving(folder, SETTINGS, SCOPES, operators=True) as running:
        yield running


@pytest.fixture
def nothing_stays_held(stack: Served) -> Iterator[None]:
    yield
    stack.release_all()


@pytest.fixture(scope="module")
def tokenizer(smollm2_file: Path) -> Tokenizer:
    return load_tokenizer(MODEL)


@pytest.fixture(scope="module")
def model(smollm2_file: Path) -> Iterator[Model]:
    """In one thread: threads of BLAS that wait for each other would wait for the nodes' too."""
    with limit_blas(1, 1):
        yield load(MODEL)


@pytest.fixture
def alone(model: Model) -> Alone:
    """What one process generates of a prompt, up to an end token."""

    def generate(tokens: Tokens, count: int) -> list[int]:
        out = answer(model, tokens, count)
        ends = [place for place, token in enumerate(out) if token in model.tokenizer.end_tokens]
        return out[: ends[0] + 1] if ends else out

    return generate


@pytest.fixture(scope="module")
def together(stack: Served) -> dict[str, Json]:
    """The answers to nearly all golden prompts, which were asked at one time."""
    with ThreadPoolExecutor(len(TOGETHER)) as threads:
        answers = list(threads.map(lambda one: ask(stack, fields(one), "acme"), TOGETHER))
    return dict(zip((one["name"] for one in TOGETHER), answers, strict=True))


def figures(given: Json) -> tuple[int, int]:
    return given["usage"]["prompt_tokens"], given["usage"]["completion_tokens"]


def assert_says(given: Json, tokenizer: Tokenizer, tokens: list[int]) -> None:
    """The one choice has these tokens, and they were counted."""
    (choice,) = given["choices"]
    assert seen(choice) == expected(tokenizer, tokens)
    assert given["usage"]["completion_tokens"] == len(tokens)


@pytest.mark.parametrize("name", [one["name"] for one in TOGETHER])
def test_asked_together_they_are_answered_as_by_the_reference(
    together: dict[str, Json], tokenizer: Tokenizer, name: str
) -> None:
    assert_says(together[name], tokenizer, golden(name)["greedy"])
    assert together[name]["usage"]["prompt_tokens"] == len(golden(name)["tokens"])
    assert cached(together[name]) == 0


@pytest.mark.parametrize("name", [one["name"] for one in TOGETHER if "messages" in one])
def test_likelihoods_are_those_of_the_reference(
    together: dict[str, Json], tokenizer: Tokenizer, name: str
) -> None:
    """The reference has logits: they differ from likelihoods by what all tokens share."""
    steps = together[name]["choices"][0]["logprobs"]["content"]
    compared = {int(step): best for step, best in golden(name)["scores"].items()}
    assert min(compared) < len(steps)
    for step, best in compared.items():
        if step == len(steps):
            continue  # the end token is not shown
        ids, logits = zip(*best, strict=True)
        likeliest = steps[step]["top_logprobs"]
        assert [bytes(one["bytes"]) for one in likeliest] == [
            tokenizer.decode(np.array([token], np.int32)) for token in ids
        ]
        logprobs = np.array([one["logprob"] for one in likeliest])
        below = np.array(logits) - logits[0]
        np.testing.assert_allclose(logprobs - logprobs[0], below, rtol=0, atol=2e-3)
        assert steps[step]["logprob"] == logprobs[0]
        assert np.exp(logprobs).sum() < 1


@pytest.mark.parametrize("name", ALONE)
def test_two_nodes_say_what_one_process_says(
    stack: Served, tokenizer: Tokenizer, alone: Alone, name: str
) -> None:
    one = golden(name)
    given = ask(stack, fields(one), "bravo", max_tokens=FEW)
    assert_says(given, tokenizer, alone(np.array(one["tokens"], np.int32), FEW))


@pytest.mark.parametrize("count", BOUNDARIES)
def test_around_page_boundaries_pages_that_were_kept_say_the_same(
    stack: Served, tokenizer: Tokenizer, alone: Alone, count: int
) -> None:
    """Asked anew, the full pages are read, and another tenant's pages of the same text are not."""
    first = BOUNDARIES[count]
    tokens = golden("long")["tokens"][first : first + count]
    prompt, tenant = {"prompt": tokens, "max_tokens": FEW}, f"reader-{count}"
    computed, read = ask(stack, prompt, tenant), ask(stack, prompt, tenant)
    said = alone(np.array(tokens, np.int32), FEW)
    assert_says(computed, tokenizer, said)
    assert_says(read, tokenizer, said)
    assert (cached(computed), cached(read)) == (0, count // PAGE_TOKENS * PAGE_TOKENS)
    assert figures(computed) == figures(read) == (count, len(said))


def test_pages_that_were_kept_say_the_same_on_another_decode_node(
    stack: Served, tokenizer: Tokenizer
) -> None:
    """What was written into a window that is sealed, and then into one that is copied."""
    one = golden("long")
    computed = ask(stack, fields(one), "reader", SEALING)
    read = ask(stack, fields(one), "reader", COPYING)
    for given, kept in ((computed, 0), (read, len(one["tokens"]) // PAGE_TOKENS * PAGE_TOKENS)):
        assert_says(given, tokenizer, one["greedy"])
        assert cached(given) == kept


def test_prompts_that_only_begin_alike_say_their_own(stack: Served, tokenizer: Tokenizer) -> None:
    one, other = golden("chat"), golden("chat of several turns")
    both = zip(one["tokens"], other["tokens"], strict=False)
    alike = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], both))
    assert PAGE_TOKENS < alike < len(one["tokens"])
    for asked, kept in ((one, 0), (other, alike // PAGE_TOKENS * PAGE_TOKENS)):
        given = ask(stack, fields(asked), "reader", SEALING)
        assert_says(given, tokenizer, asked["greedy"])
        assert cached(given) == kept


@pytest.mark.usefixtures("nothing_stays_held")
def test_those_that_join_and_leave_change_no_token(stack: Served, tokenizer: Tokenizer) -> None:
    """One generates, five join it in one step, one of them leaves, and one joins after that."""
    early, late = golden("code"), golden("one token")
    joining = [golden(n) for n in ("whitespace", "contractions", "chat", "chat of several turns")]
    stack.client.point("copying", "arm", "decode.step", after=3)
    with ThreadPoolExecutor(8) as threads:
        asked = [threads.submit(ask, stack, fields(early), "acme")]
        stack.client.held("copying", "decode.step")
        asked += [threads.submit(ask, stack, fields(one), "bravo") for one in joining]
        leaving = leave_later(stack)
        wait_for("all to be in the batch", lambda: generating(stack) == 6 or None)
        stack.client.point("copying", "release", "decode.step")
        wait_for("a text to leave", lambda: leaving.reply.text or None)
        leaving.leave()
        asked.append(threads.submit(ask, stack, fields(late), "bravo"))
        answers = [one.result() for one in asked]
    for one, given in zip([early, *joining, late], answers, strict=True):
        assert_says(given, tokenizer, one["greedy"])
    ended = stack.one("request_ended", tenant=stack.records.tenant("leaver"), role="decode")
    assert ended["end"] == "cancelled"
    assert 1 <= ended["generated_tokens"] < LEAVER_TOKENS
    left, whole = leaving.result().text, expected(tokenizer, golden("unicode")["greedy"]).text
    assert left[: len(whole)] == whole[: len(left)]


def leave_later(stack: Served) -> Call:
    body = {"model": MODEL, "max_tokens": LEAVER_TOKENS, "stream": True}
    body |= fields(golden("unicode"))
    return Call(stack.url, stack.auth("leaver", COPYING), body)


def generating(stack: Served) -> int:
    count: int = stack.status_of("copying")["requests"].get("confirmed", 0)
    return count


def test_choices_that_are_not_drawn_are_the_references(stack: Served, tokenizer: Tokenizer) -> None:
    one = golden("chat of several turns")
    given = ask(stack, fields(one), "acme", n=2)
    assert [seen(choice) for choice in given["choices"]] == [expected(tokenizer, one["greedy"])] * 2
    assert figures(given) == (len(one["tokens"]), 2 * len(one["greedy"]))


def test_choices_are_drawn_as_in_one_process(
    stack: Served, tokenizer: Tokenizer, model: Model
) -> None:
    """Likelihoods are the model's own: neither temperature nor `top_p` has a part in them."""
    one, sampling = golden("chat"), Sampling(temperature=0.8, top_p=0.95, seed=3)
    draws = {"temperature": 0.8, "top_p": 0.95, "seed": 3, "max_tokens": FEW}
    given = ask(stack, fields(one), "acme", SEALING, n=2, **draws)
    tokens = np.array(one["tokens"], np.int32)
    choices = [drawn(model, tokens, FEW, sampling, number) for number in (0, 1)]
    assert choices[0] != choices[1]
    for choice, own in zip(given["choices"], choices, strict=True):
        assert seen(choice) == expected(tokenizer, [one.token for one in own])
        logprobs = [one["logprob"] for one in choice["logprobs"]["content"]]
        assert logprobs == pytest.approx([one.logprob for one in own[: len(logprobs)]], abs=1e-3)
    assert figures(given) == (len(tokens), sum(map(len, choices)))


@pytest.fixture(scope="module")
def client(stack: Served) -> Iterator[openai.OpenAI]:
    url, key = f"{stack.url}/v1", stack.keys.of["talker"]
    with openai.OpenAI(base_url=url, api_key=key, max_retries=0) as made:
        yield made


def test_the_model_is_listed_with_the_window_of_its_largest_route(client: openai.OpenAI) -> None:
    (listed,) = client.models.list().data
    assert (listed.id, listed.model_extra) == (MODEL, {"max_model_len": 160 * PAGE_TOKENS})


def test_a_conversation_streams_in_english_and_goes_on_from_its_own_pages(
    client: openai.OpenAI, tokenizer: Tokenizer
) -> None:
    turns: list[Any] = []
    kept = 0
    for question, said in (
        ("What is the capital of France?", "The capital of France is Paris."),
        ("And of Germany?", "The capital of Germany is Berlin."),
    ):
        turns.append({"role": "user", "content": question})
        prompt_tokens = len(tokenizer.encode_chat([ChatMessage(**turn) for turn in turns]))
        *pieces, last = list(
            client.chat.completions.create(
                model=MODEL, messages=turns, stream=True, stream_options={"include_usage": True}
            )
        )
        choices = [piece.choices[0] for piece in pieces]
        assert "".join(choice.delta.content or "" for choice in choices) == said
        assert len([choice for choice in choices if choice.delta.content]) > 3
        assert [c.finish_reason for c in choices if c.finish_reason] == ["stop"]
        usage = last.usage
        assert usage is not None
        assert usage.prompt_tokens_details is not None
        # The end token was generated as well.
        generated = len(tokenizer.encode(said)) + 1
        assert (usage.prompt_tokens, usage.completion_tokens) == (prompt_tokens, generated)
        assert usage.prompt_tokens_details.cached_tokens == kept
        kept = prompt_tokens // PAGE_TOKENS * PAGE_TOKENS
        turns.append({"role": "assistant", "content": said})


def test_equal_seeds_draw_equal_texts_and_others_do_not(client: openai.OpenAI) -> None:
    texts = []
    for seed in (1, 1, 2):
        given = client.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": "Name a color."}],
            temperature=1,
            seed=seed,
            max_tokens=8,
            logprobs=True,
        )
        (choice,) = given.choices
        assert choice.logprobs is not None
        tokens = choice.logprobs.content or []
        joined = b"".join(bytes(token.bytes or []) for token in tokens)
        assert joined.decode(errors="replace") == choice.message.content
        texts.append(choice.message.content)
    assert texts[0] == texts[1]
    assert texts[0] != texts[2]


@pytest.mark.usefixtures("nothing_stays_held")
def test_what_decode_computes_itself_is_the_same(stack: Served, tokenizer: Tokenizer) -> None:
    """Prefill is killed in mid-transfer. Until then no answer came of anything but a transfer."""
    assert stack.records.all("request_recomputed") == []
    one, life = golden("chat of several turns"), stack.facts["incarnations"]["prefill-0"]
    stack.client.point("prefill-0", "arm", "write.piece", after=2)
    with ThreadPoolExecutor(1) as threads:
        asked = threads.submit(ask, stack, fields(one), "acme", SEALING)
        stack.client.held("prefill-0", "write.piece")
        stack.kill("prefill-0")
        given = asked.result()
    wait_for("another prefill", lambda: stack.facts["incarnations"]["prefill-0"] != life or None)
    assert_says(given, tokenizer, one["greedy"])
    assert figures(given) == (len(one["tokens"]), len(one["greedy"]))
    recomputed = stack.one("request_recomputed", node="sealing")
    assert recomputed["tokens"] == len(one["tokens"])
    stack.client.idle()
