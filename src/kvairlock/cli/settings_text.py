"""Settings written out as TOML: the effective ones for processes, and a commented example to edit.

The text is made from the types of `runtime.settings`, so that a setting and its documentation are
one thing. `settings.parse` reads back exactly what is written here.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from datetime import datetime
from enum import Enum
from typing import Any, TypeGuard

import msgspec
from msgspec import inspect

from kvairlock.runtime.settings import Settings

COMMENT_WIDTH = 98


def toml(settings: Settings, comments: bool = False) -> str:
    """Return settings as TOML, every value spelled out.

    Args:
        settings: What to write.
        comments: Whether each value gets its description and limits above it.
    """
    blocks = ["\n".join(lines) for lines in _tables("", "", settings, comments)]
    return "\n\n".join(blocks) + "\n"


def _tables(path: str, header: str, struct: msgspec.Struct, comments: bool) -> Iterator[list[str]]:
    """Yield the lines of a table, then those of the tables below it, whose names begin with its."""
    lines = [header] if header else []
    below: list[tuple[str, str, msgspec.Struct]] = []
    for field in _fields(struct):
        value, name = getattr(struct, field.name), f"{path}{field.name}"
        if isinstance(value, msgspec.Struct):
            below.append((f"{name}.", f"[{name}]", value))
        elif _are_structs(value):
            below += [(f"{name}.", f"[[{name}]]", item) for item in value]
        else:
            lines += _comment(field) if comments else []
            lines.append(f"{field.name} = {_value(value)}")
    yield lines
    for inner, title, item in below:
        yield from _tables(inner, title, item, comments)


def _fields(struct: msgspec.Struct) -> tuple[inspect.Field, ...]:
    described = inspect.type_info(type(struct))
    if not isinstance(described, inspect.StructType):
        raise TypeError(f"{type(struct).__name__} is no table of settings")
    return described.fields


def _are_structs(value: object) -> TypeGuard[tuple[msgspec.Struct, ...]]:
    if not isinstance(value, tuple) or not value:
        return False
    return all(isinstance(item, msgspec.Struct) for item in value)


def _value(value: Any) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(_value(item) for item in value)}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_value(key)} = {_value(item)}' for key, item in value.items())}}}"
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, datetime):
        return value.isoformat()
    # JSON writes these scalars as TOML does, but for one control character that TOML escapes.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F")


def _comment(field: inspect.Field) -> list[str]:
    kind, text = field.type, ""
    if isinstance(kind, inspect.Metadata):
        text = (kind.extra_json_schema or {}).get("description", "")
        kind = kind.type
    words = f"{text} {_limits(kind)}".strip()
    return [f"# {line}" for line in textwrap.wrap(words, COMMENT_WIDTH, break_on_hyphens=False)]


def _limits(kind: inspect.Type) -> str:
    """Return what a type allows, in brackets, or nothing."""
    if isinstance(kind, inspect.EnumType):
        return f"({' | '.join(str(member.value) for member in kind.cls)})"
    if isinstance(kind, inspect.VarTupleType) and isinstance(kind.item_type, inspect.EnumType):
        return f"(any of {', '.join(str(member.value) for member in kind.item_type.cls)})"
    if not isinstance(kind, inspect.IntType | inspect.FloatType):
        return ""
    bounds = (("over", kind.gt), ("at least", kind.ge), ("under", kind.lt), ("at most", kind.le))
    stated = [f"{word} {bound:g}" for word, bound in bounds if bound is not None]
    return f"({', '.join(stated)})" if stated else ""
