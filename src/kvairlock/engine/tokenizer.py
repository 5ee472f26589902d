"""Text to token ids and back: the one part of a model that a gateway needs."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class Tokenizer(Protocol):
    """Turns text into token ids and token ids into bytes."""

    def encode(self, text: str) -> NDArray[np.int32]:
        """The token ids of a text, int32 of shape (tokens,)."""

    def decode(self, tokens: NDArray[np.int32]) -> bytes:
        """The bytes of some tokens; they may end inside a UTF-8 sequence."""


class ByteTokenizer:
    """One token per byte of UTF-8: ids 0..255."""

    def encode(self, text: str) -> NDArray[np.int32]:
        """The bytes of a text, as int32 of shape (bytes,)."""
        return np.frombuffer(text.encode(), dtype=np.uint8).astype(np.int32)

    def decode(self, tokens: NDArray[np.int32]) -> bytes:
        """The bytes that the tokens stand for.

        Raises:
            ValueError: when a token is not in 0..255.
        """
        return bytes(tokens.tolist())
