"""The chat template of a GGUF file: how its model writes down a conversation.

A template is a program that came with the file. It runs in Jinja's sandbox, with what templates of
this family expect (`raise_exception`, loop controls, `tojson` that keeps letters) and nothing of
this process; in particular no clock, so the same conversation is always the same text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import NoReturn

from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from kvairlock.engine.llama.file import GgufFile
from kvairlock.engine.tokenizer import ChatMessage, ConversationRefused

KEY = "tokenizer.chat_template"


class ChatTemplate:
    """Writes conversations down.

    Args:
        source: The template's text; empty if the file has none.
        names: What the template may ask for by name: `bos_token` and `eos_token`.
    """

    def __init__(self, source: str, names: Mapping[str, str]) -> None:
        self.source = source
        self._template = _environment().from_string(source) if source else None
        self._names = names

    def render(self, messages: Sequence[ChatMessage]) -> str:
        """Write a conversation down, up to where the assistant's next turn begins.

        Raises:
            ConversationRefused: When the template has no form for these turns.
        """
        if self._template is None:
            raise ConversationRefused("this model has no chat template; send it a prompt instead")
        turns = [{"role": message.role, "content": message.content} for message in messages]
        try:
            return self._template.render(messages=turns, add_generation_prompt=True, **self._names)
        except ConversationRefused:
            raise
        except Exception as error:  # a template raises what the expressions in it raise
            kind = type(error).__name__
            raise ConversationRefused(f"this model's chat template failed ({kind})") from None


def read_template(file: GgufFile, names: Mapping[str, str]) -> ChatTemplate:
    """Read the template of a file.

    Args:
        file: The file.
        names: As `ChatTemplate` takes them.

    Raises:
        ModelUnusable: When it is no Jinja template.
    """
    if KEY not in file.metadata:
        return ChatTemplate("", names)
    try:
        return ChatTemplate(file.value(KEY, str), names)
    except (TemplateError, SyntaxError, RecursionError, MemoryError) as error:
        raise file.unusable(f"its chat template can't be read: {error}") from None


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.globals["raise_exception"] = _refuse
    environment.filters["tojson"] = _to_json
    return environment


def _refuse(reason: str) -> NoReturn:
    raise ConversationRefused(f"this model's chat template refuses it: {reason}")


def _to_json(value: object, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)
