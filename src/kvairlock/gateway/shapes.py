"""The two shapes of an answer in the OpenAI API: a text completion, and a chat completion.

A token may hold a part of a character only. Where the API wants it as text, such a part is shown as
the replacement character; chats have its bytes beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from kvairlock.core.messages import Alternative, Score
from kvairlock.gateway.pieces import Piece, Placed

Json = dict[str, object]

LOGPROB_LEAST = -9999.0
"""How the API writes that a token is as good as impossible: JSON has no infinity."""


class Shape(Protocol):
    """How one endpoint shows its answers."""

    @property
    def whole(self) -> str:
        """The `object` of an answer in one piece."""

    @property
    def part(self) -> str:
        """The `object` of each event of a stream."""

    def choice(self, piece: Piece) -> Json:
        """Return a whole choice as JSON."""

    def delta(self, piece: Piece) -> Json:
        """Return what is new of a choice as JSON."""


class TextShape:
    """`POST /v1/completions`."""

    whole = "text_completion"
    part = "text_completion"

    def choice(self, piece: Piece) -> Json:
        """Return a whole choice."""
        logprobs = None if piece.tokens is None else _columns(piece.tokens)
        return {"index": piece.index, "text": piece.text, **_end(piece, logprobs)}

    def delta(self, piece: Piece) -> Json:
        """Return what is new of a choice; it looks the same."""
        return self.choice(piece)


class ChatShape:
    """`POST /v1/chat/completions`."""

    whole = "chat.completion"
    part = "chat.completion.chunk"

    def choice(self, piece: Piece) -> Json:
        """Return a whole choice."""
        message = {"role": "assistant", "content": piece.text, "refusal": None}
        return {"index": piece.index, "message": message, **_end(piece, _content(piece))}

    def delta(self, piece: Piece) -> Json:
        """Return what is new of a choice; the role is told where it begins."""
        delta: Json = {"role": "assistant", "content": ""} if piece.begins else {}
        if piece.text:
            delta["content"] = piece.text
        return {"index": piece.index, "delta": delta, **_end(piece, _content(piece))}


def _end(piece: Piece, logprobs: Json | None) -> Json:
    return {"logprobs": logprobs, "finish_reason": piece.finish or None}


def _columns(tokens: Sequence[Placed]) -> Json:
    """Likelihoods of a text completion: a list for each figure."""
    scores = [placed.score for placed in tokens]
    return {
        "tokens": [_text(score) for score in scores],
        "token_logprobs": [_logprob(score) for score in scores],
        "top_logprobs": [_by_token(score) for score in scores],
        "text_offset": [placed.offset for placed in tokens],
    }


def _by_token(score: Score) -> dict[str, float]:
    """The likeliest tokens and the one that was drawn; of equal names the likeliest counts."""
    named: dict[str, float] = {}
    likely: tuple[Score | Alternative, ...] = (*score.alternatives, score)
    for each in likely:
        named.setdefault(_text(each), _logprob(each))
    return named


def _content(piece: Piece) -> Json | None:
    """Likelihoods of a chat: an object for each token."""
    if piece.tokens is None:
        return None
    told = [_token(placed.score) for placed in piece.tokens]
    return {"content": told, "refusal": None}


def _token(score: Score) -> Json:
    return {**_named(score), "top_logprobs": [_named(each) for each in score.alternatives]}


def _named(token: Score | Alternative) -> Json:
    return {"token": _text(token), "logprob": _logprob(token), "bytes": list(token.text)}


def _text(token: Score | Alternative) -> str:
    return token.text.decode(errors="replace")


def _logprob(token: Score | Alternative) -> float:
    return token.logprob if token.logprob > LOGPROB_LEAST else LOGPROB_LEAST
