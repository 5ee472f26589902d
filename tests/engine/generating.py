"""Greedy answers in one process, through a paged cache whose memory is NaN wherever none wrote."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kvairlock.engine.cache import PagedCache
from kvairlock.engine.model import Model, Row
from kvairlock.engine.sampling import greedy

PAGE_TOKENS = 16

Tokens = NDArray[np.int32]
Logits = NDArray[np.float32]


def pool(model: Model, pages: int, page_tokens: int = PAGE_TOKENS) -> PagedCache:
    """A cache whose every element is NaN."""
    layout = model.layout(page_tokens)
    return PagedCache(np.full((pages, layout.page_bytes), 0xFF, dtype=np.uint8), layout)


def prefill(
    model: Model, cache: PagedCache, tokens: Tokens, pages: Tokens, chunk: int, start: int = 0
) -> Logits:
    """Compute tokens from a position on, in chunks; return the last one's logits."""
    for low in range(start, len(tokens), chunk):
        logits = model.forward([Row(tokens[low : low + chunk], low, pages)], cache)
    last: Logits = logits[0]
    return last


def go_on(model: Model, cache: PagedCache, tokens: Tokens, pages: Tokens, count: int) -> list[int]:
    """Run the last prompt token again, as a decode node does first, and generate."""
    out = [int(tokens[-1])]
    for position in range(len(tokens) - 1, len(tokens) - 1 + count):
        row = Row(np.array(out[-1:], np.int32), position, pages)
        out.append(int(greedy(model.forward([row], cache))[0]))
    return out[1:]


def answer(model: Model, tokens: Tokens, count: int, chunk: int = 256) -> list[int]:
    """The likeliest next tokens after a prompt, alone in a pool of its own."""
    cache = pool(model, model.layout(PAGE_TOKENS).pages_for(len(tokens) + count))
    pages = np.arange(cache.pages, dtype=np.int32)[::-1].copy()
    prefill(model, cache, tokens, pages, chunk)
    return go_on(model, cache, tokens, pages, count)


def answers_in_one_batch(
    model: Model, prompts: list[Tokens], count: int, chunk: int
) -> list[list[int]]:
    """As `answer` for each prompt, with requests that join three steps apart and leave when done.

    Prefill chunks and decode steps of different requests are in the same batch.
    """
    pages_each = max(model.layout(PAGE_TOKENS).pages_for(len(p) + count) for p in prompts)
    cache = pool(model, pages_each * len(prompts))
    tables = np.arange(cache.pages, dtype=np.int32).reshape(pages_each, -1).T
    written = [tokens.tolist() for tokens in prompts]
    computed = [0] * len(prompts)
    step = 0
    while open_ := [n for n, p in enumerate(prompts) if len(written[n]) < len(p) + count]:
        active = [n for n in open_ if step >= 3 * n]
        rows = [
            Row(np.array(written[n][computed[n] :][:chunk], np.int32), computed[n], tables[n])
            for n in active
        ]
        for n, row, token in zip(active, rows, greedy(model.forward(rows, cache)), strict=True):
            computed[n] = row.end
            if row.end == len(written[n]):
                written[n].append(int(token))
        step += 1
    return [tokens[-count:] for tokens in written]
