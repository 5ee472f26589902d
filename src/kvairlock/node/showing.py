"""The text of one answer on its way to the client, and the likelihoods of the tokens in it.

Text that could still become a stop string is held back, so that a client never sees half of one. A
token's score goes with the first of its bytes: held back with them, and cut with them.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from kvairlock.core.messages import Score


@dataclass(frozen=True, slots=True)
class Shown:
    """What a client may see now.

    Args:
        text: Bytes; may end inside a character.
        scores: The tokens whose first byte is in it, those of them that have a score.
    """

    text: bytes
    scores: tuple[Score, ...]


@dataclass(slots=True)
class Showing:
    """What of an answer was not shown yet.

    Args:
        stop: Byte strings that end the answer.
    """

    stop: tuple[bytes, ...]
    _held: bytes = b""
    _scores: deque[tuple[int, Score]] = field(default_factory=deque)
    """Each with the offset of its token's first byte in what is held."""

    def add(self, text: bytes, score: Score | None) -> None:
        """Take the bytes of one more token; a token without any is never shown, nor is its score.

        Args:
            text: The bytes.
            score: The token's score, if there is one.
        """
        if text and score is not None:
            self._scores.append((len(self._held), score))
        self._held += text

    def find_stop(self) -> int | None:
        """Where the first stop string begins in what is held; None if there is none.

        The first is the one that is complete first, the longest of those that are so together: what
        a client sees does not depend on how the text was cut into tokens.
        """
        found = [(self._held.find(stop), len(stop)) for stop in self.stop]
        ends = [(begin + size, begin) for begin, size in found if begin >= 0]
        return min(ends)[1] if ends else None

    def show(self, size: int) -> Shown:
        """Let go of the first bytes that are held.

        Args:
            size: How many.
        """
        text, self._held = self._held[:size], self._held[size:]
        scores = []
        while self._scores and self._scores[0][0] < size:
            scores.append(self._scores.popleft()[1])
        self._scores = deque((offset - size, score) for offset, score in self._scores)
        return Shown(text, tuple(scores))

    def show_safe(self) -> Shown:
        """Let go of all that cannot become a stop string any more."""
        return self.show(len(self._held) - self._could_be_stop())

    def show_all(self) -> Shown:
        """Let go of all that is held: nothing follows."""
        return self.show(len(self._held))

    def _could_be_stop(self) -> int:
        """How many bytes at the end are the beginning of a stop string."""
        longest = max((len(stop) for stop in self.stop), default=1) - 1
        for size in range(min(longest, len(self._held)), 0, -1):
            if any(stop.startswith(self._held[-size:]) for stop in self.stop):
                return size
        return 0
