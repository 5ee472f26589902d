"""How the guards of one process are set, from its settings and the wall clock.

    look --> nothing changed --> ()
         --> a waiver began or expired --> new guards, and what to record about it

Whoever owns the process looks at every beat and before each turn. So a waiver ends without a
restart and without anybody's doing, at the latest one beat after its time.
"""

from __future__ import annotations

from collections.abc import Iterator

from kvairlock.core.effects import Value
from kvairlock.core.guards import GuardSet
from kvairlock.core.promise.waivers import Waiver, Waivers, WaiverState
from kvairlock.runtime.settings import Settings

Entry = tuple[str, dict[str, Value]]
"""An event of the evidence schema, and its fields."""

EVENTS = {WaiverState.IN_FORCE: "waiver_began", WaiverState.EXPIRED: "waiver_expired"}


class Guarding:
    """The guards of one process as they are set now.

    Args:
        settings: The stack's settings.
        now_unix_s: The wall clock.
    """

    def __init__(self, settings: Settings, now_unix_s: int) -> None:
        self._off = frozenset(settings.drill.guards_off)
        self._landings = {node.name: str(node.landing) for node in settings.decode}
        self.waivers = Waivers(settings.waivers)
        self.at_start = tuple(_entries(self.waivers, self.waivers.look(now_unix_s)))
        """What to record once the start is recorded."""
        self.guards = self.waivers.guards(self._off)

    def look(self, now_unix_s: int) -> tuple[Entry, ...]:
        """Look at the clock; return what to record, nothing if nothing has changed.

        Args:
            now_unix_s: The wall clock.
        """
        if not self.waivers.in_force:
            return ()  # What is left can only have expired: nothing begins after the start.
        changed = self.waivers.look(now_unix_s)
        if not changed:
            return ()
        self.guards = self.waivers.guards(self._off)
        after: Entry = ("guards_changed", {"relaxed": in_words(self.guards)})
        return (*_entries(self.waivers, changed), after)

    def stated(self, node: str) -> dict[str, Value]:
        """Return what a process states at its start, and again at each beat.

        Args:
            node: Its name.
        """
        return {
            "guards_off": tuple(sorted(map(str, self.guards.off))),
            "landing": self._landings.get(node, ""),
            "relaxed": in_words(self.guards),
        }


def in_words(guards: GuardSet) -> tuple[str, ...]:
    """Return what waivers relax, as records have it."""
    return tuple(map(str, guards.relaxed))


def _entries(waivers: Waivers, changed: tuple[Waiver, ...]) -> Iterator[Entry]:
    for waiver in changed:
        fields: dict[str, Value] = {
            "waiver": waiver.name,
            "relaxes": tuple(map(str, waiver.relaxes)),
            "conditions": waiver.conditions,
            "owner": waiver.owner,
            "expires_unix_s": waiver.expires_unix_s,
            "evidence": waiver.evidence,
        }
        yield EVENTS[waivers.states[waiver]], fields
