"""What the gateway counts of requests, by length and never by tenant; `figures` shows it.

Requests are counted by the length of their prompt, so that trouble of the long ones does not hide
in an average, and shown in steps, so that no series shows a single one (`core.lengths`).
"""

from __future__ import annotations

from kvairlock import __version__
from kvairlock.core.ends import End
from kvairlock.core.errors import Refusal
from kvairlock.core.guards import Guard
from kvairlock.core.lengths import OTHER
from kvairlock.metrics.families import Gathering, Tallies

INVALID = "invalid"
"""The outcome of what was never a request: no key, no JSON, a wrong parameter. It has no length."""


class Meter:
    """The counters of one gateway.

    Args:
        model: The model served.
        requests_min: The fewest requests by which a series that names a length may rise.
    """

    def __init__(self, model: str, requests_min: int) -> None:
        self._model = model
        self._tallies = Tallies("parameters_stripped", step=requests_min)

    def ended(self, end: End, length: str) -> None:
        """Count a request by its end."""
        self._count_request(end.value, length)

    def invalid(self) -> None:
        """Count what was never a request."""
        self._count_request(INVALID, OTHER)

    def refused(self, refusal: Refusal, length: str = OTHER) -> None:
        """Count a refusal, whoever decided it; one before the prompt was read has no length."""
        self._tallies.count(
            "refusals",
            reason=refusal.reason.value,
            stage=refusal.stage.value,
            model=self._model,
            length=length,
            version=__version__,
        )

    def would_refuse(self, guard: Guard, refusal: Refusal) -> None:
        """Count what a guard found that only observes."""
        self._tallies.count("would_refuse", guard=guard.value, reason=refusal.reason.value)

    def retried(self, refusal: Refusal) -> None:
        """Count a second attempt, by why it was needed."""
        self._tallies.count("retries", reason=refusal.reason.value)

    def stripped(self) -> None:
        """Count a request whose transfer parameters were taken out."""
        self._tallies.count("parameters_stripped")

    def totals(self, name: str, *labels: str) -> dict[tuple[str, ...], int]:
        """Return a counter so far, by the values of some of its labels."""
        return self._tallies.totals(name, *labels)

    def show(self, into: Gathering) -> None:
        """Add all counters to an answer."""
        self._tallies.show(into)

    def _count_request(self, outcome: str, length: str) -> None:
        self._tallies.count(
            "requests", outcome=outcome, model=self._model, length=length, version=__version__
        )
