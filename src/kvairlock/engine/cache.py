"""The paged KV cache: tokens are stored and found through a page table, wherever the pages lie.

The cache owns no memory. It lays float32 views over memory that its node gives it (a pool, or a
window that was landed), so what lands in a page is what attention reads. A *page table* is an array
of page numbers: position p is in slot `p % page_tokens` of page `table[p // page_tokens]`.

Reading is cut to the confirmed length before anything is computed: slots behind it may hold any
bytes, NaN included, and 0 * NaN is NaN, so a mask applied after a product would be too late.
"""

import numpy as np
from numpy.typing import NDArray

from kvairlock.engine.layout import Layout

Floats = NDArray[np.float32]
PageTable = NDArray[np.int32]


class PagedCache:
    """Keys and values of all layers, in pages.

    Args:
        memory: uint8 of shape (pages, page_bytes), C-contiguous; it is used in place, and kept.
        layout: how each page is divided.

    Raises:
        ValueError: when the memory does not have that shape, type or order.
    """

    def __init__(self, memory: NDArray[np.uint8], layout: Layout) -> None:
        _require_pages(memory, layout)
        self.layout = layout
        self.pages = len(memory)
        self._page_tokens = layout.page_tokens
        self._elements: Floats = memory.view(np.float32)
        self._keys: list[Floats] = []
        self._values: list[Floats] = []
        self._spans = tuple(layout.spans())
        for span in self._spans:
            self._keys.append(self._slots(span.key_start, span.value_start))
            self._values.append(self._slots(span.value_start, span.end))

    def _slots(self, start: int, end: int) -> Floats:
        """A view of shape (pages, page_tokens, width) over the elements start..end of each page."""
        return self._elements[:, start:end].reshape(self.pages, self._page_tokens, -1)

    def keys(self, layer: int) -> Floats:
        """The keys of one layer in all pages, in place: (pages, page_tokens, key)."""
        return self._keys[layer]

    def values(self, layer: int) -> Floats:
        """The values of one layer in all pages, in place: (pages, page_tokens, value)."""
        return self._values[layer]

    def write(self, layer: int, pages: PageTable, start: int, k: Floats, v: Floats) -> None:
        """Store the keys and values of consecutive tokens.

        Args:
            layer: number of the layer.
            pages: page table; must reach position `start + len(k) - 1`.
            start: position of the first token.
            k: keys, (tokens, key).
            v: values, (tokens, value).

        Raises:
            IndexError: when the page table is too short or names a page that is not there.
        """
        positions = np.arange(start, start + len(k))
        page = pages[positions // self._page_tokens]
        slot = positions % self._page_tokens
        self._keys[layer][page, slot] = k
        self._values[layer][page, slot] = v

    def gather(self, layer: int, pages: PageTable, length: int) -> tuple[Floats, Floats]:
        """Copy out what positions 0..length-1 hold, and nothing behind them.

        Args:
            layer: number of the layer.
            pages: page table; must cover `length` positions.
            length: how many positions to read, in tokens.

        Returns:
            Keys (length, key) and values (length, value), contiguous.

        Raises:
            ValueError: when the page table is too short.
            IndexError: when it names a page that is not there.
        """
        needed = self.layout.pages_for(length)
        if len(pages) < needed:
            raise ValueError(f"{length} tokens need {needed} pages, the table has {len(pages)}")
        table = pages[:needed]
        return (
            _in_order(self._keys[layer], table)[:length],
            _in_order(self._values[layer], table)[:length],
        )

    def zero_tail(self, page: int, used_tokens: int) -> None:
        """Zero all of a page that its first `used_tokens` slots do not use: slots and padding.

        Raises:
            ValueError: when `used_tokens` is negative or more than a page holds.
        """
        if not 0 <= used_tokens <= self._page_tokens:
            raise ValueError(f"a page has {self._page_tokens} slots, got {used_tokens} as used")
        for keys, values in zip(self._keys, self._values, strict=True):
            keys[page, used_tokens:] = 0.0
            values[page, used_tokens:] = 0.0
        self._elements[page, self._spans[-1].end :] = 0.0

    def copy_pages(self, source: PageTable, target: PageTable) -> None:
        """Copy all bytes of some pages over as many others, shape (pages,) both."""
        self._elements[target] = self._elements[source]


def _in_order(slots: Floats, table: PageTable) -> Floats:
    """The slots of the pages in the table, one after the other: (tokens, width), a copy."""
    return slots[table].reshape(-1, slots.shape[2])


def _require_pages(memory: NDArray[np.uint8], layout: Layout) -> None:
    if memory.dtype != np.uint8 or memory.ndim != 2 or memory.shape[1] != layout.page_bytes:
        raise ValueError(
            f"memory must be uint8 of shape (pages, {layout.page_bytes}), "
            f"got {memory.dtype} of shape {memory.shape}"
        )
    if not memory.flags.c_contiguous:
        raise ValueError("memory must be C-contiguous: a page is one run of bytes")
