"""Attention agrees with its definition, and no query sees a later position."""

import numpy as np
import pytest

from kvairlock.engine.attention import QUERY_BLOCK, attend

RNG_SEED = 20261002


def test_equal_scores_average_the_positions_up_to_each_query() -> None:
    values = np.array([1.0, 3.0, 8.0, 100.0], np.float32).reshape(4, 1, 1)
    mixed = attend(np.zeros((2, 1, 5), np.float32), np.ones((4, 1, 5), np.float32), values)
    assert mixed[:, 0, 0].tolist() == [4.0, 28.0]


@pytest.mark.parametrize(("heads", "kv_heads"), [(1, 1), (3, 3), (6, 2), (4, 1)])
@pytest.mark.parametrize(
    ("queries", "positions"), [(1, 1), (1, 9), (4, 9), (9, 9), (2 * QUERY_BLOCK + 1, 200)]
)
def test_it_is_the_softmax_of_the_scores_head_by_head_and_position_by_position(
    queries: int, positions: int, heads: int, kv_heads: int
) -> None:
    rng = np.random.default_rng(RNG_SEED)
    query = rng.standard_normal((queries, heads, 6)).astype(np.float32)
    keys = rng.standard_normal((positions, kv_heads, 6)).astype(np.float32)
    values = rng.standard_normal((positions, kv_heads, 3)).astype(np.float32)
    mixed = attend(query, keys, values)
    assert mixed.shape == (queries, heads, 3)
    for number in range(queries):
        seen = positions - queries + number + 1
        for head in range(heads):
            served = head * kv_heads // heads
            scores = np.exp(keys[:seen, served].astype(np.float64) @ query[number, head])
            expected = scores @ values[:seen, served] / scores.sum()
            assert np.allclose(mixed[number, head], expected, atol=1e-5)


def test_scores_far_apart_neither_overflow_nor_blur() -> None:
    keys = np.array([-300.0, 300.0, 299.0], np.float32).reshape(3, 1, 1)
    values = np.array([1.0, 2.0, 4.0], np.float32).reshape(3, 1, 1)
    assert attend(np.full((1, 1, 1), 400.0, np.float32), keys, values).tolist() == [[[2.0]]]
