"""Products with weight matrices, by the way that is fastest for the number of tokens.

For one token OpenBLAS reads the matrix once; for many it first copies it in an order that suits its
kernel, which pays off only with many tokens. Cut into tiles, a product of a few tokens is small
enough that it does without the copy: 2 to 8 tokens then take a half to a third of the time, and
hardly more than one. Tiles of one thread also never wait for another that has no core.
"""

from __future__ import annotations

from kvairlock.engine.cache import Floats

TILED_TOKENS_MAX = 8
# 64 outputs x 1536 inputs x 8 tokens stay below the million products up to which OpenBLAS's
# kernels for small matrices are used (on AVX-512; elsewhere tiles cost nothing).
TILE = 64


def product(tokens: Floats, weight: Floats) -> Floats:
    """Apply a weight matrix to each token.

    Args:
        tokens: (tokens, inputs).
        weight: (outputs, inputs).

    Returns:
        (tokens, outputs), each output of all tokens side by side in memory.
    """
    outputs, inputs = weight.shape
    if 1 < len(tokens) <= TILED_TOKENS_MAX and outputs % TILE == 0:
        tiles = weight.reshape(-1, TILE, inputs) @ tokens.T
        return tiles.reshape(outputs, len(tokens)).T
    columns: Floats = weight @ tokens.T
    return columns.T
