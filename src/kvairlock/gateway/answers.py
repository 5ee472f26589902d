"""An answer as the OpenAI API shows it, whole or as server-sent events.

A choice that never finished makes no answer, whatever the end says.
"""

from __future__ import annotations

import json
import time

from kvairlock.core.errors import Reason, Refusal, Stage
from kvairlock.core.messages import Chunk, Ended
from kvairlock.gateway.asked import Asked
from kvairlock.gateway.pieces import Choice
from kvairlock.gateway.shapes import Json, Shape

DONE = b"data: [DONE]\n\n"


def event(data: Json) -> bytes:
    """Return one server-sent event."""
    return b"data: " + json.dumps(data, separators=(",", ":")).encode() + b"\n\n"


class Answer:
    """All choices of one request.

    Args:
        request_id: The request's id.
        asked: What was asked.
        shape: How the endpoint shows it.
    """

    def __init__(self, request_id: str, asked: Asked, shape: Shape) -> None:
        self._id, self._model, self._shape = request_id, asked.model, shape
        self._created_unix_s = int(time.time())
        scored = asked.alternatives is not None
        self._choices = [Choice(index, [] if scored else None) for index in range(asked.n)]
        self._include_usage = asked.include_usage
        self._states_usage = asked.include_usage or not asked.stream

    def take(self, chunk: Chunk) -> bytes:
        """Add a chunk and return its event; empty if it completed nothing that can be shown."""
        piece = self._choices[chunk.choice].take(chunk)
        if not piece.shows:
            return b""
        usage: Json = {"usage": None} if self._include_usage else {}
        return event({**self._part([self._shape.delta(piece)]), **usage})

    def unfinished(self) -> Refusal | None:
        """Return why this is no whole answer, or None."""
        open_ = [choice.index for choice in self._choices if not choice.finish]
        if not open_:
            return None
        message = f"the decode node reported completion, but choices {open_} never finished"
        return Refusal(Reason.MISSING_EVIDENCE, Stage.GATEWAY, message)

    @property
    def finish(self) -> tuple[str, ...]:
        """Why each choice ended."""
        return tuple(choice.finish for choice in self._choices)

    def stated(self, ended: Ended) -> tuple[int, int]:
        """Return the usage that goes out with the answer, prompt and generated; zeros if none."""
        return _figures(ended) if self._states_usage else (0, 0)

    def whole(self, ended: Ended) -> Json:
        """Return the answer in one piece."""
        choices = [self._shape.choice(choice.whole()) for choice in self._choices]
        return {**self._head(self._shape.whole, choices), "usage": _usage(ended)}

    def last_events(self, ended: Ended) -> bytes:
        """Return what ends a stream that completed."""
        if not self._include_usage:
            return DONE
        return event({**self._part([]), "usage": _usage(ended)}) + DONE

    def _part(self, choices: list[Json]) -> Json:
        return self._head(self._shape.part, choices)

    def _head(self, kind: str, choices: list[Json]) -> Json:
        return {
            "id": self._id,
            "object": kind,
            "created": self._created_unix_s,
            "model": self._model,
            "choices": choices,
        }


def _figures(ended: Ended) -> tuple[int, int]:
    """Figures of the engine's evidence; nothing of it is copied from the request."""
    return ended.computed_tokens, ended.generated_tokens


def _usage(ended: Ended) -> Json:
    prompt, completion = _figures(ended)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": ended.reused_tokens},
    }
