"""Members of a JSON object, read with their type and range; what is wrong is a 400 that names them.

Null is the same as leaving a member out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeGuard

from kvairlock.gateway.errors import bad_request

Fields = Mapping[str, object]
"""Members of a JSON object as they came, nothing checked."""

NUMBER_MAX = 2**31 - 1
"""Largest number of tokens, or of anything that is counted."""


def is_whole(value: object) -> TypeGuard[int]:
    """Return whether a JSON value is an integer; true and false are not."""
    return isinstance(value, int) and not isinstance(value, bool)


def whole(fields: Fields, name: str, least: int, most: int) -> int | None:
    """Return an integer, or None without it.

    Args:
        fields: The object.
        name: The member.
        least: Smallest value that is taken.
        most: Largest value that is taken.

    Raises:
        Refused: 400, it is something else.
    """
    value = fields.get(name)
    if value is None:
        return None
    if not is_whole(value):
        raise bad_request(f"`{name}` must be an integer", name)
    if not least <= value <= most:
        raise bad_request(f"`{name}` must be from {least} to {most}", name)
    return value


def number(fields: Fields, name: str, default: float, most: float) -> float:
    """Return a number from 0 to `most`.

    Raises:
        Refused: 400, it is something else.
    """
    value = fields.get(name)
    if value is None:
        return default
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise bad_request(f"`{name}` must be a number", name)
    if not 0 <= value <= most:
        raise bad_request(f"`{name}` must be from 0 to {most:g}", name)
    return float(value)


def flag(fields: Fields, name: str) -> bool:
    """Return whether a member is true.

    Raises:
        Refused: 400, it is neither true nor false.
    """
    value = fields.get(name)
    if value is not None and not isinstance(value, bool):
        raise bad_request(f"`{name}` must be true or false", name)
    return bool(value)
