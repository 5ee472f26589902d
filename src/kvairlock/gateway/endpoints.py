"""The endpoints that generate: what each reads in its own way, and how it shows the answer."""

from __future__ import annotations

from dataclasses import dataclass

from kvairlock.gateway.chat import ChatForm
from kvairlock.gateway.completions import CompletionForm
from kvairlock.gateway.parameters import Form
from kvairlock.gateway.shapes import ChatShape, Shape, TextShape


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One endpoint.

    Args:
        path: Where it is.
        id_prefix: How the ids of its requests begin.
        form: How its body is read.
        shape: How its answer is shown.
    """

    path: str
    id_prefix: str
    form: Form
    shape: Shape


ENDPOINTS = (
    Endpoint("/v1/completions", "cmpl", CompletionForm(), TextShape()),
    Endpoint("/v1/chat/completions", "chatcmpl", ChatForm(), ChatShape()),
)
