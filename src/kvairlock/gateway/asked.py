"""What a client asks for, checked: the noun that every endpoint makes and the desk serves."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from kvairlock.core.messages import Sampling
from kvairlock.core.promise.capacity import Demand
from kvairlock.engine.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Offer:
    """What this gateway serves.

    Args:
        model: The one model's name.
        tokenizer: Turns its text into token ids.
        max_tokens_default: Tokens to generate when a completion does not say.
        chat_tokens_default: Tokens to generate when a chat does not say.
        temperature_default: The temperature when a request does not say.
        choices_max: Largest `n`.
    """

    model: str
    tokenizer: Tokenizer
    max_tokens_default: int
    chat_tokens_default: int
    temperature_default: float
    choices_max: int


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that can be served.

    Args:
        model: The model's name.
        prompt_tokens: Token ids of the prompt, int32 of shape (tokens,).
        max_tokens: Tokens to generate per choice, at most.
        enough_tokens: What `max_tokens` may be cut down to, where there is no room for it. It is
            the same where the client said how many it wants.
        n: How many choices.
        stop: Byte strings that end a choice.
        sampling: How tokens are drawn.
        alternatives: How many likely tokens to state with each token; None states none, and no
            likelihood either.
        stream: Whether the answer is sent as it comes.
        include_usage: Whether a stream ends with the usage.
        ignored: Names of parameters that nobody here knows.
    """

    model: str
    prompt_tokens: NDArray[np.int32]
    max_tokens: int
    enough_tokens: int
    n: int
    stop: tuple[bytes, ...]
    sampling: Sampling
    alternatives: int | None
    stream: bool
    include_usage: bool
    ignored: tuple[str, ...]

    @property
    def demand(self) -> Demand:
        """What it needs from a route."""
        return Demand(len(self.prompt_tokens), self.max_tokens, self.n)

    def within(self, room_tokens: int) -> Asked:
        """Return it with a length that fits, if its length was not the client's to begin with.

        Args:
            room_tokens: Tokens per choice that there is room for after the prompt.
        """
        fitting = min(self.max_tokens, room_tokens)
        return replace(self, max_tokens=max(self.enough_tokens, fitting))
