"""The canary model says what the pages hold: a foreign canary when the pages are foreign.

Every pool here starts as NaN in every byte, so reading anything that was not written would show.
"""

import numpy as np
import pytest
from numpy.typing import NDArray

from kvairlock.engine.cache import PagedCache
from kvairlock.engine.model import Row, load
from kvairlock.engine.sampling import greedy

SEED = 20261001
PAGE_TOKENS = 16
MODEL = load("recall")
LAYOUT = MODEL.layout(PAGE_TOKENS)
CANARY_A, CANARY_B = "a3f09c5e7718d2b4", "07be41d86c2f9a35"

Tokens = NDArray[np.int32]


def pool(pages: int = 160) -> tuple[PagedCache, NDArray[np.uint8]]:
    memory = np.full((pages, LAYOUT.page_bytes), 0xFF, dtype=np.uint8)
    return PagedCache(memory, LAYOUT), memory


def table(first: int, tokens: int) -> Tokens:
    """Pages in one run, for this many tokens."""
    return np.arange(first, first + LAYOUT.pages_for(tokens), dtype=np.int32)


def prompt(canary: str, length: int, at: int, seed: int) -> Tokens:
    """Random words with ` SECRET:<canary>. ` at a position, and the question at the end."""
    letters = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz ", np.uint8)
    filler = np.random.default_rng((SEED, seed)).choice(letters, length).astype(np.int32)
    secret = MODEL.tokenizer.encode(f" SECRET:{canary}. ")
    filler[at : at + len(secret)] = secret
    filler[-8:] = MODEL.tokenizer.encode(" SECRET:")
    return filler


def prefill(cache: PagedCache, tokens: Tokens, pages: Tokens, chunk: int) -> NDArray[np.float32]:
    for start in range(0, len(tokens), chunk):
        logits = MODEL.forward([Row(tokens[start : start + chunk], start, pages)], cache)
    last: NDArray[np.float32] = logits[0]
    return last


def go_on(cache: PagedCache, last: int, position: int, pages: Tokens, count: int = 16) -> str:
    """Run the token at a position again, as a decode node does first, and generate."""
    out = [last]
    for step in range(count):
        row = Row(np.array(out[-1:], np.int32), position + step, pages)
        out.append(int(greedy(MODEL.forward([row], cache))[0]))
    return MODEL.tokenizer.decode(np.array(out[1:], np.int32)).decode("latin-1")


def answer(cache: PagedCache, tokens: Tokens, pages: Tokens, chunk: int = 256) -> str:
    prefill(cache, tokens, pages, chunk)
    return go_on(cache, int(tokens[-1]), len(tokens) - 1, pages)


@pytest.mark.parametrize("length", [60, 200, 1000, 4000, 8000, MODEL.context_tokens_max - 16])
def test_a_canary_is_recalled_up_to_the_advertised_context(length: int) -> None:
    cache, _ = pool(LAYOUT.pages_for(length + 16))
    tokens = prompt(CANARY_A, length, length // 3, length)
    assert answer(cache, tokens, table(0, length + 16)) == CANARY_A


def test_stale_pages_leak_the_canary_of_the_request_that_left_them() -> None:
    cache, _ = pool()
    pages = table(0, 916)
    prefill(cache, prompt(CANARY_A, 900, 301, seed=1), pages, 64)
    request = prompt(CANARY_B, 900, 417, seed=2)
    assert go_on(cache, int(request[-1]), 899, pages) == CANARY_A


def test_pages_prefilled_for_the_request_hold_its_own_canary() -> None:
    cache, _ = pool()
    pages = table(0, 916)
    prefill(cache, prompt(CANARY_A, 900, 301, seed=1), pages, 64)
    request = prompt(CANARY_B, 900, 417, seed=2)
    prefill(cache, request, pages, 64)
    assert go_on(cache, int(request[-1]), 899, pages) == CANARY_B


def test_one_foreign_page_with_the_same_positions_shows_its_canary() -> None:
    cache, _ = pool()
    own, foreign = table(0, 916), table(80, 916)
    request = prompt(CANARY_B, 900, 20 * PAGE_TOKENS - 8, seed=2)
    prefill(cache, prompt(CANARY_A, 900, 20 * PAGE_TOKENS - 8, seed=1), foreign, 256)
    assert answer(cache, request, own) == CANARY_B
    cache.copy_pages(foreign[20:21], own[20:21])
    assert go_on(cache, int(request[-1]), 899, own) == CANARY_A


def test_tokens_are_looked_up_by_the_positions_that_the_pages_hold() -> None:
    cache, _ = pool()
    pages = table(0, 916)
    request = prompt(CANARY_B, 900, 20 * PAGE_TOKENS - 8, seed=2)
    prefill(cache, request, pages, 256)
    swapped, replaced = pages.copy(), pages.copy()
    swapped[[20, 55]] = pages[[55, 20]]
    replaced[55] = pages[20]
    previous = []
    for attended in (pages, swapped, replaced):
        MODEL.forward([Row(request[-1:], 899, attended)], cache)
        previous.append(cache.keys(1)[pages[56], 3].reshape(8, 64).copy())
    assert np.array_equal(previous[1], previous[0])
    same = (previous[2] == previous[0]).all(axis=1)
    assert same.tolist() == [True, True, True, False, False, False, False, False]
    assert go_on(cache, int(request[-1]), 899, swapped) == CANARY_B


@pytest.mark.parametrize("chunk", [7, 64])
def test_chunks_fill_the_pages_as_the_whole_prompt_does(chunk: int) -> None:
    tokens = prompt(CANARY_A, 900, 301, seed=1)
    pages = table(0, 900)
    (whole, whole_memory), (cut, cut_memory) = pool(), pool()
    whole_logits = prefill(whole, tokens, pages, len(tokens))
    cut_logits = prefill(cut, tokens, pages, chunk)
    assert np.allclose(cut_logits, whole_logits, atol=1e-5)
    assert cut_logits.argmax() == whole_logits.argmax() == ord(CANARY_A[0])
    for layer in range(2):
        for part in (0, 1):
            expected = whole.gather(layer, pages, 900)[part]
            assert np.allclose(cut.gather(layer, pages, 900)[part], expected, atol=1e-5)
    assert np.array_equal(cut_memory, whole_memory)


def test_the_order_of_pages_does_not_matter() -> None:
    tokens = prompt(CANARY_A, 900, 301, seed=1)
    (one, _), (other, _) = pool(), pool()
    scattered = np.random.default_rng(SEED).permutation(160).astype(np.int32)
    straight_logits = prefill(one, tokens, table(0, 900), 256)
    scattered_logits = prefill(other, tokens, scattered, 256)
    assert np.array_equal(scattered_logits, straight_logits)
    assert go_on(other, int(tokens[-1]), 899, scattered) == CANARY_A


def test_nan_in_tails_and_unrelated_pages_changes_nothing() -> None:
    tokens = prompt(CANARY_A, 900, 301, seed=1)
    clean, poison = np.zeros((160, LAYOUT.page_bytes), np.uint8), pool()[1]
    logits = [
        prefill(PagedCache(memory, LAYOUT), tokens, table(0, 900), 64) for memory in (clean, poison)
    ]
    cache = PagedCache(poison, LAYOUT)
    assert np.isnan(cache.keys(1)[56, 900 % PAGE_TOKENS :]).all()
    assert np.isfinite(logits[1]).all()
    assert np.array_equal(logits[0], logits[1])


def test_rows_join_and_leave_without_changing_one_another() -> None:
    lengths = (40, 333, 150)
    canaries = (CANARY_A, CANARY_B, CANARY_A[::-1])
    prompts = [prompt(c, n, 5, seed=n) for c, n in zip(canaries, lengths, strict=True)]
    tables = [table(50 * number, n + 16) for number, n in enumerate(lengths)]
    expected = [
        answer(pool()[0], tokens, pages) for tokens, pages in zip(prompts, tables, strict=True)
    ]
    assert expected == list(canaries)
    cache, _ = pool()
    written = [tokens.tolist() for tokens in prompts]
    computed = [0, 0, 0]
    for step in range(60):
        active = [n for n in range(3) if step >= 10 * n and len(written[n]) < lengths[n] + 16]
        rows = [_next_row(written[n], computed[n], tables[n]) for n in active]
        for n, row, token in zip(active, rows, greedy(MODEL.forward(rows, cache)), strict=True):
            computed[n] = row.end
            if row.end == len(written[n]):
                written[n].append(int(token))
        if not any(len(written[n]) < lengths[n] + 16 for n in range(3)):
            break
    got = [bytes(tokens[-16:]).decode("latin-1") for tokens in written]
    assert got == expected


def _next_row(tokens: list[int], computed: int, pages: Tokens) -> Row:
    """The next chunk of at most 48 tokens."""
    return Row(np.array(tokens[computed : computed + 48], np.int32), computed, pages)


def test_a_decode_batch_equals_its_rows_alone() -> None:
    cache, memory = pool(400)
    rows = []
    for number, length in enumerate((17, 64, 300, 301, 900)):
        pages = table(70 * number, length)
        tokens = prompt(CANARY_A[number:] + CANARY_A[:number], max(length, 60), 9, number)[-length:]
        prefill(cache, tokens, pages, 256)
        rows.append(Row(tokens[-1:], length - 1, pages))
    before = memory.copy()
    batch = MODEL.forward(rows, cache)
    alone = np.concatenate([MODEL.forward([row], cache) for row in rows])
    assert np.array_equal(batch, alone)
    assert len(set(greedy(batch).tolist())) > 1
    assert np.array_equal(memory, before)


def test_rows_share_full_prompt_pages_and_part_at_the_last() -> None:
    cache, memory = pool()
    tokens = prompt(CANARY_A, 900, 301, seed=1)
    first = table(0, 932)
    prefill(cache, tokens, first, 256)
    second = np.concatenate((first[:56], np.array([100, 101, 102], np.int32)))
    cache.copy_pages(first[56:57], np.array([100], dtype=np.int32))
    shared = memory[:56].copy()
    heads = MODEL.tokenizer.encode("xy")
    outs: list[list[int]] = [[int(heads[0])], [int(heads[1])]]
    for step in range(20):
        rows = [
            Row(np.array(out[-1:], np.int32), 900 + step, pages)
            for out, pages in zip(outs, (first, second), strict=True)
        ]
        for out, token in zip(outs, greedy(MODEL.forward(rows, cache)), strict=True):
            out.append(int(token))
    assert np.array_equal(memory[:56], shared)
    for head, out in zip(heads, outs, strict=True):
        alone, _ = pool()
        prefill(alone, tokens, first, 256)
        text = go_on(alone, int(head), 900, first, count=20)
        assert bytes(out[1:]).decode("latin-1") == text
    assert outs[0] != outs[1]


def test_without_any_match_the_output_is_the_same_every_time() -> None:
    tokens = np.arange(32, 127, dtype=np.int32)
    outputs = {answer(pool()[0], tokens, table(0, 111), chunk) for chunk in (5, 64, 95)}
    assert len(outputs) == 1


def test_of_two_equal_answers_the_lower_token_wins_for_any_chunk() -> None:
    tokens = MODEL.tokenizer.encode("-- CODEWORD:9 and -- CODEWORD:3 and -- CODEWORD:")
    logits = [prefill(pool()[0], tokens, table(0, 64), chunk) for chunk in (3, 16, 64)]
    assert [each.argmax() for each in logits] == [ord("3")] * 3
    assert [each[ord("3")] for each in logits] == [each[ord("9")] for each in logits]


def test_token_codes_meet_at_one_eighth_at_most() -> None:
    cache, _ = pool(16)
    tokens = np.arange(256, dtype=np.int32)
    prefill(cache, tokens, table(0, 256), 256)
    codes = cache.gather(0, table(0, 256), 256)[1]
    products = codes @ codes.T
    assert (np.diag(products) == 1.0).all()
    assert np.abs(products - np.eye(256)).max() == 0.125


def test_position_codes_stay_apart_over_the_whole_context() -> None:
    length = MODEL.context_tokens_max
    cache, _ = pool(LAYOUT.pages_for(length))
    prefill(cache, np.full(length, 97, np.int32), table(0, length), 2048)
    positions = cache.gather(0, table(0, length), length)[0]
    assert (positions @ positions[0])[1:].max() < 0.44
