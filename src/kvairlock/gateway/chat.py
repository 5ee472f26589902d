"""What `POST /v1/chat/completions` reads in its own way: a conversation of texts.

    messages -> ChatMessage each -> the model's own template -> token ids

The official client sends an assistant's former turn back with all its members; those that are null
or empty are passed over. What would be a different conversation without it is refused by its place,
`messages[1].content[0]`, never dropped.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kvairlock.core.messages import ALTERNATIVES_MAX
from kvairlock.engine.tokenizer import ChatMessage, ConversationRefused, Tokenizer
from kvairlock.gateway.asked import Offer
from kvairlock.gateway.errors import Refused, bad_request
from kvairlock.gateway.fields import Fields, flag, whole
from kvairlock.gateway.parameters import length, require_carriable

ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
"""The roles that are taken, and what each is to the model."""

UNSUPPORTED_ROLES = frozenset({"tool", "function"})
UNSUPPORTED_MEMBERS = ("tool_calls", "function_call", "tool_call_id", "refusal", "audio")
READ_MEMBERS = frozenset({"role", "content", *UNSUPPORTED_MEMBERS})


class ChatForm:
    """The body of a chat; see `kvairlock.gateway.parameters.Form`."""

    own = frozenset({"messages", "max_completion_tokens", "top_logprobs"})

    def max_tokens(self, fields: Fields) -> int | None:
        """Return `max_completion_tokens` or the older `max_tokens`, or None."""
        older = length(fields, "max_tokens")
        newer = length(fields, "max_completion_tokens")
        if older is not None and newer is not None and older != newer:
            message = "`max_completion_tokens` and `max_tokens` say different lengths"
            raise bad_request(message, "max_completion_tokens")
        return older if newer is None else newer

    def default_tokens(self, offer: Offer) -> int:
        """Return the default of chats."""
        return offer.chat_tokens_default

    def alternatives(self, fields: Fields) -> int | None:
        """Return `top_logprobs`; it needs `logprobs` to be true."""
        wanted = whole(fields, "top_logprobs", 0, ALTERNATIVES_MAX)
        if flag(fields, "logprobs"):
            return wanted or 0
        if wanted is not None:
            message = "`top_logprobs` is only allowed with `logprobs`: true"
            raise bad_request(message, "top_logprobs")
        return None

    def prompt(self, fields: Fields, tokenizer: Tokenizer) -> NDArray[np.int32]:
        """Return the tokens of `messages`, up to where the assistant's next turn begins."""
        messages = _conversation(fields.get("messages"))
        try:
            tokens = tokenizer.encode_chat(messages)
        except ConversationRefused as error:
            message = f"the model's chat template has no form for this conversation: {error}"
            raise bad_request(message, "messages", "conversation_refused") from None
        return require_carriable(tokens, "messages")

    def unknown(self, fields: Fields) -> set[str]:
        """Return the members of messages that nobody here knows, once each."""
        messages = fields.get("messages")
        turns = messages if isinstance(messages, list) else []
        told = {name for turn in turns for name, value in turn.items() if value}
        return {f"messages.{name}" for name in told - READ_MEMBERS}


def _conversation(value: object) -> list[ChatMessage]:
    if not isinstance(value, list) or not value:
        raise bad_request("`messages` must be a list with at least one message", "messages")
    messages = [_message(f"messages[{i}]", each) for i, each in enumerate(value)]
    if messages[-1].role == "assistant":
        message = "the last message is the assistant's; continuing it is not supported"
        raise _unsupported(f"messages[{len(messages) - 1}]", message)
    return messages


def _message(place: str, value: object) -> ChatMessage:
    if not isinstance(value, dict):
        raise bad_request(f"`{place}` must be an object", place)
    role = _role(f"{place}.role", value.get("role"))
    for name in UNSUPPORTED_MEMBERS:
        if value.get(name):
            raise _unsupported(f"{place}.{name}", "only texts are supported")
    return ChatMessage(role, _content(f"{place}.content", value.get("content")))


def _role(place: str, value: object) -> str:
    if not isinstance(value, str) or value not in ROLES.keys() | UNSUPPORTED_ROLES:
        raise bad_request(f"`{place}` must be one of: {', '.join(ROLES)}", place)
    if value in UNSUPPORTED_ROLES:
        raise _unsupported(place, "tools are not supported")
    return ROLES[value]


def _content(place: str, value: object) -> str:
    if isinstance(value, str):
        return value
    if not isinstance(value, list) or not value:
        raise bad_request(f"`{place}` must be a string or a list of text parts", place)
    # A line break keeps the words of two parts apart, as other servers of open models do.
    return "\n".join(_part(f"{place}[{i}]", each) for i, each in enumerate(value))


def _part(place: str, value: object) -> str:
    kind = value.get("type") if isinstance(value, dict) else None
    if not isinstance(value, dict) or not isinstance(kind, str):
        raise bad_request(f"`{place}` must be an object with a `type`", place)
    if kind != "text":
        raise _unsupported(place, "only parts of type `text` are supported")
    text = value.get("text")
    if not isinstance(text, str):
        raise bad_request(f"`{place}.text` must be a string", f"{place}.text")
    return text


def _unsupported(place: str, why: str) -> Refused:
    return bad_request(f"`{place}`: {why}", place, "unsupported_content")
