"""The body of `POST /v1/completions`, from bytes to a request that can be served, or to a 400.

    bytes -> JSON object -> transfer parameters taken out -> each parameter checked -> request

The model decodes greedily. A known parameter that would change the output is refused by name rather
than ignored; an unknown one is ignored and reported back. What steers a transfer between nodes is
never a client's to say: it is taken out before anything else is looked at.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from kvairlock.core.promise.capacity import Demand
from kvairlock.engine.tokenizer import Tokenizer
from kvairlock.gateway.errors import ApiError, Refused, bad_request

STOPS_MAX = 4
STOP_BYTES_MAX = 256
NUMBER_MAX = 2**31 - 1
PROMPT_TOKENS_MAX = 2**21
"""More would not fit into one frame between processes, at 4 bytes a token."""

TRANSFER_PARAMETERS = frozenset(
    {
        "kv_transfer_params",
        "bootstrap_host",
        "bootstrap_port",
        "bootstrap_room",
        "data_parallel_rank",
        "disagg_prefill_dp_rank",
        "routed_dp_rank",
        "vllm_xargs",
    }
)
"""With these, serving engines let a request say where its cache comes from or goes to."""

READ = frozenset({"model", "prompt", "max_tokens", "n", "stop", "stream", "stream_options"})
WITHOUT_EFFECT = frozenset({"seed", "user"})
"""Accepted as they are: greedy decoding draws nothing, and who the end user is is not recorded."""

_NUMBERS = {
    "temperature": 0,
    "top_p": 1,
    "best_of": 1,
    "frequency_penalty": 0,
    "presence_penalty": 0,
}
_VALUES: dict[str, object] = {"logprobs": None, "echo": False, "logit_bias": {}, "suffix": ""}

NEUTRAL: dict[str, object] = {**_NUMBERS, **_VALUES}
"""Known parameters that only have an effect at other values; null is neutral for all."""


@dataclass(frozen=True, slots=True)
class Offer:
    """What this gateway serves.

    Args:
        model: The one model's name.
        tokenizer: Turns its text into token ids.
        max_tokens_default: Tokens to generate when a request does not say.
        choices_max: Largest `n`.
    """

    model: str
    tokenizer: Tokenizer
    max_tokens_default: int
    choices_max: int


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """A completion that can be served.

    Args:
        model: The model's name.
        prompt_tokens: Token ids of the prompt, int32 of shape (tokens,).
        max_tokens: Tokens to generate per choice, at most.
        n: How many choices.
        stop: Byte strings that end a choice.
        stream: Whether the answer is sent as it comes.
        include_usage: Whether a stream ends with the usage.
        ignored: Names of parameters that nobody here knows.
    """

    model: str
    prompt_tokens: NDArray[np.int32]
    max_tokens: int
    n: int
    stop: tuple[bytes, ...]
    stream: bool
    include_usage: bool
    ignored: tuple[str, ...]

    @property
    def demand(self) -> Demand:
        """What it needs from a route."""
        return Demand(len(self.prompt_tokens), self.max_tokens, self.n)


def read_object(body: bytes) -> dict[str, object]:
    """Return the members of the JSON object that a body is; of a repeated name the last counts.

    Raises:
        Refused: 400, it is something else.
    """
    try:
        value: object = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        cause = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        message = f"the request body is not JSON: {cause}"
        raise bad_request(message, code="malformed_json") from None
    if not isinstance(value, dict):
        raise bad_request("the request body is not a JSON object", code="malformed_json")
    return value


def strip(fields: dict[str, object]) -> dict[str, object]:
    """Take the parameters that steer transfers out of a body, and return them."""
    return {name: fields.pop(name) for name in sorted(TRANSFER_PARAMETERS & set(fields))}


def believed_ticket(stripped: dict[str, object]) -> bytes | None:
    """Return the ticket in a client's transfer parameters. Only drills ever ask for it.

    Raises:
        Refused: 400, there is one that is not base64url.
    """
    parameters = stripped.get("kv_transfer_params")
    ticket = parameters.get("ticket") if isinstance(parameters, dict) else None
    if not isinstance(ticket, str):
        return None
    try:
        return base64.b64decode(ticket.encode(), altchars=b"-_", validate=True)
    except (binascii.Error, UnicodeError, ValueError):
        raise bad_request("the ticket is not base64url", "kv_transfer_params") from None


def parse(fields: dict[str, object], offer: Offer) -> CompletionRequest:
    """Check a body whose transfer parameters were taken out.

    Args:
        fields: Members of the JSON object.
        offer: What is served.

    Raises:
        Refused: 400 that names the parameter, 404 for an unknown model, 413 for a prompt that no
            message can carry.
    """
    model = _model(fields, offer.model)
    _require_neutral(fields)
    stream = _flag(fields, "stream")
    return CompletionRequest(
        model=model,
        prompt_tokens=_prompt(fields, offer.tokenizer),
        max_tokens=_whole(fields, "max_tokens", offer.max_tokens_default, NUMBER_MAX),
        n=_whole(fields, "n", 1, offer.choices_max),
        stop=_stop(fields),
        stream=stream,
        include_usage=_include_usage(fields, stream),
        ignored=tuple(sorted(set(fields) - READ - WITHOUT_EFFECT - set(NEUTRAL))),
    )


def _model(fields: dict[str, object], served: str) -> str:
    model = fields.get("model")
    if not isinstance(model, str) or not model:
        raise bad_request("`model` must be a string", "model")
    if model != served:
        raise unknown_model()
    return model


def unknown_model() -> Refused:
    """Return the 404 of a model that is not served here."""
    message = "this model does not exist here; GET /v1/models lists what does"
    return Refused(ApiError(404, "model_not_found", message, "model"))


def _require_neutral(fields: dict[str, object]) -> None:
    odd = [name for name in NEUTRAL if name in fields and not _is_neutral(name, fields[name])]
    if not odd:
        return
    names = ", ".join(f"`{name}`" for name in odd)
    message = f"not supported at this value (the model decodes greedily): {names}"
    raise bad_request(message, odd[0], "unsupported_parameter")


def _is_neutral(name: str, value: object) -> bool:
    if value is None:
        return True
    if name in _NUMBERS:
        return _is_number(value) and value == _NUMBERS[name]
    return type(value) is type(_VALUES[name]) and value == _VALUES[name]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _whole(fields: dict[str, object], name: str, default: int, most: int) -> int:
    value = fields.get(name)
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool):
        raise bad_request(f"`{name}` must be an integer", name)
    if not 1 <= value <= most:
        raise bad_request(f"`{name}` must be from 1 to {most}", name)
    return value


def _flag(fields: dict[str, object], name: str) -> bool:
    value = fields.get(name)
    if value is not None and not isinstance(value, bool):
        raise bad_request(f"`{name}` must be true or false", name)
    return bool(value)


def _include_usage(fields: dict[str, object], stream: bool) -> bool:
    options = fields.get("stream_options")
    if options is None:
        return False
    if not stream:
        raise bad_request("`stream_options` is only allowed with `stream`", "stream_options")
    usage = options.get("include_usage") if isinstance(options, dict) else options
    if usage is not None and not isinstance(usage, bool):
        message = "`stream_options` must be an object with a boolean `include_usage`"
        raise bad_request(message, "stream_options")
    return bool(usage)


def _stop(fields: dict[str, object]) -> tuple[bytes, ...]:
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


def _prompt(fields: dict[str, object], tokenizer: Tokenizer) -> NDArray[np.int32]:
    value = fields.get("prompt")
    if isinstance(value, str):
        tokens = tokenizer.encode(value)
    elif isinstance(value, list):
        tokens = _token_ids(value, tokenizer)
    else:
        raise bad_request("`prompt` must be a string or a list of token ids", "prompt")
    if not len(tokens):
        raise bad_request("`prompt` must not be empty", "prompt", "empty_prompt")
    if len(tokens) > PROMPT_TOKENS_MAX:
        message = f"`prompt` has {len(tokens)} tokens, at most {PROMPT_TOKENS_MAX} can be carried"
        raise Refused(ApiError(413, "prompt_too_large", message, "prompt"))
    return tokens


def _token_ids(values: list[object], tokenizer: Tokenizer) -> NDArray[np.int32]:
    if any(isinstance(value, str | list) for value in values):
        message = "`prompt` must be one prompt; several in one request are not supported"
        raise bad_request(message, "prompt", "several_prompts")
    if not all(type(value) is int and 0 <= value <= NUMBER_MAX for value in values):
        raise bad_request("`prompt` must be a string or a list of token ids", "prompt")
    tokens = np.array(values, dtype=np.int32)
    try:
        tokenizer.decode(tokens)
    except ValueError:
        message = "`prompt` has a token id that is not in the model's vocabulary"
        raise bad_request(message, "prompt") from None
    return tokens


NAMES_MAX = 16
NAME_CHARACTERS_MAX = 64


def header_names(names: Iterable[str]) -> str:
    """Return parameter names as a header value: bounded, and free of anything but plain words."""
    listed = list(names)
    words = ["".join(map(_plain, name[:NAME_CHARACTERS_MAX])) for name in listed[:NAMES_MAX]]
    return ", ".join(words + ["..."] * (len(listed) > NAMES_MAX))


def _plain(character: str) -> str:
    return character if character.isascii() and (character.isalnum() or character in "_-.") else "?"
