"""The cache finds tokens through page tables, works in place, and reads only up to the length."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from kvairlock.engine.cache import PagedCache
from kvairlock.engine.layout import LayerWidths, Layout

LAYOUT = Layout("m@1", 4, (LayerWidths(3, 2), LayerWidths(5, 7)))
USED_BYTES = 4 * 4 * (3 + 2 + 5 + 7)


def poisoned(pages: int) -> tuple[PagedCache, NDArray[np.uint8]]:
    """A cache whose every element is NaN, and its memory."""
    memory = np.full((pages, LAYOUT.page_bytes), 0xFF, dtype=np.uint8)
    return PagedCache(memory, LAYOUT), memory


def numbered(tokens: int, width: int, base: int) -> NDArray[np.float32]:
    return np.arange(base, base + tokens * width, dtype=np.float32).reshape(tokens, width)


def test_views_share_the_memory_and_lie_where_the_layout_says() -> None:
    cache, memory = poisoned(3)
    cache.values(1)[2, 3, 6] = 42.0
    assert cache.keys(0).shape == (3, 4, 3)
    assert cache.values(1).shape == (3, 4, 7)
    assert np.shares_memory(cache.keys(0), memory)
    assert memory[2, USED_BYTES - 4 : USED_BYTES].tobytes() == np.float32(42.0).tobytes()
    assert np.isnan(cache.keys(0)).all()


def test_tokens_are_stored_at_the_page_and_slot_of_their_position() -> None:
    cache, _ = poisoned(8)
    k, v = numbered(3, 3, 0), numbered(3, 2, 100)
    cache.write(0, np.array([6, 1], np.int32), 3, k, v)
    assert cache.keys(0)[6, 3].tolist() == [0, 1, 2]
    assert cache.keys(0)[1, :2].tolist() == [[3, 4, 5], [6, 7, 8]]
    assert cache.values(0)[1, 1].tolist() == [104, 105]
    assert np.isfinite(cache.keys(0)).sum() == 9
    assert np.isnan(cache.keys(1)).all()


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.permutations(range(8)), st.integers(0, 32), st.data())
def test_what_was_written_in_pieces_is_gathered_in_order(
    order: list[int], tokens: int, data: st.DataObject
) -> None:
    cut = data.draw(st.integers(0, tokens))
    table = np.array(order, np.int32)
    cache, _ = poisoned(8)
    k, v = numbered(tokens, 5, 0), numbered(tokens, 7, 1000)
    cache.write(1, table, 0, k[:cut], v[:cut])
    cache.write(1, table, cut, k[cut:], v[cut:])
    keys, values = cache.gather(1, table, tokens)
    assert np.array_equal(keys, k)
    assert np.array_equal(values, v)
    assert keys.flags.c_contiguous
    assert values.flags.c_contiguous


def test_gather_leaves_out_the_tail_of_the_last_page() -> None:
    cache, _ = poisoned(3)
    table = np.array([2, 0], np.int32)
    cache.write(0, table, 0, numbered(6, 3, 0), numbered(6, 2, 0))
    keys, values = cache.gather(0, table, 6)
    assert keys.shape == (6, 3)
    assert np.isfinite(keys).all()
    assert np.isfinite(values).all()
    assert np.isnan(cache.keys(0)[0, 2:]).all()


def test_gather_refuses_a_short_page_table() -> None:
    cache, _ = poisoned(3)
    with pytest.raises(ValueError, match="9 tokens need 3 pages, the table has 2"):
        cache.gather(0, np.array([0, 1], np.int32), 9)


@pytest.mark.parametrize("used", [0, 1, 3, 4])
def test_zero_tail_zeroes_every_unused_byte_of_one_page(used: int) -> None:
    cache, memory = poisoned(3)
    cache.zero_tail(1, used)
    for layer in range(2):
        for slots in (cache.keys(layer), cache.values(layer)):
            assert np.isnan(slots[1, :used]).all()
            assert (slots[1, used:] == 0).all()
    assert not memory[1, USED_BYTES:].any()
    assert np.count_nonzero(memory[1]) == USED_BYTES * used // 4
    assert (memory[[0, 2]] == 0xFF).all()


@pytest.mark.parametrize("used", [-1, 5])
def test_zero_tail_refuses_slots_that_a_page_has_not(used: int) -> None:
    with pytest.raises(ValueError, match="4 slots"):
        poisoned(1)[0].zero_tail(0, used)


def test_copy_page_copies_all_bytes_and_keeps_them_apart() -> None:
    cache, memory = poisoned(3)
    memory[0] = np.arange(LAYOUT.page_bytes) % 251
    cache.copy_pages(np.array([0], dtype=np.int32), np.array([2], dtype=np.int32))
    assert np.array_equal(memory[2], memory[0])
    assert (memory[1] == 0xFF).all()
    cache.keys(0)[0] = 0.0
    assert memory[2, 1] == 1


@pytest.mark.parametrize(
    "memory",
    [
        np.zeros((2, LAYOUT.page_bytes - 4096 + 4), np.uint8),
        np.zeros((2, LAYOUT.page_bytes), np.int8),
        np.zeros(LAYOUT.page_bytes, np.uint8),
        np.zeros((4, LAYOUT.page_bytes), np.uint8)[::2],
    ],
)
def test_memory_of_another_form_is_refused(memory: NDArray[np.uint8]) -> None:
    with pytest.raises(ValueError, match="memory must be"):
        PagedCache(memory, LAYOUT)
