"""What a client was told of its request, as evidence: recorded once, when nothing more is sent.

    answer, error, silence --> status, finish, usage --> response_sent

What nodes computed is in their evidence. What was said about it is in nobody's but the gateway's,
and an audit compares the two: usage beyond what was computed must have come from somewhere.
"""

from __future__ import annotations

from starlette.types import Message, Send

from kvairlock.core.terms import Owner
from kvairlock.runtime.recording import Sink, Value

UNSTATED = (0, 0)
"""Tokens of prompt and answer where a client is told of none."""


class Told:
    """What the client of one request is told.

    Args:
        evidence: Where it is recorded.
        send: Where the response goes.
    """

    def __init__(self, evidence: Sink, send: Send) -> None:
        self._evidence, self._send = evidence, send
        self._status = 0
        self._finish: tuple[str, ...] = ()
        self._stated = UNSTATED
        self.owner: Owner | None = None
        """Whose response it is; as long as nobody knows, there is no request to record one of."""

    async def send(self, message: Message) -> None:
        """Pass a part of the response on, and note its status."""
        if message["type"] == "http.response.start":
            self._status = message["status"]
        await self._send(message)

    def answered(self, finish: tuple[str, ...], stated: tuple[int, int]) -> None:
        """Take note of an answer that is complete.

        Args:
            finish: Why each choice ended.
            stated: The usage that goes out with it, tokens of prompt and answer.
        """
        self._finish, self._stated = finish, stated

    def record(self) -> None:
        """Record what was told, if it was about a request."""
        if self.owner is None:
            return
        prompt, generated = self._stated
        fields: dict[str, Value] = {
            "http_status": self._status,
            "finish": self._finish,
            "prompt_tokens": prompt,
            "generated_tokens": generated,
        }
        self._evidence.record("response_sent", self.owner, fields)
