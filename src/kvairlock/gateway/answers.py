"""An answer as the OpenAI API shows it, whole or as server-sent events.

Bytes of a choice are decoded as they come: a character that is split between chunks waits for its
rest. A choice that never finished makes no answer, whatever the end says.
"""

from __future__ import annotations

import codecs
import json
import time
from dataclasses import dataclass, field

from kvairlock.core.errors import Reason, Refusal, Stage
from kvairlock.core.messages import Chunk, Ended

Json = dict[str, object]
DONE = b"data: [DONE]\n\n"


def event(data: Json) -> bytes:
    """Return one server-sent event."""
    return b"data: " + json.dumps(data, separators=(",", ":")).encode() + b"\n\n"


@dataclass(slots=True)
class Choice:
    """One answer while it comes in.

    Args:
        index: Which, from 0.
        text: What was decoded so far.
        finish: `stop` or `length` at its end, else empty.
    """

    index: int
    text: list[str] = field(default_factory=list)
    finish: str = ""
    _decoder: codecs.IncrementalDecoder = field(
        default_factory=lambda: codecs.getincrementaldecoder("utf-8")("replace")
    )

    def take(self, chunk: Chunk) -> str:
        """Add a chunk and return the characters that it completed."""
        piece = self._decoder.decode(chunk.text, final=bool(chunk.finish))
        self.text.append(piece)
        self.finish = chunk.finish
        return piece

    def told(self, text: str) -> Json:
        """Return the choice with some text, as JSON."""
        finish = self.finish or None
        return {"index": self.index, "text": text, "logprobs": None, "finish_reason": finish}


class Answer:
    """All choices of one request.

    Args:
        request: The request's id.
        model: The model's name.
        choices: How many.
        include_usage: Whether a stream carries the usage.
    """

    def __init__(self, request: str, model: str, choices: int, include_usage: bool) -> None:
        self._head: Json = {
            "id": request,
            "object": "text_completion",
            "created": int(time.time()),
            "model": model,
        }
        self._choices = [Choice(index) for index in range(choices)]
        self._include_usage = include_usage

    def take(self, chunk: Chunk) -> bytes:
        """Add a chunk and return its event; empty if it completed no character."""
        choice = self._choices[chunk.choice]
        piece = choice.take(chunk)
        if not piece and not choice.finish:
            return b""
        usage: Json = {"usage": None} if self._include_usage else {}
        return event({**self._head, "choices": [choice.told(piece)], **usage})

    def unfinished(self) -> Refusal | None:
        """Return why this is no whole answer, or None."""
        open_ = [choice.index for choice in self._choices if not choice.finish]
        if not open_:
            return None
        message = f"the decode node reported completion, but choices {open_} never finished"
        return Refusal(Reason.MISSING_EVIDENCE, Stage.GATEWAY, message)

    def whole(self, ended: Ended) -> Json:
        """Return the answer in one piece."""
        choices = [choice.told("".join(choice.text)) for choice in self._choices]
        return {**self._head, "choices": choices, "usage": _usage(ended)}

    def last_events(self, ended: Ended) -> bytes:
        """Return what ends a stream that completed."""
        if not self._include_usage:
            return DONE
        return event({**self._head, "choices": [], "usage": _usage(ended)}) + DONE


def _usage(ended: Ended) -> Json:
    """Figures of the engine's evidence; nothing of it is copied from the request."""
    prompt, completion = ended.computed_tokens, ended.generated_tokens
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }
