"""A state that is being changed by a move: turns at sites, and what follows from them at once."""

from __future__ import annotations

from typing import Protocol

from kvairlock.core.messages import Receipt, TransferTicket
from kvairlock.core.terms import NodeName, TransferId
from kvairlock.sim.outcome import Ending, Fault, Violation
from kvairlock.sim.setup import Setup
from kvairlock.sim.site import Site
from kvairlock.sim.sometimes import Rare
from kvairlock.sim.state import Budget, Link, Progress, State, Step, Topology
from kvairlock.sim.stimuli import Content, Stimulus
from kvairlock.sim.turns import ContentId, Numbered, Numbers, StateId, Turn, View

ParcelKey = tuple[int, int, int, ContentId]
"""Place and life of the sender, life of the receiver, number of the content."""


class Taking(Protocol):
    """What computes turns; `Turns` and `LiveTurns` do."""

    numbers: Numbers

    def __len__(self) -> int:
        """Return how many turns were computed."""

    def name(self, site: Site) -> StateId:
        """Return the number of a site's present state."""

    def site(self, state: StateId) -> Site:
        """Return a site in a state, to look at."""

    def take(self, state: StateId, stimulus: int) -> Turn:
        """Return the state after a stimulus, and what it led to outside."""

    def view(self, state: StateId) -> View:
        """Return what can be seen of a state."""


class Frame(Protocol):
    """What a draft needs of its world."""

    setup: Setup
    turns: Taking
    topology: Topology
    parcels: Numbered[ParcelKey]
    ask_of: dict[TransferId, int]
    offers: Numbered[TransferTicket]
    honest: tuple[bool, ...]
    frames_enforce: bool

    def is_faultless(self, left: Budget) -> bool:
        """Whether nothing but clients has done anything wrong so far."""

    def has_more(self, number: int) -> bool:
        """Whether the tenant of a request has others."""


class Draft:
    """A state on its way to the next.

    Args:
        world: The world.
        state: The state before the move.
    """

    def __init__(self, world: Frame, state: State) -> None:
        self.world = world
        self.sites = list(state.sites)
        self.lives = list(state.lives)
        self.asleep = list(state.asleep)
        self.links = list(state.links)
        self.wires = list(state.wires)
        self.progress = list(state.progress)
        self.offers = list(state.offers)
        self.left = state.left
        self.turns: list[tuple[int, Turn]] = []
        self.violations: list[Violation] = []
        self.sometimes: list[str] = []

    def done(self) -> Step:
        """Return the state after the move, and what the move showed."""
        for _, turn in self.turns:
            self.violations += turn.violations
        state = State(
            tuple(self.sites),
            tuple(self.lives),
            tuple(self.asleep),
            tuple(self.links),
            tuple(self.wires),
            tuple(self.progress),
            tuple(self.offers),
            self.left,
        )
        return Step(state, tuple(self.turns), tuple(self.violations), tuple(self.sometimes))

    def let(self, place: int, stimulus: Stimulus) -> None:
        """Let something happen at a site."""
        self.turn(place, self.world.turns.numbers.stimuli.number(stimulus))

    def turn(self, place: int, stimulus: int) -> None:
        """Let something happen at a site, by its number, and carry on what follows at once."""
        turn = self.world.turns.take(self.sites[place], stimulus)
        self.sites[place] = turn.after
        self.turns.append((place, turn))
        for to, content in turn.posts:
            self._post(place, to, content)
        for to, remote in turn.remote:
            self.turn(self.world.topology.place_of[to], remote)
        for ending in turn.endings:
            self._ended(place, ending)
        for offer in turn.offers:
            self._offered(offer)

    # Messages

    def _post(self, place: int, to: NodeName, content: ContentId) -> None:
        """Put a message on its wire; on a link that is broken it is lost."""
        topology = self.world.topology
        there = topology.place_of[to]
        wire = topology.wire_of[place, there]
        if self.links[wire // 2] is Link.UP:
            key = (place, self.lives[place], self.lives[there], content)
            self.wires[wire] += (self.world.parcels.number(key),)

    def hear(self, wire: int, parcel: int) -> None:
        """Let a parcel arrive, unless the frame guard refuses it."""
        sender, life, receiver_life, content = self.world.parcels[parcel]
        _, place = self.world.topology.wires[wire]
        if not self._is_of_this_channel(wire, life, receiver_life):
            if isinstance(self.world.turns.numbers.contents[content], Receipt):
                self.reached(Rare.OLD_INCARNATION)
            if self.world.frames_enforce:
                return
        self._note_late(self.world.turns.numbers.contents[content])
        peer = self.world.topology.peer(sender, life)
        self.turn(place, self.world.turns.numbers.heard(peer, content))

    def _note_late(self, content: Content) -> None:
        """Note a receipt for a request whose client had left before."""
        if isinstance(content, Receipt):
            number = self.world.ask_of.get(content.transfer)
            if number is not None and self.progress[number] is Progress.LEFT_ENDED:
                self.reached(Rare.RECEIPT_AFTER_CANCEL)

    def _is_of_this_channel(self, wire: int, life: int, receiver_life: int) -> bool:
        """Whether the key of the receiver's channel is the one that a parcel was sealed with."""
        sender, place = self.world.topology.wires[wire]
        gone = Link.PREFILL_GONE if wire % 2 == 0 else Link.DECODE_GONE
        unnoticed = self.links[wire // 2] is gone and life == self.lives[sender] - 1
        return receiver_life == self.lives[place] and (life == self.lives[sender] or unnoticed)

    # What the gateway is told

    def _ended(self, place: int, ending: Ending) -> None:
        number = self.world.ask_of[ending.transfer]
        before = self.progress[number]
        if place >= self.world.setup.decodes and before is not Progress.ASKED:
            return  # Prefill will not offer what nobody waits for any more (pull).
        if before >= Progress.LEFT_ENDED:
            detail = f"{ending.transfer} ended a second time, {ending.end}"
            self.violations.append(Violation(Fault.TWO_ENDS, detail))
        completed = ending.end == "completed"
        if completed:
            self.progress[number] = Progress.COMPLETED
        elif before is Progress.LEFT:
            self.progress[number] = Progress.LEFT_ENDED
        else:
            self.progress[number] = Progress.ENDED
            self.judge_denied(number, ending.reason)

    def judge_denied(self, number: int, reason: str) -> None:
        """Who keeps to the contract is served, as long as nothing but clients does wrong."""
        own_share = reason == "tenant_share" and self.world.has_more(number)
        if self.world.honest[number] and self.world.is_faultless(self.left) and not own_share:
            detail = f"{self.world.setup.asks[number].transfer} was not served: {reason}"
            self.violations.append(Violation(Fault.DENIED, detail))

    def _offered(self, offer: TransferTicket) -> None:
        number = self.world.ask_of[offer.transfer]
        if self.progress[number] is Progress.ASKED:
            self.progress[number] = Progress.OFFERED
            self.offers[number] = self.world.offers.number(offer) + 1

    def end_all(self, decode: int) -> None:
        """The gateway ends what a lost decode node served."""
        for number, ask in enumerate(self.world.setup.asks):
            if ask.decode == decode and self.progress[number] in (Progress.SENT, Progress.LEFT):
                self.progress[number] = Progress.ENDED

    def fail_asked(self, place: int) -> None:
        """The gateway ends what a lost prefill node was asked for and has not offered (pull)."""
        for number, ask in enumerate(self.world.setup.asks):
            there = self.world.setup.decodes + ask.prefill == place
            if there and self.progress[number] is Progress.ASKED:
                self.progress[number] = Progress.ENDED

    def reached(self, rare: Rare) -> None:
        """Note that a rare state was reached."""
        self.sometimes.append(rare)
