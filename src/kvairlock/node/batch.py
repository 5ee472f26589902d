"""The batch of a decode node: who takes part in a step, and the step itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import structlog

from kvairlock.core.messages import Alternative, Score
from kvairlock.core.terms import TransferId
from kvairlock.engine.cache import PagedCache
from kvairlock.engine.model import Model
from kvairlock.engine.sampling import Logits, draw, likelihoods
from kvairlock.node.answers import Answer, Answers, Drawn
from kvairlock.node.turns import Turns
from kvairlock.runtime.failpoints import Failpoint, Failpoints

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Seat:
    """One choice of one request in a step."""

    answers: Answers
    choice: int

    @property
    def answer(self) -> Answer:
        """What it generates."""
        return self.answers.choices[self.choice]


class Batch:
    """The requests that a decode node generates for; they join and leave between steps.

    Args:
        model: The model.
        cache: The pages that it reads.
        points: Where drills hold a step.
        seats_max: Choices in one step, at most.
    """

    def __init__(self, model: Model, cache: PagedCache, points: Failpoints, seats_max: int) -> None:
        self._model, self._cache, self._points = model, cache, points
        self._seats_max = seats_max
        self._active: dict[TransferId, Answers] = {}
        self._turns: Turns[Seat] = Turns()

    @property
    def names(self) -> tuple[TransferId, ...]:
        """The requests in the batch."""
        return tuple(self._active)

    def add(self, answers: Answers) -> None:
        """Let a request join."""
        self._active[answers.transfer] = answers
        for choice in range(len(answers.choices)):
            self._turns.add(answers.tenant, Seat(answers, choice))

    def drop(self, name: TransferId) -> None:
        """Let a request leave, if it is there."""
        self._active.pop(name, None)

    def has(self, answers: Answers) -> bool:
        """Whether a request is still in the batch, this very one and not a later of its name."""
        return self._active.get(answers.transfer) is answers

    def seats(self) -> list[Seat]:
        """Choose who takes part: tenants in turn, so that each has its share of the seats."""
        self._turns.keep(lambda seat: self.has(seat.answers) and not seat.answer.finish)
        count = min(self._seats_max, len(self._turns))
        chosen = [self._turns.take() for _ in range(count)]
        for seat in chosen:
            self._turns.add(seat.answers.tenant, seat)
        return chosen

    def step(self, seats: Sequence[Seat]) -> Sequence[Drawn | None]:
        """Generate one token per seat, in a thread; None where the engine failed.

        Args:
            seats: Who takes part, at least one.
        """
        names = ",".join(dict.fromkeys(seat.answers.transfer for seat in seats))
        self._points.reach(Failpoint.DECODE_STEP, names)
        drawn = self._forward(seats)
        if drawn is not None:
            return drawn
        # What one row does must cost no other: each is run alone, over the same positions.
        alone = [self._forward([seat]) for seat in seats]
        return [one[0] if one is not None else None for one in alone]

    def _forward(self, seats: Sequence[Seat]) -> list[Drawn] | None:
        try:
            logits = self._model.forward([seat.answer.row() for seat in seats], self._cache)
            return self._draw(seats, logits)
        except Exception as error:  # whatever the engine raises ends that request
            log.error("the engine failed", rows=len(seats), error=type(error).__name__)
            return None

    def _draw(self, seats: Sequence[Seat], logits: Logits) -> list[Drawn]:
        tokens = draw(
            logits,
            [seat.answers.sampling for seat in seats],
            [seat.choice for seat in seats],
            [seat.answer.place for seat in seats],
        )
        return [
            Drawn(token, self._text(token), self._score(row, token, seat.answers.alternatives))
            for row, token, seat in zip(logits, tokens.tolist(), seats, strict=True)
        ]

    def _score(self, logits: Logits, token: int, count: int | None) -> Score | None:
        if count is None:
            return None
        taken, likeliest = likelihoods(logits, token, count)
        alternatives = [Alternative(self._text(one.token), one.logprob) for one in likeliest]
        return Score(self._text(token), taken.logprob, tuple(alternatives))

    def _text(self, token: int) -> bytes:
        return self._model.tokenizer.decode(np.array([token], dtype=np.int32))
