"""How much of what landed is digested, and which share of page reads was covered by which check.

    full        every page is digested after it landed
    sampled     the last page, and of the others a share that a seed of the receiver draws
    generation  none: generations, ranges and identities are compared, bytes are not
    off         `integrity` is disabled, in drills only: pages are digested, and not compared

That seed never leaves the receiver, so that a writer cannot know which pages will be looked at.

Less than `full` needs a waiver. Load never lowers a policy, and a page whose check was sampled out
counts as covered by its generation, never as verified.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from kvairlock.core.terms import Route


class CheckPolicy(StrEnum):
    """Which landed pages are digested, the strictest first."""

    FULL = "full"
    SAMPLED = "sampled"
    GENERATION = "generation"
    OFF = "off"


@dataclass(frozen=True, slots=True)
class Sample:
    """Which of the pages that land are digested.

    Args:
        pages: How many land.
        digested: Those that are digested, as rising indices of the page list.
    """

    pages: int
    digested: tuple[int, ...]

    @property
    def is_whole(self) -> bool:
        """Whether every page is digested."""
        return len(self.digested) == self.pages


@dataclass(frozen=True, slots=True)
class Checks:
    """A policy with its figure.

    Args:
        policy: Which landed pages are digested.
        share: For `sampled`: the share of the pages in front of the last one, over 0 and up to 1;
            1 of every other policy.
    """

    policy: CheckPolicy
    share: float

    def __str__(self) -> str:
        """Return it as records have it, for example `sampled 0.25`."""
        share = f" {self.share:g}" if self.policy is CheckPolicy.SAMPLED else ""
        return f"{self.policy}{share}"

    def sample(self, pages: int, seed: int) -> Sample:
        """Return which pages of a transfer are digested.

        Args:
            pages: How many it has, at least 1.
            seed: The receiver's own for this transfer, 0 <= seed < 2**64: equal seeds draw equal
                samples.
        """
        if self.policy is CheckPolicy.GENERATION:
            return Sample(pages, ())
        if self.policy is not CheckPolicy.SAMPLED:
            return Sample(pages, tuple(range(pages)))
        last = pages - 1
        drawn = min(last, max(1, math.ceil(last * self.share)))
        # Philox has no state of its own: the same seed is the same order.
        order = np.random.Generator(np.random.Philox(key=seed)).permutation(last)
        return Sample(pages, (*sorted(order[:drawn].tolist()), last))


FULL, OFF = Checks(CheckPolicy.FULL, 1.0), Checks(CheckPolicy.OFF, 1.0)


def weaker(one: Checks, other: Checks) -> Checks:
    """Return which of two checks less."""
    ranks = tuple(CheckPolicy)
    return max(one, other, key=lambda checks: (ranks.index(checks.policy), -checks.share))


class Cover(StrEnum):
    """What vouched for a page of a prompt while it was read; each read has one."""

    VERIFIED = "verified"
    """Its bytes have the digest that prefill states, and all guards of the route enforced."""
    BY_GENERATION = "by_generation"
    """Its bytes were not digested, as a waiver has it; all else was compared."""
    LOCAL = "local"
    """This node computed it itself: nothing crossed."""
    OBSERVED = "observed"
    """A guard of the route only observed, at some time since the request came in."""
    UNCOVERED = "uncovered"
    """A guard was disabled (drills)."""


@dataclass(frozen=True, slots=True)
class Coverage:
    """Page reads of one route since the decode node started: pages of prompts, for each step.

    Args:
        route: The route.
        pages_verified: Reads of pages whose bytes were compared.
        pages_by_generation: Reads of pages whose check was sampled out.
        pages_local: Reads of pages that the decode node computed itself.
        pages_observed: Reads while a guard was only observing.
        pages_uncovered: Reads while a guard was disabled.
    """

    route: Route
    pages_verified: int
    pages_by_generation: int
    pages_local: int
    pages_observed: int
    pages_uncovered: int

    @classmethod
    def counted(cls, route: Route, reads: Mapping[tuple[Route, Cover], int]) -> Coverage:
        """Return the reads of one route, from those of all."""
        return cls(route, **{f"pages_{cover}": reads.get((route, cover), 0) for cover in Cover})

    @property
    def pages_read(self) -> int:
        """All reads."""
        return sum(self.by_cover.values())

    @property
    def by_cover(self) -> dict[Cover, int]:
        """The reads by what vouched for the pages."""
        return {cover: getattr(self, f"pages_{cover}") for cover in Cover}
