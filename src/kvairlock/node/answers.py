"""The answers that one request is being given: tokens in, text out, until a stop or the length.

Text that could still become a stop string is held back, so that a client never sees half of one.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from kvairlock.core.terms import NodeName, Pages, TransferId
from kvairlock.engine.model import Row, Tokenizer


@dataclass(slots=True)
class Answer:
    """One choice of a request.

    Args:
        table: Page table, shape (pages,).
        token: The token to run next.
        position: Its position.
        tokens_left: How many tokens may still be generated.
        stop: Byte strings that end the answer.
    """

    table: Pages
    token: int
    position: int
    tokens_left: int
    stop: tuple[bytes, ...]
    held: bytes = b""
    finish: str = ""

    def row(self) -> Row:
        """Return the engine's row of the next step."""
        return Row(np.array([self.token], dtype=np.int32), self.position, self.table)

    def take(self, token: int, text: bytes) -> bytes:
        """Take a generated token and return the text that may be shown now.

        Args:
            token: The token.
            text: Its bytes.
        """
        self.token, self.position, self.tokens_left = token, self.position + 1, self.tokens_left - 1
        self.held += text
        cut = min((i for i in (self.held.find(s) for s in self.stop) if i >= 0), default=-1)
        if cut >= 0:
            self.finish = "stop"
            return self._show(cut)
        if self.tokens_left == 0:
            self.finish = "length"
            return self._show(len(self.held))
        return self._show(len(self.held) - self._could_be_stop())

    def _could_be_stop(self) -> int:
        """How many bytes at the end are the beginning of a stop string."""
        longest = max((len(s) for s in self.stop), default=1) - 1
        for size in range(min(longest, len(self.held)), 0, -1):
            if any(s.startswith(self.held[-size:]) for s in self.stop):
                return size
        return 0

    def _show(self, size: int) -> bytes:
        shown, self.held = self.held[:size], self.held[size:]
        return shown


@dataclass(slots=True)
class Answers:
    """All choices of one request.

    Args:
        transfer: The request's name in the core.
        alias: The name under which the gateway wants to be answered.
        gateway: Where chunks go.
        choices: The answers.
    """

    transfer: TransferId
    alias: TransferId
    gateway: NodeName
    choices: list[Answer] = field(default_factory=list)

    @property
    def open(self) -> list[int]:
        """Indices of the choices that are not finished."""
        return [i for i, choice in enumerate(self.choices) if not choice.finish]

    def take(self, choice: int, token: int, tokenizer: Tokenizer) -> bytes:
        """Take a token of one choice and return the text that may be shown now."""
        text = tokenizer.decode(np.array([token], dtype=np.int32))
        return self.choices[choice].take(token, text)
