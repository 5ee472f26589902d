"""Turns of sites that live on: for one long run in which no state comes back."""

from __future__ import annotations

from kvairlock.sim.site import Site
from kvairlock.sim.turns import Numbers, StateId, Turn, View, view_of


class LiveTurns:
    """Sites as they are now; a state is known until the next turn of its site, and no longer."""

    def __init__(self) -> None:
        self.numbers = Numbers()
        self._sites: dict[StateId, Site] = {}
        self._views: dict[StateId, View] = {}
        self._count = 0

    def __len__(self) -> int:
        """Return how many turns there were."""
        return self._count

    def name(self, site: Site) -> StateId:
        """Return a number for a site's present state."""
        self._count += 1
        name = StateId(self._count)
        self._sites[name] = site
        return name

    def site(self, state: StateId) -> Site:
        """Return the site itself."""
        return self._sites[state]

    def take(self, state: StateId, stimulus: int) -> Turn:
        """Let something happen at a site."""
        site = self._sites.pop(state)
        self._views.pop(state, None)
        outcome = site.take(self.numbers.stimuli[stimulus])
        return self.numbers.turn(self.name(site), outcome)

    def view(self, state: StateId) -> View:
        """Return what can be seen of a state."""
        known = self._views.get(state)
        if known is None:
            known = self._views[state] = view_of(self._sites[state])
        return known
