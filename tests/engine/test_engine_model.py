"""Models are found by name; rows that can't be computed are refused before anything is written."""

import numpy as np
import pytest

from kvairlock.engine.cache import PagedCache
from kvairlock.engine.model import Row, RowMismatch, UnknownModel, load, load_tokenizer
from kvairlock.engine.sampling import greedy

MODEL = load("recall")
LAYOUT = MODEL.layout(16)


def row(tokens: int, start: int, pages: list[int]) -> Row:
    return Row(np.full(tokens, 97, np.int32), start, np.array(pages, np.int32))


def test_unknown_model_names_the_known_ones() -> None:
    with pytest.raises(UnknownModel, match="unknown model 'llama'; known models: recall"):
        load("llama")
    with pytest.raises(UnknownModel, match="recall"):
        load_tokenizer("llama")


def test_byte_tokenizer_round_trip() -> None:
    tokenizer = load_tokenizer("recall")
    tokens = tokenizer.encode("a é")
    assert tokens.dtype == np.int32
    assert tokens.tolist() == [97, 32, 0xC3, 0xA9]
    assert tokenizer.decode(tokens) == "a é".encode()
    assert tokenizer.encode("").tolist() == []
    assert tokenizer.decode(tokens[:3]) == b"a \xc3"


def test_greedy_takes_the_largest_and_the_lowest_of_equals() -> None:
    logits = np.array([[0.0, 2.0, 1.0], [3.0, 1.0, 3.0]], np.float32)
    tokens = greedy(logits)
    assert tokens.tolist() == [1, 0]
    assert tokens.dtype == np.int32


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (row(17, 0, [0]), "17 tokens need 2 pages, got 1"),
        (row(1, 16, [0]), "17 tokens need 2 pages, got 1"),
        (row(0, 5, [0]), "0 tokens"),
        (row(1, -1, [0]), "start at -1"),
        (row(1, 0, [-1]), "leaves the cache of 4 pages"),
        (row(20, 0, [0, 4]), "leaves the cache of 4 pages"),
        (row(1, 8192, list(range(600))), "exceed the context of 8192"),
    ],
)
def test_a_row_that_cannot_be_computed_stops_the_batch_before_any_write(
    bad: Row, message: str
) -> None:
    memory = np.full((4, LAYOUT.page_bytes), 0xFF, np.uint8)
    with pytest.raises(RowMismatch, match=message):
        MODEL.forward([row(3, 0, [2]), bad], PagedCache(memory, LAYOUT))
    assert (memory == 0xFF).all()


def test_a_cache_of_another_layout_is_refused() -> None:
    other = type(LAYOUT)("recall@0", 16, LAYOUT.layers)
    cache = PagedCache(np.zeros((1, other.page_bytes), np.uint8), other)
    with pytest.raises(ValueError, match="laid out for recall@0"):
        MODEL.forward([row(1, 0, [0])], cache)


def test_an_empty_batch_has_no_logits() -> None:
    cache = PagedCache(np.zeros((1, LAYOUT.page_bytes), np.uint8), LAYOUT)
    assert MODEL.forward([], cache).shape == (0, 256)
