"""Attention agrees with its definition, and no query sees a later position."""

import numpy as np
import pytest

from kvairlock.engine.attention import attend

RNG_SEED = 20261002


def test_equal_scores_average_the_positions_up_to_each_query() -> None:
    values = np.array([[1.0], [3.0], [8.0], [100.0]], np.float32)
    mixed = attend(np.zeros((2, 5), np.float32), np.ones((4, 5), np.float32), values)
    assert mixed[:, 0].tolist() == [4.0, 28.0]


@pytest.mark.parametrize(("queries", "positions"), [(1, 1), (1, 9), (4, 9), (9, 9)])
def test_it_is_the_softmax_of_the_scores_position_by_position(queries: int, positions: int) -> None:
    rng = np.random.default_rng(RNG_SEED)
    query = rng.standard_normal((queries, 6)).astype(np.float32)
    keys = rng.standard_normal((positions, 6)).astype(np.float32)
    values = rng.standard_normal((positions, 3)).astype(np.float32)
    for number, mixed in enumerate(attend(query, keys, values)):
        seen = positions - queries + number + 1
        scores = np.exp(keys[:seen].astype(np.float64) @ query[number])
        assert np.allclose(mixed, scores @ values[:seen] / scores.sum(), atol=1e-5)


def test_scores_far_apart_neither_overflow_nor_blur() -> None:
    keys = np.array([[-300.0], [300.0], [299.0]], np.float32)
    values = np.array([[1.0], [2.0], [4.0]], np.float32)
    assert attend(np.array([[400.0]], np.float32), keys, values).tolist() == [[2.0]]
