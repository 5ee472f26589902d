"""The Llama model computes what its definition says, however its tokens are cut and batched."""

from pathlib import Path

import numpy as np
import pytest

from kvairlock.engine.cache import PagedCache
from kvairlock.engine.llama.model import Llama
from kvairlock.engine.model import Row, RowMismatch
from kvairlock.engine.sampling import greedy
from tests.engine.generating import (
    Logits,
    Tokens,
    answer,
    answers_in_one_batch,
    go_on,
    pool,
    prefill,
)
from tests.engine.tiny_llama import F16, Q8, Reference, Tiny

TINY = Tiny()
PAGES = np.array([5, 2, 7, 0, 3, 6], np.int32)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Llama:
    return Llama(TINY.write(tmp_path_factory.mktemp("tiny") / "tiny.gguf"), "tiny")


def prompt(length: int, seed: int = 0) -> Tokens:
    return np.random.default_rng((length, seed)).integers(0, 260, length, dtype=np.int32)


@pytest.mark.parametrize(
    "tiny",
    [
        TINY,
        TINY.with_(tied=False),
        TINY.with_(kv_heads=4),
        TINY.with_(kv_heads=1),
        TINY.with_(head_width=32, layers=1),
        TINY.with_(stretch=4.0),
        TINY.with_(rope_factors=True),
        TINY.with_(kind=F16),
        TINY.with_(kind=Q8, tied=False),
    ],
    ids=["tied", "untied", "mha", "mqa", "wide heads", "linear", "llama3", "f16", "q8"],
)
def test_logits_are_those_of_the_definition(tiny: Tiny, tmp_path: Path) -> None:
    model = Llama(tiny.write(tmp_path / "tiny.gguf"), "tiny")
    tokens = prompt(40)
    expected = Reference(tiny).logits(tokens.tolist())
    cache = pool(model, 8)
    for end in (1, 2, 40):
        logits = model.forward([Row(tokens[:end], 0, PAGES)], cache)
        assert np.allclose(logits[0], expected[end - 1], atol=2e-4, rtol=0)
    assert expected[39].std() > 0.5


def test_the_greedy_answer_is_that_of_the_definition(model: Llama) -> None:
    tokens = prompt(30)
    expected = Reference(TINY).greedy(tokens.tolist(), 12)
    assert answer(model, tokens, 12) == expected
    assert len(set(expected)) > 3


@pytest.mark.parametrize("chunk", [1, 2, 7, 9, 16, 65])
def test_chunks_give_the_logits_and_pages_of_the_whole_prompt(model: Llama, chunk: int) -> None:
    tokens = prompt(80)
    whole, cut = pool(model, 8), pool(model, 8)
    expected = prefill(model, whole, tokens, PAGES, 80)
    assert np.allclose(prefill(model, cut, tokens, PAGES, chunk), expected, atol=1e-4)
    for layer in range(TINY.layers):
        for one, other in zip(
            whole.gather(layer, PAGES, 80), cut.gather(layer, PAGES, 80), strict=True
        ):
            assert np.allclose(one, other, atol=1e-4)


@pytest.mark.parametrize("rows", [2, 5, 8, 9, 20])
def test_a_decode_batch_equals_its_rows_alone(model: Llama, rows: int) -> None:
    cache = pool(model, 2 * rows)
    batch = []
    for number in range(rows):
        tokens, pages = prompt(6 + number, seed=1), np.array([number, rows + number], np.int32)
        prefill(model, cache, tokens, pages, 64)
        batch.append(Row(tokens[-1:], len(tokens) - 1, pages))
    together = model.forward(batch, cache)
    alone = np.concatenate([model.forward([row], cache) for row in batch])
    assert np.allclose(together, alone, atol=1e-4)
    assert together.argmax(axis=1).tolist() == alone.argmax(axis=1).tolist()
    assert len({int(token) for token in greedy(alone)}) > 1


def test_rows_join_and_leave_without_changing_one_another(model: Llama) -> None:
    prompts = [prompt(length, seed=2) for length in (12, 33, 50)]
    expected = [answer(model, tokens, 8) for tokens in prompts]
    assert answers_in_one_batch(model, prompts, 8, chunk=9) == expected
    assert len({tuple(tokens) for tokens in expected}) == 3


def test_a_shared_prefix_gives_what_computing_it_again_gives(model: Llama) -> None:
    shared, first, second = prompt(32), prompt(9, seed=3), prompt(14, seed=4)
    cache = pool(model, 8)
    prefill(model, cache, np.concatenate((shared, first)), np.array([0, 1, 2], np.int32), 16)
    before = [cache.keys(layer)[:3].copy() for layer in range(TINY.layers)]
    tokens, pages = np.concatenate((shared, second)), np.array([0, 1, 6, 7], np.int32)
    logits = prefill(model, cache, tokens, pages, 16, start=32)
    fresh = pool(model, 8)
    assert np.allclose(logits, prefill(model, fresh, tokens, PAGES, 64), atol=1e-4)
    assert go_on(model, cache, tokens, pages, 8) == answer(model, tokens, 8)
    assert all(
        np.array_equal(cache.keys(layer)[:3], kept, equal_nan=True)
        for layer, kept in enumerate(before)
    )


def test_nan_in_tails_and_unrelated_pages_changes_nothing(model: Llama) -> None:
    tokens = prompt(70)
    poison = pool(model, 8)
    clean = PagedCache(np.zeros((8, poison.layout.page_bytes), np.uint8), poison.layout)
    logits = [prefill(model, cache, tokens, PAGES, 32) for cache in (clean, poison)]
    assert np.isnan(poison.keys(1)[PAGES[4], 6:]).all()
    assert np.isnan(poison.values(0)[4]).all()
    assert np.isfinite(logits[1]).all()
    assert np.array_equal(logits[0], logits[1])
    assert go_on(model, poison, tokens, PAGES, 8) == go_on(model, clean, tokens, PAGES, 8)


@pytest.mark.parametrize("rows", [2, 9])
def test_a_row_that_reads_nan_leaves_the_others_as_they_are(model: Llama, rows: int) -> None:
    cache = pool(model, rows)
    batch = [Row(prompt(3, seed=n), 0, np.array([n], np.int32)) for n in range(rows)]
    expected = model.forward(batch, cache)
    cache.keys(1)[1, 0] = np.nan
    batch[1] = Row(batch[1].tokens[1:], 1, batch[1].pages)
    logits = model.forward(batch, cache)
    assert np.isnan(logits[1]).all()
    others = [0, *range(2, rows)]
    assert np.allclose(logits[others], expected[others], atol=1e-4)


def test_another_page_in_the_table_changes_the_logits(model: Llama) -> None:
    cache = pool(model, 8)
    tokens, other = prompt(40), prompt(40, seed=5)
    own = prefill(model, cache, tokens, PAGES, 40)
    prefill(model, cache, other, np.array([1, 4, 3], np.int32), 40)
    mixed = np.array([1, 2, 7], np.int32)
    logits: Logits = model.forward([Row(tokens[-1:], 39, mixed)], cache)[0]
    assert np.abs(logits - own).max() > 0.01


@pytest.mark.parametrize("token", [-1, len(TINY.tokens)])
def test_tokens_outside_the_vocabulary_stop_the_batch_before_any_write(
    model: Llama, token: int
) -> None:
    cache = pool(model, 8)
    rows = [Row(prompt(3), 0, PAGES), Row(np.array([4, token], np.int32), 0, PAGES[1:])]
    with pytest.raises(RowMismatch, match="not in the vocabulary of 266"):
        model.forward(rows, cache)
    assert np.isnan(cache.keys(0)).all()


def test_positions_behind_its_context_are_refused(model: Llama) -> None:
    with pytest.raises(RowMismatch, match="97 tokens exceed the context of 96"):
        model.forward([Row(prompt(1), 96, np.arange(7, dtype=np.int32))], pool(model, 8))


def test_a_cache_of_another_model_is_refused(
    model: Llama, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = TINY.with_(seed=1).write(tmp_path_factory.mktemp("other") / "tiny.gguf")
    other = Llama(path, "tiny")
    assert other.layout(16).digest != model.layout(16).digest
    with pytest.raises(ValueError, match="laid out for tiny@"):
        model.forward([Row(prompt(1), 0, PAGES)], pool(other, 8))


def test_an_empty_batch_has_no_logits(model: Llama) -> None:
    assert model.forward([], pool(model, 1)).shape == (0, 266)
