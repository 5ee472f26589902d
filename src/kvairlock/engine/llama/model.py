"""A Llama model over the paged cache: RMSNorm, rotated positions, grouped heads, SwiGLU.

All tokens of a batch go through each weight matrix together; only attention is done row by row.
Arithmetic is float32. A batch of another size may round otherwise in the last bits, so two runs
agree in their tokens as long as no two tokens are equally likely to within that.

Positions turn the elements of a head in pairs of neighbours (2i, 2i + 1), as GGUF files of this
family order them: such a pair is one complex number, and turning it is one product.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kvairlock.engine.attention import attend
from kvairlock.engine.cache import Floats, PagedCache
from kvairlock.engine.layout import LayerWidths, Layout
from kvairlock.engine.llama.config import Config, read_config
from kvairlock.engine.llama.file import GgufFile
from kvairlock.engine.llama.products import product
from kvairlock.engine.llama.vocabulary import Vocabulary, read_vocabulary
from kvairlock.engine.llama.weights import LayerWeights, Weights, read_weights
from kvairlock.engine.rows import Row, require_rows

# Part of the revision: to be raised when the same weights give other results.
ARITHMETIC = "1"

Turns = NDArray[np.complex64]


@dataclass(frozen=True, slots=True, eq=False)
class _Batch:
    """The rows of one forward, whose tokens lie one behind the other.

    Args:
        rows: As `forward` takes them.
        cache: Where their page tables point.
        turns: How far the pairs of each token are turned.
    """

    rows: Sequence[Row]
    cache: PagedCache
    turns: Turns

    def attend(self, layer: int, queries: Floats, keys: Floats, values: Floats) -> Floats:
        """Store the new keys and values of a layer, and attend with each row to its own.

        Args:
            layer: Number of the layer.
            queries: (tokens, heads, head_width).
            keys: (tokens, kv_heads, head_width).
            values: As the keys.

        Returns:
            (tokens, heads, head_width).
        """
        mixed = np.empty_like(queries)
        first = 0
        for row in self.rows:
            new = slice(first, first := first + len(row.tokens))
            self.cache.write(layer, row.pages, row.start, _flat(keys[new]), _flat(values[new]))
            stored = self.cache.gather(layer, row.pages, row.end)
            all_keys, all_values = (part.reshape(row.end, *keys.shape[1:]) for part in stored)
            mixed[new] = attend(queries[new], all_keys, all_values)
        return mixed


class Llama:
    """A model of the Llama family, read from a GGUF file.

    Args:
        path: The file.
        name: What it is served as.

    Raises:
        ModelUnusable: When the file can't be served as what it means; the message says why.
    """

    def __init__(self, path: Path, name: str) -> None:
        file = GgufFile(path)
        self._config = read_config(file)
        self.tokenizer: Vocabulary = read_vocabulary(file)
        self._weights = read_weights(file, self._config, self.tokenizer.vocab_size)
        self._frequencies = _frequencies(self._config, self._weights)
        self.name = name
        self.revision = f"{ARITHMETIC}.{file.digest()}"
        self.vocab_size = self.tokenizer.vocab_size
        self.context_tokens_max = self._config.context_tokens

    def layout(self, page_tokens: int) -> Layout:
        """The layout of its pages.

        Raises:
            ValueError: when `page_tokens` is below 1.
        """
        widths = LayerWidths(self._config.kv_width, self._config.kv_width)
        return Layout(f"{self.name}@{self.revision}", page_tokens, (widths,) * self._config.layers)

    def forward(self, rows: Sequence[Row], cache: PagedCache) -> Floats:
        """Compute the new tokens of each row; see `kvairlock.engine.model.Model.forward`.

        Raises:
            RowMismatch: when a row can't be computed, before anything was written.
            ValueError: when the cache has another layout.
        """
        if cache.layout != self.layout(cache.layout.page_tokens):
            raise ValueError(f"the cache is laid out for {cache.layout.model}, not for {self.name}")
        require_rows(rows, cache, self.context_tokens_max, self.vocab_size)
        if not rows:
            return np.empty((0, self.vocab_size), np.float32)
        batch = _Batch(rows, cache, self._turns(rows))
        tokens = self._weights.embedding[np.concatenate([row.tokens for row in rows])]
        for number, layer in enumerate(self._weights.layers):
            tokens += self._attended(number, layer, tokens, batch)
            tokens += self._fed_forward(layer, tokens)
        last = np.cumsum([len(row.tokens) for row in rows]) - 1
        answers = self._normed(tokens[last], self._weights.output_norm)
        return np.ascontiguousarray(product(answers, self._weights.output))

    def _turns(self, rows: Sequence[Row]) -> Turns:
        """How far each token's pairs are turned, for all heads: (tokens, 1, head_width / 2)."""
        positions = np.concatenate([np.arange(row.start, row.end) for row in rows])
        angles = positions[:, None] * self._frequencies
        turns: Turns = np.exp(1j * angles).astype(np.complex64)
        return turns[:, None]

    def _attended(self, number: int, layer: LayerWeights, tokens: Floats, batch: _Batch) -> Floats:
        """What attention adds to each token: (tokens, width)."""
        config = self._config
        projected = product(self._normed(tokens, layer.attention_norm), layer.qkv)
        turning, heads = config.attention_width + config.kv_width, config.heads
        turned = _turn(projected[:, :turning], batch.turns)
        values = projected[:, turning:].reshape(len(tokens), config.kv_heads, -1)
        queries = turned[:, :heads] * np.float32(config.head_width**-0.5)
        mixed = batch.attend(number, queries, turned[:, heads:], values)
        return product(mixed.reshape(len(tokens), -1), layer.attention_out)

    def _fed_forward(self, layer: LayerWeights, tokens: Floats) -> Floats:
        """What the feed-forward part adds to each token: (tokens, width)."""
        both = product(self._normed(tokens, layer.feed_norm), layer.gate_up)
        gate, up = both[:, : self._config.inner], both[:, self._config.inner :]
        return product(_silu(gate) * up, layer.down)

    def _normed(self, tokens: Floats, weight: Floats) -> Floats:
        squares = np.einsum("te,te->t", tokens, tokens) / np.float32(self._config.width)
        scale = 1 / np.sqrt(squares + np.float32(self._config.epsilon))
        normed: Floats = tokens * scale[:, None] * weight
        return normed


def _frequencies(config: Config, weights: Weights) -> NDArray[np.float64]:
    """By how much each pair of a head turns from one position to the next, in radians."""
    pairs = np.arange(0, config.head_width, 2) / config.head_width
    frequencies: NDArray[np.float64] = config.rope_base**-pairs / config.rope_stretch
    return frequencies / weights.rope_factors


def _turn(heads: Floats, turns: Turns) -> Floats:
    """Turn all pairs of some heads: (tokens, heads * head_width) to (tokens, heads, head_width)."""
    pairs = np.ascontiguousarray(heads).view(np.complex64)
    turned = pairs.reshape(len(heads), -1, turns.shape[-1]) * turns
    return turned.view(np.float32)


def _flat(heads: Floats) -> Floats:
    """All heads of a token side by side, as a page has them: (tokens, heads * head_width)."""
    return heads.reshape(len(heads), -1)


def _silu(gate: Floats) -> Floats:
    with np.errstate(over="ignore"):  # a very negative gate divides by infinity: it is shut
        shut: Floats = gate / (1 + np.exp(-gate))
    return shut
