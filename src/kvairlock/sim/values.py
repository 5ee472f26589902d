"""Sites as bytes: what never changes is named by a number, so that only what changes is written.

Most of a site is immutable: setups, tickets, messages, limits, names of peers. Each such value is
kept once, and stands as its number in the bytes of all states. Equal states have equal bytes, which
is how they are known again.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Hashable
from dataclasses import is_dataclass
from enum import Enum
from typing import Any

import numpy as np

Reduced = tuple[Callable[..., Any], tuple[Any, ...]]


def value_of(number: int) -> Any:
    """Stands in bytes for a value; `Values.read` finds the value itself."""
    raise LookupError(f"value {number} is read by `Values` only")


class Values:
    """The immutable values of all states of some sites."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[type, Hashable], int] = {}
        self._known: dict[int, int] = {}
        """By identity, for values that are kept: they are never hashed again."""
        self._values: list[Any] = []
        self._is_value: dict[type, bool] = {}
        self._globals: dict[tuple[str, str], Any] = {}
        self._usual = pickle.Unpickler(io.BytesIO())  # noqa: S301 reads nothing but what we wrote

    def write(self, thing: object) -> bytes:
        """Return a thing as bytes."""
        out = io.BytesIO()
        _Writer(out, self).dump(thing)
        return out.getvalue()

    def read(self, data: bytes) -> Any:
        """Return a copy of what was written; immutable parts are shared."""
        return _Reader(io.BytesIO(data), self).load()

    def reduce(self, thing: Any) -> Reduced | None:
        """Return how a thing is written, or None for the usual way."""
        number = self._known.get(id(thing))
        if number is not None:
            return value_of, (number,)
        kind = type(thing)
        if kind is np.ndarray:
            return np.ndarray, (thing.shape, thing.dtype.char, bytearray(thing.tobytes()))
        if not self._may_be_value(kind):
            return None
        try:
            return value_of, (self._number(kind, thing),)
        except TypeError:  # It is frozen, but holds something that is not.
            self._is_value[kind] = False
            return None

    def found(self, module: str, name: str) -> Any:
        """Return what a name in bytes stands for."""
        known = self._globals.get((module, name))
        if known is None:
            if name == "value_of":
                known = self._values.__getitem__
            else:
                known = self._usual.find_class(module, name)
            self._globals[module, name] = known
        return known

    def _may_be_value(self, kind: type) -> bool:
        known = self._is_value.get(kind)
        if known is None:
            frozen = is_dataclass(kind) and kind.__dataclass_params__.frozen  # type: ignore[attr-defined]
            known = self._is_value[kind] = frozen or issubclass(kind, Enum | type)
        return known

    def _number(self, kind: type, thing: Any) -> int:
        number = self._numbers.get((kind, thing))
        if number is None:
            number = self._numbers[kind, thing] = len(self._values)
            self._values.append(thing)
            self._known[id(thing)] = number
        return number


class _Writer(pickle.Pickler):
    def __init__(self, out: io.BytesIO, values: Values) -> None:
        super().__init__(out, pickle.HIGHEST_PROTOCOL)
        self._reduce = values.reduce

    def reducer_override(self, thing: Any) -> Any:
        reduced = self._reduce(thing)
        return NotImplemented if reduced is None else reduced


class _Reader(pickle.Unpickler):
    def __init__(self, data: io.BytesIO, values: Values) -> None:
        super().__init__(data)
        self._found = values.found

    def find_class(self, module: str, name: str) -> Any:
        return self._found(module, name)
