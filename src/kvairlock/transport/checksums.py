"""Digests of page bytes, seeded per transfer.

They find bytes that changed on the way; they prove no ownership. The seed is secret to the two
nodes of one transfer, so that equal pages of two tenants do not show as equal digests.
"""

from __future__ import annotations

import numpy as np
import xxhash
from numpy.typing import NDArray

from kvairlock.core.errors import Misuse
from kvairlock.core.terms import Pages


def page_digests(array: NDArray[np.uint8], pages: Pages, seed: int) -> tuple[int, ...]:
    """Return one 64-bit xxh3 digest per page, in the order of `pages`.

    Args:
        array: The pool's bytes, shape (pages, page_bytes), contiguous rows.
        pages: Pool pages, shape (n,).
        seed: 0 <= seed < 2**64.

    Raises:
        Misuse: The seed is longer; xxhash would cut it in silence.
    """
    if not 0 <= seed < 1 << 64:
        raise Misuse(f"a seed has 64 bits: {seed}")
    return tuple(xxhash.xxh3_64_intdigest(array[page], seed=seed) for page in pages)
