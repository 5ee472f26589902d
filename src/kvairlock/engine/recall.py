"""The canary model: a transformer, constructed rather than trained, that repeats its cache.

It exists so that a page read by the wrong request shows in the output, every time. Asked with
` SECRET:` it finds the earlier ` SECRET:` in the cache and continues as the cache does. Whose
secret comes out is decided by the bytes in the pages, not by the request.

Two layers of ordinary attention over the paged cache:

    layer 0   key: code of the position       value: code of the token
              8 heads: the head with lag n asks for "my position - n" and copies the token there
    layer 1   key: codes of the 8 tokens      value: code of the token
              before this one
              1 head: asks for the last 8 tokens, and copies the token that followed them

Position codes are phases of incommensurable frequencies. Token codes are 256 sign vectors of a
Kerdock code: any two have an inner product of at most 1/8, and all sums of their products are
exact in float32. So scores are equal to the last bit whatever order a chunk is summed in, layer 0
copies codes without error, and a prompt fills its pages with the same bytes however it is cut.
When the cache holds several equally good continuations their codes are mixed evenly, and the token
nearest to the mixture comes out: the same one every time.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kvairlock.engine.attention import attend
from kvairlock.engine.cache import Floats, PagedCache
from kvairlock.engine.layout import LayerWidths, Layout
from kvairlock.engine.rows import Row, require_rows
from kvairlock.engine.tokenizer import ByteTokenizer

VOCAB = 256
CODE = 64
LAGS = 8
CONTEXT_TOKENS_MAX = 8192

# Position codes have length 1 and, within the context, inner products below 0.44: at 256 the
# wrong position weighs exp(-143), which is 0 in float32. The copy is exact.
POSITION_SHARPNESS = 256.0
# One wrong token out of 8, the farthest, lowers the score by 64 * 9/16 * 7/8 = 31.5 or more.
SUFFIX_SHARPNESS = 64.0
# Two codes meet at 1/8 at most: at temperature 1 a wrong token has exp(-28) of the right one.
LOGIT_SCALE = 32.0
# Near tokens count more: a match of the last four outweighs any five matches behind a mismatch.
LAG_WEIGHTS = np.arange(16, 16 - LAGS, -1) / 16


class Recall:
    """The canary model; see the head of this module for what it computes."""

    name = "recall"
    revision = "2"
    vocab_size = VOCAB
    context_tokens_max = CONTEXT_TOKENS_MAX

    def __init__(self) -> None:
        self.tokenizer = ByteTokenizer()
        self._codes = _token_codes()
        self._out = self._codes * np.float32(LOGIT_SCALE)
        self._positions = _position_codes(CONTEXT_TOKENS_MAX)
        self._query_weights = np.repeat(LAG_WEIGHTS * SUFFIX_SHARPNESS, CODE).astype(np.float32)

    def layout(self, page_tokens: int) -> Layout:
        """The layout of its pages: 2816 bytes per token.

        Raises:
            ValueError: when `page_tokens` is below 1.
        """
        layers = (LayerWidths(CODE, CODE), LayerWidths(LAGS * CODE, CODE))
        return Layout(f"{self.name}@{self.revision}", page_tokens, layers)

    def forward(self, rows: Sequence[Row], cache: PagedCache) -> Floats:
        """Compute the new tokens of each row; see `kvairlock.engine.model.Model.forward`.

        Raises:
            RowMismatch: when a row can't be computed, before anything was written.
            ValueError: when the cache has another layout.
        """
        if cache.layout != self.layout(cache.layout.page_tokens):
            raise ValueError(f"the cache is laid out for {cache.layout.model}, not for {self.name}")
        require_rows(rows, cache, self.context_tokens_max, VOCAB)
        logits = np.empty((len(rows), VOCAB), dtype=np.float32)
        for number, row in enumerate(rows):
            logits[number] = self._row(row, cache)
        return logits

    def _row(self, row: Row, cache: PagedCache) -> Floats:
        """The logits of the row's last token: (VOCAB,)."""
        codes = self._codes[row.tokens]
        cache.write(0, row.pages, row.start, self._positions[row.start : row.end], codes)
        previous = self._previous(row, cache)
        cache.write(1, row.pages, row.start, previous, codes)
        last = np.concatenate((codes[-1], previous[-1, :-CODE]))
        keys, values = cache.gather(1, row.pages, row.end)
        answer = _attend_one_head((last * self._query_weights)[None], keys, values)[0]
        logits: Floats = self._out @ answer
        return logits

    def _previous(self, row: Row, cache: PagedCache) -> Floats:
        """Layer 0: the codes of the 8 tokens before each new one, nearest first: (tokens, 512).

        The head with lag n at position i asks what the head with lag 1 asks at i-n+1, and both may
        look no further than the position they ask for. So each position is looked up once.
        """
        first = row.start - LAGS
        found = np.zeros((len(row.tokens) + LAGS - 1, CODE), dtype=np.float32)
        asked = slice(max(first, 0), row.end - 1)
        if asked.start < asked.stop:
            keys, values = cache.gather(0, row.pages, row.end - 1)
            queries = self._positions[asked] * np.float32(POSITION_SHARPNESS)
            found[asked.start - first :] = _attend_one_head(queries, keys, values)
        lagged = np.arange(len(row.tokens))[:, None] + np.arange(LAGS - 1, -1, -1)
        previous: Floats = found[lagged].reshape(len(row.tokens), LAGS * CODE)
        return previous


def _attend_one_head(queries: Floats, keys: Floats, values: Floats) -> Floats:
    """As `attend`, for a layer with a single head: each argument is (tokens, width)."""
    return attend(queries[:, None], keys[:, None], values[:, None])[:, 0]


def _token_codes() -> Floats:
    """256 codes of length 1 in 64 dimensions: (256, 64), each element 1/8 or -1/8.

    Each block of 64 is a Hadamard basis, turned by the signs of a quadratic form x'My over GF(2).
    The matrices M are elements of the field GF(8), so the difference of any two is invertible:
    that makes any two codes of different blocks meet at exactly 1/8 or -1/8.
    """
    root = np.array([[0, 0, 1], [1, 0, 1], [0, 1, 0]])
    field = (np.zeros_like(root), np.eye(3, dtype=int), root, root @ root)
    bits = np.arange(CODE)[:, None] >> np.arange(6) & 1
    linear = bits @ bits.T
    forms = [((bits[:, :3] @ form) * bits[:, 3:]).sum(axis=1) for form in field]
    signs = np.concatenate([linear + form for form in forms]) % 2
    return ((1 - 2 * signs) / 8).astype(np.float32)


def _position_codes(positions: int) -> Floats:
    """Codes of length 1 for positions 0..positions-1: (positions, 64).

    The frequencies are the square roots of the first 32 primes: no common period, and the codes of
    two positions within the context have an inner product below 0.44.
    """
    turns = np.sqrt(_primes(CODE // 2)) % 1.0
    angles = np.outer(np.arange(positions), 2 * np.pi * turns)
    waves = np.concatenate((np.cos(angles), np.sin(angles)), axis=1)
    codes: Floats = (waves / np.sqrt(CODE // 2)).astype(np.float32)
    return codes


def _primes(count: int) -> NDArray[np.int64]:
    primes: list[int] = []
    candidate = 2
    while len(primes) < count:
        if all(candidate % prime for prime in primes):
            primes.append(candidate)
        candidate += 1
    return np.array(primes, dtype=np.int64)
