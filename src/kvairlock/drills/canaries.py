"""Prompts with a canary: a random marker, unique per request, that only its own answer may show.

All prompts of one length have the same frame and end the same way, as chat templates do: so the
canary model, which continues what followed the same words before, answers with whatever canary its
pages hold.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass

QUESTION = " SECRET:"
LETTERS = "abcdefghijklmnopqrstuvwxyz"
DIGITS = "0123456789abcdef"
CANARY_CHARACTERS = 16
END = "."


@dataclass(frozen=True, slots=True)
class Frame:
    """How a canary is stated, and asked for.

    Args:
        label: What stands before the canary.
        question: What ends the prompt; empty if the model's chat template asks by itself.
    """

    label: str
    question: str


PLAIN = Frame(QUESTION, QUESTION)
TURN = Frame(" assistant:", "")
"""In a conversation with the canary model, whose template ends with `assistant:`."""

FRAME_CHARACTERS = len(f"{PLAIN.label}{END} {PLAIN.question}") + CANARY_CHARACTERS
"""The shortest prompt: a canary, and the question for it."""


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
        known: Prompts of earlier ones, whose canaries would be foreign too.
    """

    def __init__(self, seed: int | str, known: Iterable[Marked] = ()) -> None:
        self._random = random.Random(seed)
        self._given = {marked.canary: marked for marked in known}

    @property
    def given(self) -> tuple[Marked, ...]:
        """All prompts that are known, in order."""
        return tuple(self._given.values())

    def prompt(
        self, tenant: str, characters: int, beginning: str = "", frame: Frame = PLAIN
    ) -> Marked:
        """Return a prompt with a fresh canary.

        Args:
            tenant: Whose it is.
            characters: Its length in ASCII characters, exactly; enough for beginning and frame.
            beginning: How it begins, as other prompts of the tenant may.
            frame: How the canary is stated and asked for.
        """
        canary = self._draw(DIGITS, CANARY_CHARACTERS)
        statement = f"{frame.label}{canary}{END} "
        filler = characters - len(beginning) - len(statement) - len(frame.question)
        before = filler // 2
        head, tail = self.filler(before), self.filler(filler - before)
        text = beginning + head + statement + tail + frame.question
        marked = Marked(tenant, text, canary)
        self._given[canary] = marked
        return marked

    def foreign(self, own: Marked, answer: str) -> tuple[Marked, ...]:
        """Return the prompts of others whose canary shows in an answer, in order of showing."""
        starts = range(len(answer) - CANARY_CHARACTERS + 1)
        shown = dict.fromkeys(answer[at : at + CANARY_CHARACTERS] for at in starts)
        found = [self._given[piece] for piece in shown if piece in self._given]
        return tuple(marked for marked in found if marked.canary != own.canary)

    def filler(self, characters: int) -> str:
        """Return so many characters of words without a meaning."""
        text = ""
        while len(text) < characters:
            text += self._draw(LETTERS, self._random.randint(2, 9)) + " "
        return text[:characters]

    def _draw(self, alphabet: str, count: int) -> str:
        return "".join(self._random.choice(alphabet) for _ in range(count))
