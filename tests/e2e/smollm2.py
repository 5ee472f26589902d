"""SmolLM2 over two nodes: the stack, what is asked of it, and what a client has to see then."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kvairlock.core.messages import Sampling
from kvairlock.engine.model import Model, Row
from kvairlock.engine.sampling import Likelihood, draw, likelihoods
from kvairlock.engine.tokenizer import Tokenizer
from tests.engine.generating import PAGE_TOKENS, Tokens, pool, prefill

from .served import Json, Served

COPYING, SEALING = "prefill-0/copying", "prefill-0/sealing"
MODEL = "smollm2"
SETTINGS = f"""
model = "{MODEL}"
page_tokens = {PAGE_TOKENS}

[[prefill]]
name = "prefill-0"
pages = 160
# Chunks begin and end inside pages.
chunk_tokens = 40

[[decode]]
name = "copying"
pages = 160
tenant_share = 1.0

[[decode]]
name = "sealing"
pages = 64
landing = "seal"
tenant_share = 1.0
recompute_tokens_per_min = 10000

[limits]
beat_ms = 100

[drill]
enabled = true
"""

GOLDEN: list[Json] = json.loads(
    (Path(__file__).parents[1] / "engine/golden/smollm2.json").read_text()
)["answers"]
"""Prompts, and how llama.cpp goes on; margins are far over what rounding makes of logits."""

GOLDEN_TOKENS = 32


def golden(name: str) -> Json:
    """The golden answer of one name."""
    return next(answer for answer in GOLDEN if answer["name"] == name)


@dataclass(frozen=True)
class Said:
    """One choice as a client sees it, token by token.

    Args:
        pieces: The text of each token that has one; control tokens have none.
        text: All of it.
        finish: Why it ended.
    """

    pieces: tuple[str, ...]
    text: str
    finish: str


def expected(tokenizer: Tokenizer, tokens: Sequence[int]) -> Said:
    """What a client has to see of tokens that were generated until a limit or an end token."""
    ended = tokens[-1] in tokenizer.end_tokens
    shown = np.array(tokens[:-1] if ended else tokens, np.int32)
    pieces = [tokenizer.decode(token) for token in shown.reshape(-1, 1)]
    return Said(
        tuple(piece.decode(errors="replace") for piece in pieces if piece),
        b"".join(pieces).decode(errors="replace"),
        "stop" if ended else "length",
    )


def seen(choice: Json) -> Said:
    """What a client sees of a choice, of either endpoint."""
    likely = choice["logprobs"]
    if "message" not in choice:
        return Said(tuple(likely["tokens"]), choice["text"], choice["finish_reason"])
    pieces = tuple(one["token"] for one in likely["content"])
    return Said(pieces, choice["message"]["content"], choice["finish_reason"])


def fields(answer: Json) -> Json:
    """The prompt of a golden answer as the field of a request."""
    name = "messages" if "messages" in answer else "prompt"
    return {name: answer[name]}


def ask(stack: Served, prompt: Json, tenant: str, route: str = COPYING, **more: object) -> Json:
    """Ask for an answer with the likelihoods of its tokens, and wait for it.

    Args:
        stack: The stack.
        prompt: `messages` for a chat, or `prompt`.
        tenant: Who asks.
        route: Which two nodes answer.
        more: Other fields of the request.
    """
    chat = "messages" in prompt
    path = "/v1/chat/completions" if chat else "/v1/completions"
    likely: Json = {"logprobs": True, "top_logprobs": 5} if chat else {"logprobs": 0}
    body = {"model": MODEL, "max_tokens": GOLDEN_TOKENS, **likely, **prompt, **more}
    response = stack.http.post(path, headers=stack.auth(tenant, route), json=body)
    assert response.status_code == 200, response.text
    answer: Json = response.json()
    return answer


def cached(answer: Json) -> int:
    """How many tokens of the prompt were read from pages that its tenant had kept."""
    tokens: int = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
    return tokens


def drawn(
    model: Model, tokens: Tokens, count: int, sampling: Sampling, choice: int
) -> list[Likelihood]:
    """Draw the tokens behind a prompt in this process, alone, up to an end token."""
    cache = pool(model, model.layout(PAGE_TOKENS).pages_for(len(tokens) + count))
    pages = np.arange(cache.pages, dtype=np.int32)
    logits = prefill(model, cache, tokens, pages, chunk=256)
    out: list[Likelihood] = []
    while True:
        (token,) = draw(logits[None], [sampling], [choice], [len(out)]).tolist()
        out.append(likelihoods(logits, token, 0)[0])
        if len(out) == count or token in model.tokenizer.end_tokens:
            return out
        position = len(tokens) + len(out) - 1
        (logits,) = model.forward([Row(np.array([token], np.int32), position, pages)], cache)
