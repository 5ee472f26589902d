"""What `POST /v1/completions` reads in its own way: one prompt, as text or as token ids."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kvairlock.engine.tokenizer import Tokenizer
from kvairlock.gateway.asked import Offer
from kvairlock.gateway.errors import bad_request
from kvairlock.gateway.fields import Fields, is_whole, whole
from kvairlock.gateway.parameters import length, require_carriable

ALTERNATIVES_MAX = 5


class CompletionForm:
    """The body of a completion; see `kvairlock.gateway.parameters.Form`."""

    own = frozenset({"prompt"})

    def max_tokens(self, fields: Fields) -> int | None:
        """Return `max_tokens`, or None."""
        return length(fields, "max_tokens")

    def default_tokens(self, offer: Offer) -> int:
        """Return the default of completions."""
        return offer.max_tokens_default

    def alternatives(self, fields: Fields) -> int | None:
        """Return `logprobs`: here it is the number of alternatives."""
        return whole(fields, "logprobs", 0, ALTERNATIVES_MAX)

    def prompt(self, fields: Fields, tokenizer: Tokenizer) -> NDArray[np.int32]:
        """Return the tokens of `prompt`."""
        value = fields.get("prompt")
        if isinstance(value, str):
            tokens = tokenizer.encode(value)
        elif isinstance(value, list):
            tokens = _token_ids(value, tokenizer.vocab_size)
        else:
            raise bad_request("`prompt` must be a string or a list of token ids", "prompt")
        return require_carriable(tokens, "prompt")

    def unknown(self, fields: Fields) -> set[str]:
        """Return nothing: a prompt has no members."""
        return set()


def _token_ids(values: list[object], vocab_size: int) -> NDArray[np.int32]:
    if any(isinstance(value, str | list) for value in values):
        message = "`prompt` must be one prompt; several in one request are not supported"
        raise bad_request(message, "prompt", "several_prompts")
    ids = [value for value in values if is_whole(value)]
    if len(ids) != len(values):
        raise bad_request("`prompt` must be a string or a list of token ids", "prompt")
    if not all(0 <= token < vocab_size for token in ids):
        message = "`prompt` has a token id that is not in the model's vocabulary"
        raise bad_request(message, "prompt")
    return np.array(ids, dtype=np.int32)
