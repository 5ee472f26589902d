"""Causal softmax attention of one head, over keys and values that were gathered from pages.

Every model here attends through this one function, so what it promises holds for all of them: a
query sees its own position and earlier ones, and nothing that was not gathered.
"""

import numpy as np

from kvairlock.engine.cache import Floats


def attend(query: Floats, keys: Floats, values: Floats) -> Floats:
    """Attend from the last `len(query)` of `len(keys)` positions.

    It needs 4 * queries * positions bytes; callers cut long chunks into blocks of queries.

    Args:
        query: (queries, key), scaled already; the last query belongs to the last key.
        keys: (positions, key), at least as many positions as queries.
        values: (positions, value).

    Returns:
        For each query the values, weighted by the softmax of its scores: (queries, value).
    """
    weights: Floats = query @ keys.T
    future = np.triu_indices(len(query), 1)
    weights[:, len(keys) - len(query) :][future] = -np.inf
    weights -= weights.max(axis=1, keepdims=True)
    np.exp(weights, out=weights)
    weights /= weights.sum(axis=1, keepdims=True)
    mixed: Floats = weights @ values
    return mixed
