"""From logits to the next token."""

import numpy as np
from numpy.typing import NDArray


def greedy(logits: NDArray[np.float32]) -> NDArray[np.int32]:
    """The most likely token of each row; the lowest id wins a tie.

    Args:
        logits: (rows, vocab).

    Returns:
        Token ids, int32 of shape (rows,).
    """
    tokens: NDArray[np.int32] = logits.argmax(axis=-1).astype(np.int32)
    return tokens
