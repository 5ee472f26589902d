"""One choice while it comes in: bytes become characters, and likelihoods get their place in them.

A character that is split between chunks waits for its rest.
"""

from __future__ import annotations

import codecs
from dataclasses import dataclass, field

from kvairlock.core.messages import Chunk, Score


@dataclass(frozen=True, slots=True)
class Placed:
    """A token's likelihood, and where the token stands.

    Args:
        score: The token and what the model held of it.
        offset: Characters of the choice before it; the character that it ends does not count.
    """

    score: Score
    offset: int


@dataclass(frozen=True, slots=True)
class Piece:
    """What is new of a choice, or all of it.

    Args:
        index: Which choice, from 0.
        text: Its characters.
        tokens: Their tokens; None if likelihoods were not asked for.
        finish: `stop` or `length` at the choice's end, else empty.
        begins: Whether the choice begins here.
    """

    index: int
    text: str
    tokens: tuple[Placed, ...] | None
    finish: str
    begins: bool

    @property
    def shows(self) -> bool:
        """Whether there is anything to show."""
        return bool(self.text or self.tokens or self.finish)


def _utf8() -> codecs.IncrementalDecoder:
    return codecs.getincrementaldecoder("utf-8")("replace")


@dataclass(slots=True)
class Choice:
    """One answer while it comes in.

    Args:
        index: Which, from 0.
        tokens: Its tokens so far; None if likelihoods were not asked for.
        text: Its characters so far.
        finish: `stop` or `length` at its end, else empty.
    """

    index: int
    tokens: list[Placed] | None
    text: list[str] = field(default_factory=list)
    finish: str = ""
    _shown: bool = False
    _offset: int = 0
    _decoder: codecs.IncrementalDecoder = field(default_factory=_utf8)
    _token_decoder: codecs.IncrementalDecoder = field(default_factory=_utf8)

    def take(self, chunk: Chunk) -> Piece:
        """Add a chunk and return what it completed."""
        text = self._decoder.decode(chunk.text, final=bool(chunk.finish))
        self.text.append(text)
        self.finish = chunk.finish
        piece = Piece(self.index, text, self._place(chunk), chunk.finish, not self._shown)
        self._shown = self._shown or piece.shows
        return piece

    def whole(self) -> Piece:
        """Return all of it."""
        tokens = None if self.tokens is None else tuple(self.tokens)
        return Piece(self.index, "".join(self.text), tokens, self.finish, begins=True)

    def _place(self, chunk: Chunk) -> tuple[Placed, ...] | None:
        if self.tokens is None:
            return None
        placed = []
        for score in chunk.scores:
            placed.append(Placed(score, self._offset))
            self._offset += len(self._token_decoder.decode(score.text))
        self.tokens += placed
        return tuple(placed)
