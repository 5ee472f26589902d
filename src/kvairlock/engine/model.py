"""What a model is for the nodes, and how one is loaded: by its name, or from a file.

A node knows a model only through `Model`: it asks for the layout of its pages and calls `forward`
with rows. Which weights are behind it changes nothing for pool, hand-over or verdict. Loading a
tokenizer is separate and cheap, because a gateway counts tokens but computes nothing.
"""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from kvairlock.engine.cache import PagedCache
from kvairlock.engine.layout import Layout
from kvairlock.engine.recall import Recall
from kvairlock.engine.rows import Row, RowMismatch
from kvairlock.engine.store import PUBLISHED, require
from kvairlock.engine.tokenizer import ByteTokenizer, Tokenizer
from kvairlock.engine.unusable import ModelUnusable
from kvairlock.runtime.settings import MODEL_FILES

__all__ = [
    "Model",
    "ModelUnusable",
    "Row",
    "RowMismatch",
    "Tokenizer",
    "UnknownModel",
    "load",
    "load_tokenizer",
    "served_name",
]


class Model(Protocol):
    """A causal language model that reads and writes a paged cache."""

    @property
    def name(self) -> str:
        """The name that it is served as."""

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


RECALL = "recall"
LLAMA_PACKAGES = ("gguf", "jinja2", "tokenizers")


def load(choice: str) -> Model:
    """Make a model ready to compute.

    Args:
        choice: `recall`, the name of a published model, or the path of a GGUF file.

    Raises:
        UnknownModel: when it is none of these; the message lists the names that there are.
        ModelMissing: when the model was not fetched.
        ModelUnusable: when its file can't be served; the message says why.
    """
    if choice == RECALL:
        return Recall()
    path = _file(choice)
    _require_llama_packages(path)
    from kvairlock.engine.llama.model import Llama  # needs packages that `recall` does without

    return Llama(path, served_name(choice))


def load_tokenizer(choice: str) -> Tokenizer:
    """The tokenizer of a model, without its weights.

    Args:
        choice: As in `load`.

    Raises:
        UnknownModel: as in `load`, and so ModelMissing and ModelUnusable.
    """
    if choice == RECALL:
        return ByteTokenizer()
    path = _file(choice)
    _require_llama_packages(path)
    from kvairlock.engine.llama.file import GgufFile  # as in `load`
    from kvairlock.engine.llama.vocabulary import read_vocabulary

    return read_vocabulary(GgufFile(path))


def served_name(choice: str) -> str:
    """The name that clients ask for: the name itself, or that of the file without its suffix.

    Args:
        choice: As in `load`.
    """
    return Path(choice).stem if choice.endswith(MODEL_FILES) else choice


def _file(choice: str) -> Path:
    if choice.endswith(MODEL_FILES):
        return Path(choice)
    if choice not in PUBLISHED:
        known = ", ".join(sorted([RECALL, *PUBLISHED]))
        raise UnknownModel(
            f"unknown model {choice!r}; known models: {known}, or the path of a {MODEL_FILES} file"
        )
    return require(choice)


def _require_llama_packages(path: Path) -> None:
    missing = [name for name in LLAMA_PACKAGES if find_spec(name) is None]
    if missing:
        raise ModelUnusable(
            path, f"the package {missing[0]} is not there; pip install 'kvairlock[llama]'"
        )
