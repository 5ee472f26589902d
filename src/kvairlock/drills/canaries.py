"""Prompts with a canary: a random marker, unique per request, that only its own answer may show.

All prompts of one length have the same frame and end the same way, as chat templates do: so the
canary model, which continues what followed the same words before, answers with whatever canary its
pages hold.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

QUESTION = " SECRET:"
LETTERS = "abcdefghijklmnopqrstuvwxyz"
DIGITS = "0123456789abcdef"
CANARY_CHARACTERS = 16
END = "."


@dataclass(frozen=True, slots=True)
class Marked:
    """A prompt and the canary in it.

    Args:
        tenant: Whose prompt it is.
        text: The prompt.
        canary: The marker that it holds once.
    """

    tenant: str
    text: str
    canary: str


class Canaries:
    """Makes marked prompts from a seed.

    Args:
        seed: Equal seeds make equal prompts.
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.given: list[Marked] = []

    def prompt(self, tenant: str, characters: int) -> Marked:
        """Return a prompt of exactly `characters` ASCII characters, with a fresh canary."""
        canary = self._draw(DIGITS, CANARY_CHARACTERS)
        statement = f"{QUESTION}{canary}{END} "
        filler = characters - len(statement) - len(QUESTION)
        before = filler // 2
        head, tail = self._filler(before), self._filler(filler - before)
        marked = Marked(tenant, head + statement + tail + QUESTION, canary)
        self.given.append(marked)
        return marked

    def foreign(self, own: Marked, answer: str) -> tuple[Marked, ...]:
        """Return the prompts of others whose canary shows in an answer."""
        others = [m for m in self.given if m.canary != own.canary]
        return tuple(m for m in others if m.canary in answer)

    def _filler(self, characters: int) -> str:
        text = ""
        while len(text) < characters:
            text += self._draw(LETTERS, self._random.randint(2, 9)) + " "
        return text[:characters]

    def _draw(self, alphabet: str, count: int) -> str:
        return "".join(self._random.choice(alphabet) for _ in range(count))
