"""A world: sites, the wires between them, clients, and faults that are left.

Its state is a value; `moves` lists what can happen next and `step` returns the state after it.
Everything that could happen in another order is a move of its own. Time passes on its own only when
nothing else can happen; a deadline that passes earlier than that is a fault.
"""

from __future__ import annotations

from collections.abc import Callable

from kvairlock.core.events import PeerGone, PeerLost, PeerUp, Told
from kvairlock.core.guards import Guard
from kvairlock.core.messages import Cancel, TransferTicket
from kvairlock.core.terms import Peer, Role, TransferId
from kvairlock.sim import gateway
from kvairlock.sim.borrower import BorrowerSite
from kvairlock.sim.decode import DecodeSite
from kvairlock.sim.draft import Draft, ParcelKey, Taking
from kvairlock.sim.lender import LenderSite
from kvairlock.sim.moves import Moves
from kvairlock.sim.outcome import Fault, Violation
from kvairlock.sim.prefill import PrefillSite
from kvairlock.sim.setup import GATEWAY, Ask, Direction, Flaw, Setup
from kvairlock.sim.site import Site
from kvairlock.sim.sometimes import Rare
from kvairlock.sim.state import (
    OPEN,
    SPENDS,
    Budget,
    Kind,
    Link,
    Move,
    Progress,
    State,
    Step,
    Topology,
)
from kvairlock.sim.stimuli import Expire, Tell, Unmap, Wake
from kvairlock.sim.turns import Numbered, StateId, Turns

SITES: dict[tuple[Direction, Role], Callable[[Setup, Peer], Site]] = {
    (Direction.PUSH, Role.DECODE): DecodeSite,
    (Direction.PUSH, Role.PREFILL): PrefillSite,
    (Direction.PULL, Role.DECODE): BorrowerSite,
    (Direction.PULL, Role.PREFILL): LenderSite,
}
CANCELS = Budget._fields.index("cancels")


class World:
    """The moves of a setup.

    Args:
        setup: What it is made of.
        budget: Which faults may happen.
        turns: Turns that are known already.
    """

    def __init__(self, setup: Setup, budget: Budget, turns: Taking | None = None) -> None:
        self.setup, self.budget = setup, budget
        self.turns: Taking = Turns() if turns is None else turns
        self.topology = Topology(setup)
        self.parcels: Numbered[ParcelKey] = Numbered()
        self.offers: Numbered[TransferTicket] = Numbered()
        self.ask_of: dict[TransferId, int] = {a.transfer: i for i, a in enumerate(setup.asks)}
        self.honest = tuple(_is_honest(setup, ask) for ask in setup.asks)
        self.frames_enforce = setup.on(Guard.FRAME)
        self._menu = Moves(setup, self.turns, self.topology)
        self._does: dict[Kind, Callable[[Draft, Move], None]] = {
            Kind.SUBMIT: self._submit,
            Kind.REFER: self._refer,
            Kind.CANCEL: self._cancel,
            Kind.DELIVER: self._deliver,
            Kind.DROP: self._drop,
            Kind.REPEAT: self._repeat,
            Kind.REORDER: self._reorder,
            Kind.WORK: self._work,
            Kind.COPY: self._work,
            Kind.EXPIRE: self._expire,
            Kind.PASS: self._expire,
            Kind.SUSPEND: self._suspend,
            Kind.WAKE: self._wake,
            Kind.CRASH: self._crash,
            Kind.RESTART: self._crash,
            Kind.CUT: self._cut,
            Kind.NOTICE: self._notice,
            Kind.JOIN: self._join,
            Kind.FORGE: self._forge,
        }

    def start(self) -> State:
        """Return the state before anything has happened: all sites are up and linked."""
        places = len(self.topology.nodes)
        asks = len(self.setup.asks)
        state = State(
            sites=tuple(self._fresh(place, 1) for place in range(places)),
            lives=(1,) * places,
            asleep=(False,) * places,
            links=(Link.DOWN,) * len(self.topology.links),
            wires=((),) * len(self.topology.wires),
            progress=(Progress.UNSENT,) * asks,
            offers=(0,) * asks,
            left=self.budget,
        )
        draft = Draft(self, state)
        for link in range(len(self.topology.links)):
            self._join(draft, Move(Kind.JOIN, link))
        return draft.done().state

    def moves(self, state: State) -> list[Move]:
        """List what can happen next, in a fixed order; nothing if this is the end."""
        return self._menu.of(state)

    def step(self, state: State, move: Move) -> Step:
        """Return the state after a move."""
        draft = Draft(self, state)
        spends = SPENDS.get(move.kind)
        if spends is not None:
            draft.left = state.left.less(spends)
        self._does[move.kind](draft, move)
        return draft.done()

    def judge_end(self, state: State) -> list[Violation]:
        """Judge a state in which nothing is left to happen."""
        found = [
            Violation(Fault.NOT_ENDED, f"{ask.transfer} never ended")
            for ask, progress in zip(self.setup.asks, state.progress, strict=True)
            if progress in OPEN
        ]
        for site in state.sites:
            found += self.turns.site(site).left_behind()
        return found

    def is_faultless(self, left: Budget) -> bool:
        """Whether nothing but clients has done anything wrong so far."""
        return left[:CANCELS] == self.budget[:CANCELS] and (
            left[CANCELS + 1 :] == self.budget[CANCELS + 1 :]
        )

    def _may_hang(self, left: Budget) -> bool:
        """Whether a writer may keep a window for good: it hangs, or its grant's end was lost."""
        lost = left.drops < self.budget.drops or left.cuts < self.budget.cuts
        return lost or any(ask.flaw is Flaw.HANGS for ask in self.setup.asks)

    def has_more(self, number: int) -> bool:
        """Whether the tenant of a request has others."""
        tenant = self.setup.asks[number].tenant
        return sum(ask.tenant == tenant for ask in self.setup.asks) > 1

    def _fresh(self, place: int, life: int) -> StateId:
        return self.turns.name(self._site(place, life))

    def _site(self, place: int, life: int) -> Site:
        peer = self.topology.peer(place, life)
        return SITES[self.setup.direction, peer.role](self.setup, peer)

    # Clients

    def _submit(self, draft: Draft, move: Move) -> None:
        ask = self.setup.asks[move.at]
        refusal = gateway.refusal_by_contract(self.setup, ask)
        if refusal is not None:
            draft.progress[move.at] = Progress.ENDED
            draft.judge_denied(move.at, refusal.reason)
            return
        decode = self.topology.peer(ask.decode, draft.lives[ask.decode])
        if self.setup.direction is Direction.PULL:
            draft.progress[move.at] = Progress.ASKED
            draft.let(self._prefill(ask), Tell(gateway.asked(self.setup, ask, decode)))
        else:
            draft.progress[move.at] = Progress.SENT
            draft.let(ask.decode, Tell(gateway.submitted(self.setup, ask, decode)))

    def _prefill(self, ask: Ask) -> int:
        return self.setup.decodes + ask.prefill

    def _refer(self, draft: Draft, move: Move) -> None:
        ask = self.setup.asks[move.at]
        offer = self.offers[draft.offers[move.at] - 1]
        decode = self.topology.peer(ask.decode, draft.lives[ask.decode])
        draft.progress[move.at], draft.offers[move.at] = Progress.SENT, 0
        draft.let(ask.decode, Tell(gateway.referred(self.setup, ask, decode, offer)))

    def _cancel(self, draft: Draft, move: Move) -> None:
        ask = self.setup.asks[move.at]
        if draft.progress[move.at] is not Progress.SENT:
            draft.progress[move.at], draft.offers[move.at] = Progress.LEFT_ENDED, 0
            draft.let(self._prefill(ask), Tell(Told(GATEWAY, Cancel(ask.transfer))))
            return
        draft.progress[move.at] = Progress.LEFT
        draft.let(ask.decode, Tell(Told(GATEWAY, Cancel(ask.transfer))))

    # Messages

    def _deliver(self, draft: Draft, move: Move) -> None:
        draft.hear(move.at, self._take_first(draft, move.at))

    def _drop(self, draft: Draft, move: Move) -> None:
        self._take_first(draft, move.at)

    def _repeat(self, draft: Draft, move: Move) -> None:
        draft.wires[move.at] += draft.wires[move.at][:1]

    def _reorder(self, draft: Draft, move: Move) -> None:
        first = self._take_first(draft, move.at)
        draft.wires[move.at] += (first,)

    def _take_first(self, draft: Draft, wire: int) -> int:
        first, draft.wires[wire] = draft.wires[wire][0], draft.wires[wire][1:]
        return first

    def _forge(self, draft: Draft, move: Move) -> None:
        if not self.frames_enforce:
            draft.let(move.at, self.turns.view(draft.sites[move.at]).forgeries[move.which])

    # Work and time

    def _work(self, draft: Draft, move: Move) -> None:
        if move.work is not None:
            draft.let(move.at, move.work)

    def _expire(self, draft: Draft, move: Move) -> None:
        draft.let(move.at, Expire())

    def _suspend(self, draft: Draft, move: Move) -> None:
        draft.asleep[move.at] = True

    def _wake(self, draft: Draft, move: Move) -> None:
        draft.asleep[move.at] = False
        waiting = any(
            wire
            for wire, (_, to) in zip(draft.wires, self.topology.wires, strict=True)
            if to == move.at
        )
        draft.let(move.at, Wake())
        if waiting and any(turn.endings or turn.posts for _, turn in draft.turns):
            draft.reached(Rare.RESUMED_LATE)

    # Processes and links

    def _crash(self, draft: Draft, move: Move) -> None:
        """A process ends and starts again: what it had mapped is let go at once."""
        place = move.at
        if move.kind is Kind.RESTART and not self._may_hang(draft.left):
            detail = f"memory waits for the end of {self.topology.peer(place, 1).node}'s process"
            draft.violations.append(Violation(Fault.PAGES_LOST, detail))
        gone = self.turns.site(draft.sites[place])
        draft.lives[place] += 1
        draft.sites[place] = self._fresh(place, draft.lives[place])
        draft.asleep[place] = False
        decode = self.topology.nodes[place][0] is Role.DECODE
        for link in self.topology.links_of[place]:
            draft.links[link] = Link.DECODE_GONE if decode else Link.PREFILL_GONE
        if decode:
            draft.end_all(place)
        else:
            draft.fail_asked(place)
        for node, window in gone.mapped():
            draft.let(self.topology.place_of[node], Unmap(window))

    def _cut(self, draft: Draft, move: Move) -> None:
        draft.links[move.at] = Link.CUT

    def _notice(self, draft: Draft, move: Move) -> None:
        """A node notices that a link is broken; what was on its wire is lost with it."""
        link, (sender, place) = move.at // 2, self.topology.wires[move.at]
        before = draft.links[link]
        decode = self.topology.nodes[place][0] is Role.DECODE
        if before is Link.CUT:
            draft.links[link] = Link.DECODE_KNOWS if decode else Link.PREFILL_KNOWS
        else:
            draft.links[link] = Link.DOWN
        if before in (Link.DECODE_GONE, Link.PREFILL_GONE):
            for life in range(1, draft.lives[sender]):
                draft.let(place, Tell(PeerLost(self.topology.peer(sender, life))))
                draft.let(place, Tell(PeerGone(self.topology.peer(sender, life))))
        else:
            draft.wires[move.at] = ()
            peer = self.topology.peer(sender, draft.lives[sender])
            draft.let(place, Tell(PeerLost(peer)))

    def _join(self, draft: Draft, move: Move) -> None:
        draft.links[move.at] = Link.UP
        decode, prefill = self.topology.links[move.at]
        for place, other in ((decode, prefill), (prefill, decode)):
            draft.let(place, Tell(PeerUp(self.topology.peer(other, draft.lives[other]))))


def _is_honest(setup: Setup, ask: Ask) -> bool:
    """Whether a request keeps to the contract, and whether prefill does right by it."""
    return ask.flaw is Flaw.NONE and not ask.stolen and gateway.keeps_to_contract(setup, ask)
