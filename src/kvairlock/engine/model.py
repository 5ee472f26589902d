"""What a model is for the nodes, and the models that can be loaded by name.

A node knows a model only through `Model`: it asks for the layout of its pages and calls `forward`
with rows. Which weights are behind it changes nothing for pool, hand-over or verdict. Loading a
tokenizer is separate and cheap, because a gateway counts tokens but computes nothing.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from kvairlock.engine.cache import PagedCache
from kvairlock.engine.layout import Layout
from kvairlock.engine.recall import Recall
from kvairlock.engine.rows import Row, RowMismatch
from kvairlock.engine.tokenizer import ByteTokenizer, Tokenizer

__all__ = ["Model", "Row", "RowMismatch", "Tokenizer", "UnknownModel", "load", "load_tokenizer"]


class Model(Protocol):
    """A causal language model that reads and writes a paged cache."""

    @property
    def name(self) -> str:
        """The name that it is loaded by."""

    @property
    def revision(self) -> str:
        """Changes whenever the weights or their arithmetic change."""

    @property
    def vocab_size(self) -> int:
        """How many token ids there are."""

    @property
    def context_tokens_max(self) -> int:
        """How many positions it was verified for, prompt and output together, in tokens."""

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer that belongs to its vocabulary."""

    def layout(self, page_tokens: int) -> Layout:
        """The layout of its pages.

        Raises:
            ValueError: when `page_tokens` is below 1.
        """

    def forward(self, rows: Sequence[Row], cache: PagedCache) -> NDArray[np.float32]:
        """Compute the new tokens of each row and store their keys and values.

        A token attends to positions 0..itself of its own row, read through the row's page table.
        Rows do not see each other; they may share pages that none of them writes.

        Args:
            rows: chunks of prefill and decode steps, in any mixture.
            cache: the memory that the page tables point into.

        Returns:
            The logits of the last token of each row: (len(rows), vocab_size).

        Raises:
            RowMismatch: when a row can't be computed, before anything was written.
            ValueError: when the cache has another layout.
        """


class UnknownModel(ValueError):
    """No model has this name."""


_MODELS: dict[str, tuple[Callable[[], Model], Callable[[], Tokenizer]]] = {
    "recall": (Recall, ByteTokenizer),
}


def load(name: str) -> Model:
    """Make a model ready to compute.

    Raises:
        UnknownModel: when there is none with that name; the message lists those that there are.
    """
    return _entry(name)[0]()


def load_tokenizer(name: str) -> Tokenizer:
    """The tokenizer of a model, without its weights.

    Raises:
        UnknownModel: when there is none with that name; the message lists those that there are.
    """
    return _entry(name)[1]()


def _entry(name: str) -> tuple[Callable[[], Model], Callable[[], Tokenizer]]:
    try:
        return _MODELS[name]
    except KeyError:
        known = ", ".join(sorted(_MODELS))
        raise UnknownModel(f"unknown model {name!r}; known models: {known}") from None
