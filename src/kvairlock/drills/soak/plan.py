"""What a soak asks, drawn from its seed before anything runs.

Every request has a canary of its own. Its tenant, length, kind and parameters are drawn, and so is
the moment at which its client leaves: after so many pieces of the answer, or after so many ends of
other requests, never after a time, so that a seed means the same on a slow machine.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from kvairlock.drills.canaries import CANARY_CHARACTERS, END, PLAIN, TURN, Canaries, Frame, Marked
from kvairlock.engine.model import RECALL

CONTEXT_TOKENS = 1024
"""What the soak's stack promises."""

LEAVERS = 3
"""One request of so many has a client that leaves."""

BEGINNING_CHARACTERS = (0, 100, 180)
"""What prompts of a tenant have in common: nothing, 6 full pages, or 11 others."""

SAMPLING_SEED_BITS = 31


class Endpoint(StrEnum):
    """Where a request goes."""

    COMPLETIONS = "/v1/completions"
    CHAT = "/v1/chat/completions"


@dataclass(frozen=True, slots=True)
class AfterChunks:
    """A client that leaves after so many pieces of its answer."""

    count: int


@dataclass(frozen=True, slots=True)
class AfterEnds:
    """A client that has sent its request, and leaves after so many ends of other requests."""

    count: int


Leave = AfterChunks | AfterEnds | None


@dataclass(frozen=True, slots=True)
class Lengths:
    """Prompt lengths in characters, of which there are few, so that a foreign page fits in.

    Args:
        ordinary: What most prompts have; the longer ones only the larger prefill node holds.
        large: What is nearly as long as the promise.
        overlong: What is longer.
    """

    ordinary: tuple[int, ...]
    large: tuple[int, ...]
    overlong: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Profile:
    """What one kind of model is asked.

    Args:
        requests: How many, unless told.
        lengths: Of the prompts.
        max_tokens: Drawn from these.
        chat: How a canary is stated in a conversation.
        repeats: Whether the model must answer with its canary.
        queue_ms: How long a request may wait for pages.
    """

    requests: int
    lengths: Lengths
    max_tokens: tuple[int, ...]
    chat: Frame
    repeats: bool
    queue_ms: int


REPEATING = Profile(
    requests=1000,
    lengths=Lengths(ordinary=(250, 400), large=(900,), overlong=(1100, 1400)),
    max_tokens=(8, 17, 17, 24, 40),
    chat=TURN,
    repeats=True,
    queue_ms=10_000,
)
TRAINED = Profile(
    requests=60,
    # A token of a trained vocabulary is one to four of these characters.
    lengths=Lengths(ordinary=(250, 400), large=(900,), overlong=(5000,)),
    max_tokens=(8, 16, 24),
    chat=PLAIN,
    repeats=False,
    queue_ms=120_000,
)


def profile_for(model: str) -> Profile:
    """Return what a model is asked: only the canary model has to repeat what it was told."""
    return REPEATING if model == RECALL else TRAINED


@dataclass(frozen=True, slots=True)
class Ask:
    """One request of the soak.

    Args:
        prompt: What is asked, whose it is, and its canary.
        beginning: How many characters of it other prompts of its tenant begin with.
        endpoint: Where it goes.
        overlong: Whether it must be refused for its length.
        parameters: The body without model and prompt.
        leave: When its client leaves, if it does.
    """

    prompt: Marked
    beginning: int
    endpoint: Endpoint
    overlong: bool
    parameters: dict[str, Any]
    leave: Leave

    def body(self, model: str) -> dict[str, Any]:
        """Return the JSON body of the request."""
        return {"model": model, **self._content(), **self.parameters}

    def _content(self) -> dict[str, Any]:
        text = self.prompt.text
        if self.endpoint is Endpoint.COMPLETIONS:
            return {"prompt": text}
        turns = (("system", text[: self.beginning]), ("user", text[self.beginning :]))
        return {"messages": [{"role": role, "content": words} for role, words in turns if words]}


class Plan:
    """Draws the requests of one soak.

    Args:
        seed: Equal seeds draw equal requests.
        tenants: Who asks.
        profile: What the model is asked.
    """

    def __init__(self, seed: int, tenants: Iterable[str], profile: Profile) -> None:
        self.canaries = Canaries(seed)
        self._random = random.Random(seed)
        self._profile = profile
        self._tenants = tuple(tenants)
        self._beginnings = {tenant: self._beginnings_of_one() for tenant in self._tenants}

    def draw(self) -> Ask:
        """Return the next request."""
        choose = self._random
        tenant = choose.choice(self._tenants)
        endpoint = choose.choice(tuple(Endpoint))
        beginning = choose.choice(self._beginnings[tenant])
        overlong, characters = self._length()
        frame = self._profile.chat if endpoint is Endpoint.CHAT else PLAIN
        prompt = self.canaries.prompt(tenant, characters, beginning, frame)
        parameters = self._parameters()
        leave = self._leave(parameters)
        return Ask(prompt, len(beginning), endpoint, overlong, parameters, leave)

    def _beginnings_of_one(self) -> tuple[str, ...]:
        return tuple(self.canaries.filler(characters) for characters in BEGINNING_CHARACTERS)

    def _length(self) -> tuple[bool, int]:
        """One of 20 is over-long, another is large."""
        lengths, kind = self._profile.lengths, self._random.randrange(20)
        if kind == 0:
            return True, self._random.choice(lengths.overlong)
        return False, self._random.choice(lengths.large if kind == 1 else lengths.ordinary)

    def _parameters(self) -> dict[str, Any]:
        choose = self._random
        drawn: dict[str, Any] = {
            "max_tokens": choose.choice(self._profile.max_tokens),
            "n": choose.choice((1, 1, 1, 2, 3)),
            "temperature": choose.choice((0.0, 0.5, 1.0)),
            "seed": choose.getrandbits(SAMPLING_SEED_BITS),
        }
        if choose.randrange(3):
            drawn["stop"] = END
        if choose.randrange(2):
            drawn |= {"stream": True, "stream_options": {"include_usage": True}}
        return drawn

    def _leave(self, parameters: dict[str, Any]) -> Leave:
        choose = self._random
        if choose.randrange(LEAVERS):
            return None
        if parameters.get("stream") and choose.randrange(2):
            most = min(parameters["max_tokens"], CANARY_CHARACTERS)
            return AfterChunks(choose.randrange(1, most))
        return AfterEnds(choose.randrange(12))
