"""One row of a batch: the new tokens of one request, and where its cache is.

A chunk of prefill is a row with many tokens; a decode step is a row with one. Both take the same
path, so a page that prefill wrote and a page that decode wrote can't differ in kind.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kvairlock.engine.cache import PagedCache


class RowMismatch(ValueError):
    """A row asks for positions that its page table, the cache or the model does not have."""


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """The next tokens of one request.

    Args:
        tokens: new token ids, int32, at least one.
        start: position of the first of them; the cache already holds positions 0..start-1.
        pages: page table of the request, int32, long enough for `start + len(tokens)` positions.
    """

    tokens: NDArray[np.int32]
    start: int
    pages: NDArray[np.int32]

    @property
    def end(self) -> int:
        """The position behind the last new token: how many tokens attention may read."""
        return self.start + len(self.tokens)


def require_rows(
    rows: Sequence[Row], cache: PagedCache, context_tokens_max: int, vocab_size: int
) -> None:
    """Refuse a batch before any of its rows is computed.

    Args:
        rows: the batch.
        cache: the memory that its page tables point into.
        context_tokens_max: positions that the model knows, in tokens.
        vocab_size: how many token ids it knows.

    Raises:
        RowMismatch: when a row has no tokens, starts below 0, passes the context of the model, has
            too short a page table, or names a token or a page that is not there.
    """
    for row in rows:
        if len(row.tokens) == 0 or row.start < 0:
            raise RowMismatch(f"a row of {len(row.tokens)} tokens can't start at {row.start}")
        if row.end > context_tokens_max:
            raise RowMismatch(f"{row.end} tokens exceed the context of {context_tokens_max}")
        if row.tokens.min() < 0 or row.tokens.max() >= vocab_size:
            raise RowMismatch(f"a token is not in the vocabulary of {vocab_size}")
        needed = cache.layout.pages_for(row.end)
        if len(row.pages) < needed:
            raise RowMismatch(f"{row.end} tokens need {needed} pages, got {len(row.pages)}")
        if row.pages.min() < 0 or row.pages.max() >= cache.pages:
            raise RowMismatch(f"the page table leaves the cache of {cache.pages} pages")
