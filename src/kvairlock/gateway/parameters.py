"""From the members of a JSON object to a request that can be served, or to a 400 or 404.

    known and unsupported? -> length, sampling, likelihoods, stop, stream -> prompt

What both endpoints share is read here; a form reads what its endpoint has in its own way. The
prompt comes last: to turn it into tokens costs most.
"""

from __future__ import annotations

import secrets
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from kvairlock.core.messages import Sampling
from kvairlock.engine.tokenizer import Tokenizer
from kvairlock.gateway.asked import Asked, Offer
from kvairlock.gateway.errors import ApiError, Refused, bad_request, unknown_model
from kvairlock.gateway.fields import NUMBER_MAX, Fields, flag, number, whole
from kvairlock.gateway.unsupported import require_neutral, unknown

STOPS_MAX = 4
STOP_BYTES_MAX = 256
TEMPERATURE_MAX = 2
SEED_BITS = 63
PROMPT_TOKENS_MAX = 2**21
"""More would not fit into one frame between processes, at 4 bytes a token."""

READ = frozenset(
    {
        "model",
        "max_tokens",
        "n",
        "stop",
        "temperature",
        "top_p",
        "seed",
        "logprobs",
        "stream",
        "stream_options",
    }
)
"""What both endpoints read."""

LEAST_TOKENS = 1


class Form(Protocol):
    """What one endpoint reads in its own way. All methods raise Refused, 400."""

    @property
    def own(self) -> frozenset[str]:
        """Names of the parameters that only it reads."""

    def max_tokens(self, fields: Fields) -> int | None:
        """Return the length that the client wants, in tokens per choice, or None."""

    def default_tokens(self, offer: Offer) -> int:
        """Return the length of an answer whose client does not say."""

    def alternatives(self, fields: Fields) -> int | None:
        """Return how many likely tokens to state with each token, or None for no likelihoods."""

    def prompt(self, fields: Fields, tokenizer: Tokenizer) -> NDArray[np.int32]:
        """Return the prompt's token ids, int32 of shape (tokens,)."""

    def unknown(self, fields: Fields) -> set[str]:
        """Return the names of unknown members inside of its own parameters."""


def parse(fields: Fields, offer: Offer, form: Form) -> Asked:
    """Check a body whose transfer parameters were taken out.

    Args:
        fields: Members of the JSON object.
        offer: What is served.
        form: The endpoint's own way.

    Raises:
        Refused: 400 that names the parameter, 404 for an unknown model, 413 for a prompt that no
            message can carry.
    """
    reads = READ | form.own
    require_model(fields, offer.model)
    require_neutral(fields, reads)
    max_tokens = form.max_tokens(fields)
    stream = flag(fields, "stream")
    include_usage, unknown_options = _stream_options(fields, stream)
    return Asked(
        model=offer.model,
        max_tokens=max_tokens or form.default_tokens(offer),
        enough_tokens=max_tokens or LEAST_TOKENS,
        n=whole(fields, "n", 1, offer.choices_max) or 1,
        stop=_stop(fields),
        sampling=_sampling(fields, offer.temperature_default),
        alternatives=form.alternatives(fields),
        stream=stream,
        include_usage=include_usage,
        prompt_tokens=form.prompt(fields, offer.tokenizer),
        ignored=tuple(sorted(unknown(fields, reads) | unknown_options | form.unknown(fields))),
    )


def require_model(fields: Fields, served: str) -> None:
    """Refuse a request for another model.

    Raises:
        Refused: 400 if it names none, 404 if there is none of that name.
    """
    model = fields.get("model")
    if not isinstance(model, str) or not model:
        raise bad_request("`model` must be a string", "model")
    if model != served:
        raise unknown_model()


def length(fields: Fields, name: str) -> int | None:
    """Return a number of tokens to generate, or None.

    Raises:
        Refused: 400, it is something else.
    """
    return whole(fields, name, LEAST_TOKENS, NUMBER_MAX)


def require_carriable(tokens: NDArray[np.int32], name: str) -> NDArray[np.int32]:
    """Return the tokens of a prompt that a message can carry.

    Args:
        tokens: Token ids, int32 of shape (tokens,).
        name: The parameter that they were made of.

    Raises:
        Refused: 400 if there are none, 413 if they are too many.
    """
    if not len(tokens):
        raise bad_request(f"`{name}` must not be empty", name, "empty_prompt")
    if len(tokens) > PROMPT_TOKENS_MAX:
        message = f"`{name}` has {len(tokens)} tokens, at most {PROMPT_TOKENS_MAX} can be carried"
        raise Refused(ApiError(413, "prompt_too_large", message, name))
    return tokens


def _sampling(fields: Fields, temperature_default: float) -> Sampling:
    temperature = number(fields, "temperature", temperature_default, TEMPERATURE_MAX)
    top_p = number(fields, "top_p", 1, 1)
    if top_p == 0:
        raise bad_request("`top_p` must be over 0: it would leave no token to draw", "top_p")
    # Clients have signed and unsigned seeds of 64 bits: both are taken, one bit is dropped.
    seed = whole(fields, "seed", -(2**63), 2**64 - 1)
    if seed is None:
        seed = secrets.randbits(SEED_BITS)
    return Sampling(temperature, top_p, seed % 2**SEED_BITS)


def _stop(fields: Fields) -> tuple[bytes, ...]:
    value = fields.get("stop")
    stops = [] if value is None else [value] if isinstance(value, str) else value
    if not isinstance(stops, list) or len(stops) > STOPS_MAX:
        raise bad_request(f"`stop` must be a string or up to {STOPS_MAX} strings", "stop")
    if not all(isinstance(stop, str) and stop for stop in stops):
        raise bad_request("each `stop` must be a string that is not empty", "stop")
    encoded = tuple(stop.encode() for stop in stops)
    if any(len(stop) > STOP_BYTES_MAX for stop in encoded):
        raise bad_request(f"each `stop` may have up to {STOP_BYTES_MAX} bytes", "stop")
    return encoded


def _stream_options(fields: Fields, stream: bool) -> tuple[bool, set[str]]:
    """Return whether the usage is wanted, and the names of options that nobody here knows."""
    options = fields.get("stream_options")
    if options is None:
        return False, set()
    if not stream:
        raise bad_request("`stream_options` is only allowed with `stream`", "stream_options")
    usage = options.get("include_usage") if isinstance(options, dict) else options
    if not isinstance(options, dict) or not isinstance(usage, bool | None):
        message = "`stream_options` must be an object with a boolean `include_usage`"
        raise bad_request(message, "stream_options")
    others = {name for name, value in options.items() if name != "include_usage" and value}
    return bool(usage), {f"stream_options.{name}" for name in others}
