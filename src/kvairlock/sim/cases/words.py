"""The language of cases: phrases with holes, in tables that the reader and the docs share.

A hole is a word in capitals. What fits into it is said once, in `HOLES`; a hole with a closed list
takes no other word, and an error that names it lists them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Generic, TypeVar

from kvairlock.core.errors import KvairlockError, Reason
from kvairlock.core.evidence import EVENTS
from kvairlock.core.terms import LandingPolicy

T = TypeVar("T")
Fields = Mapping[str, str]
"""What was found in the holes of a phrase, by their names."""

NAME, REQUEST = r"[a-z][a-z0-9_]*", r"[a-z][a-z0-9_]*(?:/[1-9])?"
NODE = r"(?:prefill|decode)(?:-[2-9])?"

MESSAGES = (
    "grant",
    "receipt",
    "ruling",
    "withdrawal",
    "sign-off",
    "claim",
    "loan",
    "question",
    "answer",
    "return",
    "return slip",
)
"""What nodes say to each other: push, then pull."""

HOLES: dict[str, str | tuple[str, ...]] = {
    "TENANT": NAME,
    "REQUEST": REQUEST,
    "OTHER": REQUEST,
    "NODE": NODE,
    "PEER": NODE,
    "NUMBER": r"\d{1,6}",
    "MORE": r"\d{1,6}",
    "SCOPE": NAME,
    "PROMPT": NAME,
    "STEP": r".+",
    "MESSAGE": MESSAGES,
    "POLICY": tuple(LandingPolicy),
    "REASON": tuple(Reason),
    "EVENT": tuple(EVENTS),
}
"""What fits into each hole: an expression, or a closed list of words."""

_HOLE = re.compile("|".join(rf"\b{hole}\b" for hole in HOLES))
ANYTHING = "*"


class CaseError(KvairlockError):
    """A case cannot be read, or not be played: the message names file, line and what would do."""

    code = "case"

    def __init__(self, file: str, line: int, message: str) -> None:
        super().__init__(f"{file}:{line}: {message}")


@dataclass(frozen=True, slots=True)
class Phrase(Generic[T]):
    """One row of the language.

    Args:
        words: The phrase, with its holes.
        does: What it does or means, for people.
        means: What it does or means, for the program.
    """

    words: str
    does: str
    means: T

    @property
    def holes(self) -> list[str]:
        """The names of its holes, in order."""
        return _HOLE.findall(self.words)


class Vocabulary(Generic[T]):
    """A table of phrases.

    Args:
        rows: Its rows; of two that fit the first is taken.
    """

    def __init__(self, rows: tuple[Phrase[T], ...]) -> None:
        self.rows = rows
        self._exact = [_expression(row.words, "") for row in rows]
        self._loose = [_expression(row.words, rf"|{re.escape(ANYTHING)}") for row in rows]

    def read(self, text: str, pattern: bool = False) -> tuple[Phrase[T], Fields] | None:
        """Find the phrase of a line, and what is in its holes.

        Args:
            text: The line.
            pattern: Whether a hole may be filled with `*`.
        """
        for row, expression in zip(self.rows, self._loose if pattern else self._exact, strict=True):
            found = expression.fullmatch(text)
            if found is not None:
                return row, found.groupdict()
        return None

    def nearest(self, text: str, count: int = 3) -> str:
        """Return the phrases that are most like a line that fits none, with their closed lists."""
        likeness = {row: SequenceMatcher(None, text, row.words).ratio() for row in self.rows}
        rows = sorted(self.rows, key=lambda row: -likeness[row])[:count]
        return "\n".join(f"    {row.words}{_lists(row.holes)}" for row in rows)


def say(words: str, fields: Fields) -> str:
    """Fill the holes of a phrase."""
    return _HOLE.sub(lambda hole: fields[hole.group()], words)


def _expression(words: str, loose: str) -> re.Pattern[str]:
    """Return what a phrase looks like in a case."""
    parts, at = [], 0
    for hole in _HOLE.finditer(words):
        parts += [re.escape(words[at : hole.start()]), _group(hole.group(), loose)]
        at = hole.end()
    return re.compile("".join([*parts, re.escape(words[at:])]))


def _group(hole: str, loose: str) -> str:
    fits = HOLES[hole]
    expression = fits if isinstance(fits, str) else "|".join(map(re.escape, fits))
    return rf"(?P<{hole}>{expression}{loose})"


def _lists(holes: list[str]) -> str:
    """Say which words a phrase's holes are limited to."""
    closed = {hole: fits for hole in holes if isinstance(fits := HOLES[hole], tuple)}
    return "".join(f"\n        {hole}: {', '.join(fits)}" for hole, fits in closed.items())
