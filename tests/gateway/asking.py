"""Bodies of both endpoints as tests write them: a valid one, changed in what the test is about."""

from __future__ import annotations

import numpy as np
import pytest

from kvairlock.core.messages import GREEDY
from kvairlock.engine.model import load_tokenizer
from kvairlock.gateway.asked import Asked, Offer
from kvairlock.gateway.chat import ChatForm
from kvairlock.gateway.completions import CompletionForm
from kvairlock.gateway.errors import ApiError, Refused
from kvairlock.gateway.parameters import READ, Form, parse

OFFER = Offer(
    model="recall",
    tokenizer=load_tokenizer("recall"),
    max_tokens_default=16,
    chat_tokens_default=256,
    temperature_default=0.0,
    choices_max=8,
)
COMPLETION, CHAT = CompletionForm(), ChatForm()
FORMS: tuple[Form, ...] = (COMPLETION, CHAT)
VALID: dict[str, dict[str, object]] = {
    "CompletionForm": {"model": "recall", "prompt": "hi"},
    "ChatForm": {"model": "recall", "messages": [{"role": "user", "content": "hi"}]},
}

each_form = pytest.mark.parametrize("form", FORMS, ids=["completion", "chat"])


def valid(form: Form) -> dict[str, object]:
    """Return a valid body of a form."""
    return VALID[type(form).__name__]


def reads(form: Form) -> frozenset[str]:
    """Return the names that a form's endpoint reads."""
    return READ | form.own


def parsed(form: Form, /, **fields: object) -> Asked:
    """Return what a valid body with some other members asks for."""
    return parse({**valid(form), **fields}, OFFER, form)


def refused(form: Form, /, **fields: object) -> ApiError:
    """Return the error of a valid body with some other members."""
    with pytest.raises(Refused) as caught:
        parsed(form, **fields)
    return caught.value.error


def asked(
    n: int = 1,
    alternatives: int | None = None,
    *,
    include_usage: bool = False,
    max_tokens: int = 5,
    enough_tokens: int = 5,
) -> Asked:
    """Return a request for an answer to two tokens."""
    return Asked(
        model="recall",
        prompt_tokens=np.array([1, 2], dtype=np.int32),
        max_tokens=max_tokens,
        enough_tokens=enough_tokens,
        n=n,
        stop=(b"x",),
        sampling=GREEDY,
        alternatives=alternatives,
        stream=False,
        include_usage=include_usage,
        ignored=(),
    )
