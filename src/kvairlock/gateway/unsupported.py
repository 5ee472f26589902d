"""Parameters that are known and not supported: refused by name where they would change the answer.

A client must be able to trust that what it asked for was done. So a parameter of the OpenAI API, or
one that vLLM and SGLang added to it, is refused unless its value says what happens anyway. What
nobody here knows is ignored and reported back by name.
"""

from __future__ import annotations

from collections.abc import Iterable

from kvairlock.gateway.errors import bad_request
from kvairlock.gateway.fields import Fields

NEUTRAL: dict[str, tuple[object, ...]] = {
    # How tokens are drawn.
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "repetition_penalty": (1,),
    "logit_bias": ({},),
    "top_k": (-1, 0),
    "min_p": (0,),
    "best_of": (1,),
    "use_beam_search": (False,),
    "length_penalty": (1,),
    "allowed_token_ids": ([],),
    "bad_words": ([],),
    "logits_processors": ([],),
    "custom_logit_processor": (),
    # Where an answer ends, and what of it is shown.
    "min_tokens": (0,),
    "ignore_eos": (False,),
    "stop_token_ids": ([],),
    "stop_regex": ([],),
    "no_stop_trim": (False,),
    "include_stop_str_in_output": (False,),
    "skip_special_tokens": (True,),
    "spaces_between_special_tokens": (True,),
    "echo": (False,),
    "suffix": ("",),
    "prompt_logprobs": (),
    "return_token_ids": (False,),
    "return_tokens_as_token_ids": (False,),
    "return_hidden_states": (False,),
    # What the answer may look like.
    "response_format": ({"type": "text"},),
    "structured_outputs": (),
    "guided_json": (),
    "guided_regex": (),
    "guided_choice": (),
    "guided_grammar": (),
    "json_schema": (),
    "regex": (),
    "ebnf": (),
    # What the prompt is made of.
    "messages": (),
    "prompt": (),
    "prompt_embeds": (),
    "truncate_prompt_tokens": (),
    "add_special_tokens": (),
    "chat_template": (),
    "chat_template_kwargs": ({},),
    "add_generation_prompt": (True,),
    "continue_final_message": (False,),
    "documents": ([],),
    "mm_processor_kwargs": ({},),
    "lora_path": (),
    # Parameters of one endpoint that a client of the other may expect to work.
    "max_completion_tokens": (),
    "top_logprobs": (),
    # More than a text, or from elsewhere than from the model.
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "parallel_tool_calls": (True, False),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "modalities": (["text"],),
    "audio": (),
    "prediction": (),
    "moderation": (),
    "web_search_options": (),
    "reasoning_effort": ("none",),
    "verbosity": ("medium",),
    # How it is served.
    "service_tier": ("auto", "default"),
    "store": (False,),
    "cache_salt": (),
}
"""Values at which a parameter changes nothing; null is one for all. Tools that are not there are
not called, however they are to be called."""

WITHOUT_EFFECT = frozenset(
    {
        "user",
        "metadata",
        "safety_identifier",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
    }
)
"""Accepted as they are: end users are not recorded, nothing is stored, and what is kept in memory
for whom is the API key's to say."""

NAMES_MAX = 16
NAME_CHARACTERS_MAX = 64


def require_neutral(fields: Fields, reads: frozenset[str]) -> None:
    """Refuse what would change the answer and is not supported.

    Args:
        fields: The body.
        reads: Names that the endpoint reads itself.

    Raises:
        Refused: 400 that names all of them.
    """
    names = [name for name in NEUTRAL if name in fields and name not in reads]
    odd = [name for name in names if not _is_neutral(name, fields[name])]
    if not odd:
        return
    listed = ", ".join(f"`{name}`" for name in odd)
    raise bad_request(f"not supported at this value: {listed}", odd[0], "unsupported_parameter")


def unknown(fields: Fields, reads: frozenset[str]) -> set[str]:
    """Return the names of parameters that nobody here knows."""
    return set(fields) - reads - WITHOUT_EFFECT - set(NEUTRAL)


def header_names(names: Iterable[str]) -> str:
    """Return parameter names as a header value: bounded, and free of anything but plain words."""
    listed = list(names)
    words = ["".join(map(_plain, name[:NAME_CHARACTERS_MAX])) for name in listed[:NAMES_MAX]]
    return ", ".join(words + ["..."] * (len(listed) > NAMES_MAX))


def _is_neutral(name: str, value: object) -> bool:
    # In Python true equals 1.
    same = (n for n in NEUTRAL[name] if isinstance(n, bool) is isinstance(value, bool))
    return value is None or value in same


def _plain(character: str) -> str:
    return character if character.isascii() and (character.isalnum() or character in "_-.") else "?"
