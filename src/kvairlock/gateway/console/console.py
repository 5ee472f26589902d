"""The console of one gateway: who looks, what nodes tell of their pages, what was posted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kvairlock.core.terms import NS_PER_MS, Instant
from kvairlock.gateway.console.drill_results import DrillResults
from kvairlock.gateway.console.page_maps import PageMaps
from kvairlock.gateway.console.viewers import Viewers
from kvairlock.runtime import clock

FRESH_MS = 250
"""How long figures that were made for one viewer are good for the others."""

Figures = dict[str, Any]


class Console:
    """What all viewers of one gateway share.

    Args:
        maps: What nodes tell of their pages.
        viewers: Who looks.
    """

    def __init__(self, maps: PageMaps, viewers: Viewers) -> None:
        self.maps, self.viewers = maps, viewers
        self.drills = DrillResults()
        self._made: tuple[Instant, Figures] | None = None

    def figures(self, make: Callable[[], Figures]) -> Figures:
        """Return the figures of now, made at most so often however many look.

        Args:
            make: Makes them.
        """
        now = clock.now()
        if self._made is None or now - self._made[0] > FRESH_MS * NS_PER_MS:
            self._made = now, make()
        return self._made[1]
