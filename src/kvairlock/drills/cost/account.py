"""The account of a cost run: each load over all its rounds, and what no load may do.

Whatever happens to clients and processes, no answer shows another request's canary, none is broken,
and everything comes back. A refusal is never a problem: it is what is counted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from kvairlock.core.terms import Role
from kvairlock.drills.cost import figures as cost_figures
from kvairlock.drills.cost.evidence import Cause, Heard
from kvairlock.drills.cost.figures import Figures, Spread
from kvairlock.drills.cost.loads import CostLoad
from kvairlock.drills.cost.play import Played

POOLS = (Role.PREFILL, Role.DECODE)
SPREADS = (
    "answered_share",
    "answers_per_s",
    "first_ms_p50",
    "first_ms_p99",
    "total_ms_p50",
    "total_ms_p99",
    "sent_per_request",
    "submits_per_request",
    "submits_per_sent",
    "page_s_drained",
)
"""The figures of which median, least and most over the rounds are told."""


@dataclass(frozen=True, slots=True)
class Costed:
    """One load over all rounds.

    Args:
        load: The load.
        plays: What was played, one for each round.
        heard: What was recorded meanwhile, in the same order.
    """

    load: CostLoad
    plays: Sequence[Played]
    heard: Sequence[Heard]

    @property
    def figures(self) -> list[Figures]:
        """The figures of each round."""
        return list(map(cost_figures.figures, self.plays, self.heard))

    def problems(self) -> Iterator[str]:
        """Say what no load may do."""
        answers = [played.answers for played in self.plays]
        lost = sum(_left(played) for played in self.plays)
        for what, count in (
            ("answers show the canary of another request", sum(a.foreign for a in answers)),
            ("answers are not what their own prompt says", sum(a.stray for a in answers)),
            ("over-long requests were answered", sum(a.too_long_answered for a in answers)),
            ("answers broke", sum(a.broken.total() for a in answers)),
            ("pages, windows and requests are left although nothing runs", lost),
        ):
            if count:
                yield f"{self.load.name}: {count} {what}"
        if not sum(a.completed for a in answers):
            yield f"{self.load.name}: no request completed, so nothing was shown"

    def told(self) -> dict[str, Any]:
        """Return the load's part of the document."""
        answers = [played.answers for played in self.plays]
        outcomes = [outcome for played in self.plays for outcome in played.outcomes]
        rounds = self.figures
        return {
            "name": self.load.name,
            "what": self.load.what,
            "requests": sum(each.requests for each in rounds),
            "answered": sum(each.answered for each in rounds),
            "left": sum(each.cancelled for each in answers),
            **{name: _told(Spread.of(getattr(r, name) for r in rounds)) for name in SPREADS},
            "refused": dict(cost_figures.refused(outcomes).most_common()),
            "advised_to_stop": cost_figures.advised_to_stop(outcomes),
            "sent": sum(each.sent for each in rounds),
            "submits": sum(each.submits for each in rounds),
            "second_attempts": sum(each.second_attempts for each in rounds),
            "held_back": {role.value: self._held_back(role) for role in POOLS},
            "windows_draining_max": self._windows_draining(),
            "waits": list(_waits(self.heard)),
            "foreign": sum(each.foreign for each in answers),
            "left_over": sum(_left(played) for played in self.plays),
        }

    def _held_back(self, role: Role) -> dict[str, Any]:
        mean = Spread.of(cost_figures.held_back_mean(played, role) for played in self.plays)
        most = Spread.of(cost_figures.held_back_most(played, role) for played in self.plays)
        return {"mean": _told(mean), "max": _told(most)}

    def _windows_draining(self) -> int:
        samples = [sample for played in self.plays for sample in played.samples]
        return max((sample.windows_draining for sample in samples), default=0)


def _told(spread: Spread | None) -> dict[str, float] | None:
    if spread is None:
        return None
    return {name: round(value, 4) for name, value in asdict(spread).items()}


def _left(played: Played) -> int:
    left = played.leftovers
    return left.pages_lost + left.windows_left + left.requests_left


def _waits(heard: Sequence[Heard]) -> Iterator[dict[str, Any]]:
    """Tell how long memory waited, by what released it."""
    waits_ms: defaultdict[Cause, list[int]] = defaultdict(list)
    for each in heard:
        for cause, found in each.waits_ms.items():
            waits_ms[cause] += found
    for cause, all_ms in sorted(waits_ms.items()):
        figures = {"count": len(all_ms), "median_ms": median(all_ms), "max_ms": max(all_ms)}
        yield {**asdict(cause), **figures}


@dataclass(frozen=True, slots=True)
class Account:
    """All loads of a cost run.

    Args:
        warm_up: What was played before, which is judged and not told.
        costed: The loads, in the order in which they are shown.
    """

    warm_up: Costed
    costed: Sequence[Costed]


def document(account: Account, setting: Mapping[str, Any]) -> dict[str, Any]:
    """Return all figures as one document.

    Args:
        account: The loads.
        setting: What they were asked for with: requests, rounds, concurrency, seed.
    """
    everything = (account.warm_up, *account.costed)
    problems = [problem for each in everything for problem in each.problems()]
    loads = [each.told() for each in account.costed]
    return {"ok": not problems, "problems": problems, **setting, "loads": loads}
