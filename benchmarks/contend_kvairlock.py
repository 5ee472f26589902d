"""kvairlock's engine as a contender: a model over a paged cache, no nodes; see `contender.py`.

Usage: contend_kvairlock.py WEIGHTS.gguf THREADS SEQUENCES TEXT.json
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from contender import answer_lines
from numpy.typing import NDArray
from pieces import Piece
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from kvairlock.engine.cache import PagedCache
from kvairlock.engine.model import Model, load
from kvairlock.engine.rows import Row

PAGE_TOKENS = 16
TOKENS_MAX = 1024


class Kvairlock:
    """A model of kvairlock with pages for some sequences, which lie one after the other."""

    def __init__(self, model: Model, sequences: int) -> None:
        layout = model.layout(PAGE_TOKENS)
        each = layout.pages_for(TOKENS_MAX)
        memory = np.zeros((sequences * each, layout.page_bytes), dtype=np.uint8)
        self._model = model
        self._cache = PagedCache(memory, layout)
        self._tables = np.arange(len(memory), dtype=np.int32).reshape(sequences, each)

    def forget(self) -> None:
        """Nothing to do: what is read of the cache was written by the same sequence before."""

    def forward(self, pieces: Sequence[Piece]) -> NDArray[np.float32]:
        """The logits of the last token of each piece: (len(pieces), vocabulary)."""
        rows = [
            Row(np.array(piece.tokens, np.int32), piece.start, self._tables[piece.sequence])
            for piece in pieces
        ]
        return self._model.forward(rows, self._cache)


def main() -> None:
    weights, threads, sequences, text = sys.argv[1:]
    with threadpool_limits(int(threads)):
        model = Kvairlock(load(weights), int(sequences))
        answer_lines(model, json.loads(Path(text).read_text()))


if __name__ == "__main__":
    main()
