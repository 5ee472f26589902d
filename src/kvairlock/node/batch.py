"""The batch of a decode node: who takes part in a step, and the step itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from kvairlock.core.terms import TransferId
from kvairlock.engine.cache import PagedCache
from kvairlock.engine.model import Model
from kvairlock.engine.sampling import greedy
from kvairlock.node.answers import Answers
from kvairlock.runtime.failpoints import Failpoint, Failpoints

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Seat:
    """One choice of one request in a step."""

    answers: Answers
    choice: int


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

    @property
    def names(self) -> tuple[TransferId, ...]:
        """The requests in the batch."""
        return tuple(self._active)

    def add(self, answers: Answers) -> None:
        """Let a request join."""
        self._active[answers.transfer] = answers

    def drop(self, name: TransferId) -> None:
        """Let a request leave, if it is there."""
        self._active.pop(name, None)

    def has(self, answers: Answers) -> bool:
        """Whether a request is still in the batch, this very one and not a later of its name."""
        return self._active.get(answers.transfer) is answers

    def seats(self) -> list[Seat]:
        """Choose who takes part: oldest first, and whoever was left out moves ahead."""
        seats = [Seat(a, choice) for a in self._active.values() for choice in a.open]
        chosen = seats[: self._seats_max]
        if len(seats) > len(chosen):
            for name in dict.fromkeys(seat.answers.transfer for seat in chosen):
                self._active[name] = self._active.pop(name)
        return chosen

    def step(self, seats: Sequence[Seat]) -> list[int | None]:
        """Generate one token per seat, in a thread; None where the engine failed.

        Args:
            seats: Who takes part, at least one.
        """
        names = ",".join(dict.fromkeys(seat.answers.transfer for seat in seats))
        self._points.reach(Failpoint.DECODE_STEP, names)
        tokens = self._forward(seats)
        if tokens is not None:
            return tokens
        # What one row does must cost no other: each is run alone, over the same positions.
        return [(self._forward([seat]) or [None])[0] for seat in seats]

    def _forward(self, seats: Sequence[Seat]) -> list[int | None] | None:
        rows = [seat.answers.choices[seat.choice].row() for seat in seats]
        try:
            return list(greedy(self._model.forward(rows, self._cache)).tolist())
        except Exception as error:  # whatever the engine raises ends that request
            log.error("the engine failed", rows=len(rows), error=type(error).__name__)
            return None
