"""The texts in a message, however deep: each has a bound, since they end up in tables and files.

    kind of message --once--> which fields can hold text --each message--> the texts in it

A message with thousands of numbers is not searched for the few names in it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from enum import Enum
from functools import cache
from itertools import chain
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

Find = Callable[[Any], Iterator[str]]
"""Finds the texts in a value of one type."""


def texts_in(said: Any) -> Iterator[str]:
    """Return all texts in a message.

    Args:
        said: A dataclass of plain values, enums, dataclasses, optional ones, `tuple[T, ...]` and
            dicts of them.
    """
    kind: Any = type(said)
    return _finder(kind)(said)


@cache
def _finder(hint: Any) -> Find:
    """Return what finds the texts in values of a type."""
    hint = getattr(hint, "__supertype__", hint)
    inner = [h for h in get_args(hint) if h is not ... and h is not NoneType]
    if hint is str:
        return lambda value: iter((value,))
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return _in_fields(hint)
    if get_origin(hint) is dict:
        return _in_pairs(*map(_finder, inner))
    if len(inner) == 1 and get_origin(hint) is tuple:
        return _in_items(inner[0])
    if len(inner) == 1 and get_origin(hint) in (Union, UnionType):
        return _in_optional(inner[0])
    if isinstance(hint, type) and (issubclass(hint, Enum) or hint in (int, float, bytes, bool)):
        return _nothing
    raise TypeError(f"nobody knows where texts are in {hint}")


def _nothing(value: Any) -> Iterator[str]:
    """Find no text: there is none in numbers and bytes, and members of enums are closed."""
    return iter(())


def _in_items(hint: Any) -> Find:
    find = _finder(hint)
    if find is _nothing:
        return _nothing
    return lambda values: chain.from_iterable(map(find, values))


def _in_optional(hint: Any) -> Find:
    find = _finder(hint)
    if find is _nothing:
        return _nothing
    return lambda value: iter(()) if value is None else find(value)


def _in_pairs(keys: Find, values: Find) -> Find:
    return lambda pairs: chain.from_iterable(
        chain(keys(key), values(value)) for key, value in pairs.items()
    )


def _in_fields(kind: type[Any]) -> Find:
    found = {name: _finder(hint) for name, hint in get_type_hints(kind).items()}
    fields = [(name, find) for name, find in found.items() if find is not _nothing]
    if not fields:
        return _nothing
    return lambda value: chain.from_iterable(find(getattr(value, name)) for name, find in fields)
