"""Text to token ids and back: the one part of a model that a gateway needs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class ConversationRefused(ValueError):
    """The model's chat template can't render this conversation; the message says why."""


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One turn of a conversation.

    Args:
        role: Who speaks: `system`, `user` or `assistant`.
        content: What is said.
    """

    role: str
    content: str


class Tokenizer(Protocol):
    """Turns text and conversations into token ids, and token ids into bytes."""

    @property
    def vocab_size(self) -> int:
        """How many token ids there are; they are 0..vocab_size-1."""

    @property
    def end_tokens(self) -> frozenset[int]:
        """Tokens with which the model ends its answer; they are not part of it."""

    def encode(self, text: str) -> NDArray[np.int32]:
        """The token ids of a text, int32 of shape (tokens,).

        Names of control tokens in it become these tokens: whoever sends a raw prompt may want them.
        """

    def encode_chat(self, messages: Sequence[ChatMessage]) -> NDArray[np.int32]:
        """The token ids of a conversation, up to where the assistant's next turn begins.

        Names of control tokens in a message's content stay text: no content can end its own turn.

        Args:
            messages: The turns, at least one.

        Returns:
            int32 of shape (tokens,).

        Raises:
            ConversationRefused: When the model's template has no form for these turns.
        """

    def decode(self, tokens: NDArray[np.int32]) -> bytes:
        """The bytes of some tokens; they may end inside a UTF-8 sequence. Control tokens have none.

        Raises:
            ValueError: when a token is not in the vocabulary.
        """


class ByteTokenizer:
    """One token per byte of UTF-8: ids 0..255. It has no control tokens."""

    vocab_size = 256
    end_tokens: frozenset[int] = frozenset()

    def encode(self, text: str) -> NDArray[np.int32]:
        """The bytes of a text, as int32 of shape (bytes,)."""
        return np.frombuffer(text.encode(), dtype=np.uint8).astype(np.int32)

    def encode_chat(self, messages: Sequence[ChatMessage]) -> NDArray[np.int32]:
        """The turns as lines of `role: content`, and `assistant:` at the end."""
        lines = [f"{message.role}: {message.content}\n" for message in messages]
        return self.encode("".join(lines) + "assistant:")

    def decode(self, tokens: NDArray[np.int32]) -> bytes:
        """The bytes that the tokens stand for.

        Raises:
            ValueError: when a token is not in 0..255.
        """
        return bytes(tokens.tolist())
