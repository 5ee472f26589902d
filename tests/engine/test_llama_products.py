"""A product is the same for any number of tokens, whichever way it takes."""

import numpy as np
import pytest

from kvairlock.engine.llama.products import TILED_TOKENS_MAX, product


@pytest.mark.parametrize("outputs", [64, 192, 100, 1])
@pytest.mark.parametrize("tokens", [1, 2, 3, TILED_TOKENS_MAX, TILED_TOKENS_MAX + 1, 70])
def test_each_token_meets_each_row_of_the_weights(tokens: int, outputs: int) -> None:
    rng = np.random.default_rng((20261103, tokens, outputs))
    inputs = rng.standard_normal((tokens, 48)).astype(np.float32)
    weight = rng.standard_normal((outputs, 48)).astype(np.float32)
    found = product(inputs, weight)
    assert found.shape == (tokens, outputs)
    assert found.dtype == np.float32
    expected = inputs.astype(np.float64) @ weight.astype(np.float64).T
    assert np.allclose(found, expected, atol=1e-4)
