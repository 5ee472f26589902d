"""Causal softmax attention over keys and values that were gathered from pages.

Every model here attends through this one function, so what it promises holds for all of them: a
query sees its own position and earlier ones, and nothing that was not gathered.
"""

import numpy as np

from kvairlock.engine.cache import Floats

# Queries that are computed at once: their scores take 4 * heads * QUERY_BLOCK * positions bytes.
QUERY_BLOCK = 64


def attend(queries: Floats, keys: Floats, values: Floats) -> Floats:
    """Attend from the last `len(queries)` of `len(keys)` positions.

    Args:
        queries: (queries, heads, key), scaled already; the last query belongs to the last key.
        keys: (positions, kv_heads, key), at least as many positions as queries. Each of its heads
            serves heads / kv_heads neighbouring heads of the queries.
        values: (positions, kv_heads, value).

    Returns:
        For each query and head the values, weighted by the softmax of its scores:
        (queries, heads, value).
    """
    earlier = len(keys) - len(queries)
    blocks = []
    for low in range(0, len(queries), QUERY_BLOCK):
        block = queries[low : low + QUERY_BLOCK]
        seen = earlier + low + len(block)
        blocks.append(_attend_block(block, keys[:seen], values[:seen]))
    return blocks[0] if len(blocks) == 1 else np.concatenate(blocks)


def _attend_block(queries: Floats, keys: Floats, values: Floats) -> Floats:
    """As `attend`, with scores of all queries and positions at once."""
    count, heads, _ = queries.shape
    groups, group = keys.shape[1], heads // keys.shape[1]
    # One matrix product for each head of the keys: the queries of its group are its rows.
    by_group = queries.reshape(count, groups, group, -1).transpose(1, 2, 0, 3)
    scores = by_group.reshape(groups, group * count, -1) @ keys.transpose(1, 2, 0)
    _hide_future(scores.reshape(groups, group, count, -1))
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    mixed = weights @ values.transpose(1, 0, 2)
    mixed /= weights.sum(axis=-1, keepdims=True)
    by_query: Floats = mixed.reshape(groups, group, count, -1).transpose(2, 0, 1, 3)
    return by_query.reshape(count, heads, -1)


def _hide_future(scores: Floats) -> None:
    """Leave each query only its own position and earlier ones: (..., queries, positions)."""
    count = scores.shape[-2]
    if count > 1:
        newest = scores[..., scores.shape[-1] - count :]
        newest[..., *np.triu_indices(count, 1)] = -np.inf
