"""What both contenders of a measurement are: something that computes the next tokens of sequences.

llama.cpp and kvairlock run in environments of their own, in processes of their own. What they have
in common is this file: it needs nothing but numpy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Piece:
    """New tokens of one sequence.

    Args:
        sequence: Number of the sequence, from 0.
        start: Position of the first token; positions before it were computed already.
        tokens: Token ids, at least one.
    """

    sequence: int
    start: int
    tokens: Sequence[int]


class Computer(Protocol):
    """A model with a cache of its own."""

    def forget(self) -> None:
        """Drop what the cache holds, for all sequences."""

    def forward(self, pieces: Sequence[Piece]) -> NDArray[np.float32]:
        """The logits of the last token of each piece: (len(pieces), vocabulary)."""
