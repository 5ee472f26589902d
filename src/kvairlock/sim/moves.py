"""What can happen next in a state: what will happen anyway, what goes wrong, and time.

free moves   a client asks, a message arrives, work is done, a sleeper wakes, a loss is noticed
faults       as far as the budget goes
time         passes only where no move is free: then deadlines do what they are for
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from kvairlock.core.terms import Role
from kvairlock.sim.draft import Taking
from kvairlock.sim.setup import Ask, Setup, Theft
from kvairlock.sim.state import OPEN, Kind, Link, Move, Progress, State, Topology

NOTICES = {
    Link.CUT: (Role.DECODE, Role.PREFILL),
    Link.DECODE_KNOWS: (Role.PREFILL,),
    Link.PREFILL_KNOWS: (Role.DECODE,),
    Link.DECODE_GONE: (Role.PREFILL,),
    Link.PREFILL_GONE: (Role.DECODE,),
}
"""Who has still to notice that a link is broken."""

CANCELLABLE = frozenset({Progress.ASKED, Progress.OFFERED, Progress.SENT})


class Moves:
    """The menu of a world.

    Args:
        setup: What it is made of.
        turns: What knows the states of its sites.
        topology: Its sites, links and wires.
    """

    def __init__(self, setup: Setup, turns: Taking, topology: Topology) -> None:
        self._setup, self._turns, self._topology = setup, turns, topology
        self._waits_for = [_waits_for(setup.asks, number) for number in range(len(setup.asks))]
        self._places = range(len(topology.nodes))
        self._views = turns.view

    def of(self, state: State) -> list[Move]:
        """List what can happen next; nothing if this is the end."""
        moves = list(self._free(state))
        if not moves:
            moves = list(self._time(state))
            if not moves:
                return moves
        moves.extend(self._faults(state))
        return moves

    # What will happen anyway

    def _free(self, state: State) -> Iterator[Move]:
        for number, progress in enumerate(state.progress):
            if progress is Progress.UNSENT and self._may_start(state, number):
                yield Move(Kind.SUBMIT, number)
            elif progress is Progress.OFFERED and self._hears(state, number):
                yield Move(Kind.REFER, number)
        for wire, parcels in enumerate(state.wires):
            if parcels and not state.asleep[self._topology.wires[wire][1]]:
                yield Move(Kind.DELIVER, wire)
        for place in self._places:
            view = self._views(state.sites[place])
            for work in view.card if state.asleep[place] else view.menu:
                yield Move(Kind.WORK, place, work)
            if state.asleep[place]:
                yield Move(Kind.WAKE, place)
        for link, at in enumerate(state.links):
            if at is not Link.UP:
                yield from self._mend(state, link, at)

    def _may_start(self, state: State, number: int) -> bool:
        """A later attempt waits for the one before, and equal requests for each other."""
        waits = self._waits_for[number]
        ask = self._setup.asks[number]
        if not self._hears(state, number):
            return False
        if ask.attempt > 1:
            return waits is not None and state.progress[waits] is Progress.ENDED
        return waits is None or state.progress[waits] is not Progress.UNSENT

    def _hears(self, state: State, number: int) -> bool:
        """Whether the node that a request goes to next is awake and linked."""
        ask = self._setup.asks[number]
        prefill = self._setup.decodes + ask.prefill
        return not state.asleep[ask.decode] and not state.asleep[prefill]

    def _mend(self, state: State, link: int, at: Link) -> Iterator[Move]:
        ends = self._topology.links[link]
        if at is Link.DOWN:
            if not any(state.asleep[place] for place in ends):
                yield Move(Kind.JOIN, link)
            return
        for role in NOTICES[at]:
            side = 0 if role is Role.DECODE else 1
            if not state.asleep[ends[side]]:
                yield Move(Kind.NOTICE, 2 * link + side)

    # Time, when nothing else can happen

    def _time(self, state: State) -> Iterator[Move]:
        views = [self._views(site) for site in state.sites]
        stuck = dict.fromkeys(node for view in views for node in view.stuck_on)
        for node in stuck:
            # Whoever waits for the end of a process: its operator restarts it.
            yield Move(Kind.RESTART, self._topology.place_of[node])
        for place, view in enumerate(views):
            if view.expires and not stuck:
                yield Move(Kind.PASS, place)

    # What goes wrong

    def _faults(self, state: State) -> Iterator[Move]:
        left = state.left
        if not any(left):
            return
        if left.cancels:
            for number, progress in enumerate(state.progress):
                if progress in CANCELLABLE and self._hears(state, number):
                    yield Move(Kind.CANCEL, number)
        if left.drops or left.duplicates or left.reorders:
            yield from self._on_wires(state)
        for place in self._places:
            if not state.asleep[place]:
                yield from self._at(state, place)
        if left.cuts:
            for link, at in enumerate(state.links):
                if at is Link.UP:
                    yield Move(Kind.CUT, link)
        if left.crashes:
            for place in self._places:
                yield Move(Kind.CRASH, place)

    def _on_wires(self, state: State) -> Iterator[Move]:
        left = state.left
        for wire, parcels in enumerate(state.wires):
            if not parcels:
                continue
            if left.drops:
                yield Move(Kind.DROP, wire)
            if left.duplicates:
                yield Move(Kind.REPEAT, wire)
            if left.reorders and len(parcels) > 1:
                yield Move(Kind.REORDER, wire)

    def _at(self, state: State, place: int) -> Iterator[Move]:
        left, view = state.left, self._views(state.sites[place])
        if left.timeouts and view.expires:
            yield Move(Kind.EXPIRE, place)
        if left.suspensions:
            yield Move(Kind.SUSPEND, place)
        if left.forgeries:
            for which in range(len(view.forgeries)):
                yield Move(Kind.FORGE, place, None, which)
        if left.copies and view.echo is not None:
            yield Move(Kind.COPY, place, view.echo)


def is_over(state: State) -> bool:
    """Whether no request is open or still to come."""
    return not any(progress in OPEN for progress in state.progress)


def _waits_for(asks: tuple[Ask, ...], number: int) -> int | None:
    """The request that one must not be sent before: its former attempt, or one just like it.

    Requests that differ in nothing but their name are interchangeable: it is enough to look at the
    orders in which the first of them is sent first.
    """
    ask = asks[number]
    for other in range(number - 1, -1, -1):
        before = asks[other]
        if ask.attempt > 1:
            if (before.request, before.attempt) == (ask.request, ask.attempt - 1):
                return other
        elif _are_alike(asks, before, ask) or _was_seen(before, ask):
            return other
    return None


def _was_seen(victim: Ask, thief: Ask) -> bool:
    """Whether a thief who repeats all that came with a ticket must have seen it pass."""
    return thief.theft is Theft.WITH_ALL and thief.stolen == victim.transfer


def _are_alike(asks: tuple[Ask, ...], one: Ask, other: Ask) -> bool:
    if any(ask.attempt > 1 or ask.stolen for ask in asks):
        return False
    alone = all(sum(a.tenant == ask.tenant for a in asks) == 1 for ask in (one, other))
    same = one.tenant == other.tenant or alone
    return same and replace(one, tenant=other.tenant, request=other.request) == other
