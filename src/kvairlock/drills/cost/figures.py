"""What a load costs, as figures: of one time that it was played, then over all rounds.

Throughput and latency are those of the clients, amplification and drains those of the evidence. A
figure over rounds is the median with the least and the most, never an average that hides a round.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from kvairlock.core.terms import Role
from kvairlock.drills.cost.evidence import Heard
from kvairlock.drills.cost.play import Played
from kvairlock.drills.soak.load import Advice, Ending, Outcome


@dataclass(frozen=True, slots=True)
class Spread:
    """One figure over all rounds.

    Args:
        median: Of the rounds.
        least: The smallest round's.
        most: The largest round's.
    """

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, values: Iterable[float | None]) -> Spread | None:
        """Return the spread of the rounds that have the figure; None if no round has."""
        known = [value for value in values if value is not None]
        return cls(median(known), min(known), max(known)) if known else None


def percentile(values: Sequence[float], percent: int) -> float | None:
    """Return the smallest value that so many percent do not exceed; None if there is no value."""
    if not values:
        return None
    return sorted(values)[max(0, math.ceil(len(values) * percent / 100) - 1)]


@dataclass(frozen=True, slots=True)
class Figures:
    """One load that was played once, in figures.

    Args:
        requests: How many clients asked.
        answered: How many of them got a whole answer.
        answers_per_s: Whole answers per second.
        first_ms_p50: Time to the first token of answered requests.
        first_ms_p99: The same, of the slow ones.
        total_ms_p50: Time to the end of answered requests.
        total_ms_p99: The same, of the slow ones.
        sent: Requests that clients sent, retries included.
        submits: Requests that the gateway sent to nodes, second attempts included.
        second_attempts: Second attempts of the gateway.
        page_s_drained: Pages times the seconds for which they waited after their request's end.
    """

    requests: int
    answered: int
    answers_per_s: float
    first_ms_p50: float | None
    first_ms_p99: float | None
    total_ms_p50: float | None
    total_ms_p99: float | None
    sent: int
    submits: int
    second_attempts: int
    page_s_drained: float

    @property
    def answered_share(self) -> float:
        """Of the requests."""
        return self.answered / self.requests

    @property
    def sent_per_request(self) -> float:
        """By how much clients amplify what they ask."""
        return self.sent / self.requests

    @property
    def submits_per_request(self) -> float:
        """By how much clients and gateway together amplify it for the nodes."""
        return self.submits / self.requests

    @property
    def submits_per_sent(self) -> float:
        """By how much the gateway alone amplifies what it gets."""
        return self.submits / self.sent


def figures(played: Played, heard: Heard) -> Figures:
    """Return the figures of one load that was played once.

    Args:
        played: What its clients got.
        heard: What the gateway's evidence says of it.
    """
    answered = [each for each in played.outcomes if each.ending is Ending.COMPLETED]
    first_ms = [each.first_ms for each in answered if each.first_ms is not None]
    total_ms = [each.total_ms for each in answered if each.total_ms is not None]
    return Figures(
        requests=len(played.outcomes),
        answered=len(answered),
        answers_per_s=len(answered) / played.seconds,
        first_ms_p50=percentile(first_ms, 50),
        first_ms_p99=percentile(first_ms, 99),
        total_ms_p50=percentile(total_ms, 50),
        total_ms_p99=percentile(total_ms, 99),
        sent=sum(each.sent for each in played.outcomes),
        submits=heard.submits,
        second_attempts=heard.second_attempts,
        page_s_drained=heard.page_ms_drained / 1000,
    )


def refused(outcomes: Iterable[Outcome]) -> Counter[str]:
    """Count refusals by code, also those after which the client tried again."""
    return Counter(code for outcome in outcomes for code in outcome.refusals)


def advised_to_stop(outcomes: Iterable[Outcome]) -> int:
    """Count the requests whose last refusal told their client not to try again."""
    return sum(outcome.advice is Advice.STOP for outcome in outcomes)


def held_back_mean(played: Played, role: Role) -> float | None:
    """Return the mean share of a role's pools that was held back; None if nobody looked."""
    shares = _shares(played, role)
    return fmean(shares) if shares else None


def held_back_most(played: Played, role: Role) -> float | None:
    """Return the largest share of a role's pools that was held back; None if nobody looked."""
    return max(_shares(played, role), default=None)


def _shares(played: Played, role: Role) -> list[float]:
    return [sample.shares[role] for sample in played.samples if role in sample.shares]
