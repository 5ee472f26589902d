"""The engine of prompts, which prefill has, and decode for what it computes itself.

A prompt is one chunk: where it is cut changes nothing that is shown. A chunk that was begun ends,
whatever became of its request, and stores what it computed where it was told to.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from kvairlock.core.terms import Pages, TransferId
from kvairlock.sim.bytes import Slots, prompt_slots, put, slot_of
from kvairlock.sim.setup import Ask, Flaw, Setup
from kvairlock.sim.stimuli import Work

BEGINS, ENDS = "chunk begins", "chunk ends"


@dataclass(slots=True)
class Prompt:
    """A prompt in the engine.

    Args:
        ask: Whose content it is.
        table: Its pages in token order, shape (pages,).
        position: First token to compute.
        stop: One after the last.
        flaw: What is done wrong with it.
        begun: Whether its chunk is under way: then it ends.
    """

    ask: Ask
    table: Pages
    position: int
    stop: int
    flaw: Flaw = Flaw.NONE
    begun: bool = False


class Prompts:
    """The prompts of one site's engine."""

    def __init__(self) -> None:
        self.open: dict[TransferId, Prompt] = {}

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.open)

    def start(self, name: TransferId, prompt: Prompt) -> None:
        """Take a prompt, unless all of it was computed before."""
        if prompt.position < prompt.stop:
            self.open[name] = prompt

    def stop(self, name: TransferId) -> None:
        """Forget a prompt, unless its chunk is under way."""
        prompt = self.open.get(name)
        if prompt is not None and not prompt.begun:
            del self.open[name]

    def menu(self) -> Iterator[Work]:
        """The chunks that can begin or end."""
        for name, prompt in self.open.items():
            yield Work(ENDS if prompt.begun else BEGINS, name)

    def begin(self, name: TransferId) -> None:
        """Begin a chunk."""
        self.open[name].begun = True

    def end(self, setup: Setup, memory: Slots, name: TransferId) -> Prompt:
        """End a chunk: its tokens are in the pages."""
        prompt = self.open.pop(name)
        if prompt.flaw not in (Flaw.REJECTED, Flaw.IDLE):
            put(memory, prompt.table, prompt.position, _computed(setup, prompt))
        return prompt


def _computed(setup: Setup, prompt: Prompt) -> Slots:
    """What the engine stores, shape (tokens,): as it must be, or as a flaw has it."""
    ask, start, stop = prompt.ask, prompt.position, prompt.stop
    match prompt.flaw:
        case Flaw.OTHERS_REQUEST | Flaw.OTHERS_INPUT:
            return prompt_slots(setup.tag(setup.other(ask)), start, stop)
        case Flaw.LAYOUT:
            return prompt_slots(setup.tag(ask), start, stop)[::-1]
        case Flaw.SHORT:
            return prompt_slots(setup.tag(ask), start, stop - 1)
        case Flaw.PADDED:
            whole = -(-stop // setup.page_tokens) * setup.page_tokens
            padding = prompt_slots(setup.tag(setup.other(ask)), stop, whole)
            return np.concatenate([prompt_slots(setup.tag(ask), start, stop), padding])
    return prompt_slots(setup.tag(ask), start, stop)


def generated_slot(setup: Setup, ask: Ask, position: int) -> Slots:
    """Return what a decode step stores for a token of an answer, shape (1,)."""
    return np.array([slot_of(setup.tag(ask), position)], dtype=np.int32)
