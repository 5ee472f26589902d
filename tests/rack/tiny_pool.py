"""The smallest pool memory that keeps its promises: an array."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kvairlock.core.terms import Pages
from kvairlock.runtime.ports import PagesInvalid


class ArrayPool:
    """Memory of `pages` pages of `page_bytes` bytes."""

    def __init__(self, pages: int, page_bytes: int) -> None:
        self.page_bytes = page_bytes
        self.array: NDArray[np.uint8] = np.zeros((pages, page_bytes), dtype=np.uint8)

    def scrub(self, pages: Pages) -> None:
        """Zero pages that are some, each of this pool and named once."""
        inside = (
            pages.ndim == 1 and pages.size and 0 <= pages.min() <= pages.max() < len(self.array)
        )
        if not inside or np.unique(pages).size != pages.size:
            raise PagesInvalid(f"no pages of this pool: {pages}")
        self.array[pages] = 0
