"""Plays a schedule in a world, step by step, and keeps what it showed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from kvairlock.core.effects import Record
from kvairlock.sim import engine, gateway, judge
from kvairlock.sim.cases.steps import Speaker, request_of
from kvairlock.sim.cases.words import ANYTHING
from kvairlock.sim.live import LiveTurns
from kvairlock.sim.outcome import Fault, Violation
from kvairlock.sim.setup import Setup
from kvairlock.sim.state import SPENDS, Budget, Kind, Move, Progress, Step
from kvairlock.sim.world import World

PLENTY = Budget(*[100] * len(Budget._fields))
BY_WORD = frozenset({Kind.SUBMIT, Kind.WAKE})
"""What nothing but a step of the case lets happen, or, for sleepers, its end."""
TIME = frozenset({Kind.PASS, Kind.RESTART})
HORIZON_NS = 10**9 * 10**6
"""Eleven days: a deadline behind that never passes."""
MOVES_MAX = 5_000
COMPLETED = "completed"
_UNTOLD = {Progress.LEFT_ENDED: "cancelled", Progress.ENDED: "peer_lost"}
"""How a request has ended of which no node tells: its client left, or its node is gone."""


class CannotHappen(Exception):
    """A step is not possible at its turn."""


@dataclass(slots=True)
class Played:
    """What a schedule has shown.

    Args:
        ends: How each request ended: `completed`, or the reason; by the name the case gives it.
        at_gateway: Requests that the gateway refused: no node has heard of them.
        computed: Requests of which a chunk was computed, and where, in order.
        violations: What must never be.
        records: The evidence of all nodes.
        story: What happened, line by line.
        moves: How many moves that were.
    """

    ends: dict[str, str] = field(default_factory=dict)
    at_gateway: set[str] = field(default_factory=set)
    computed: list[tuple[str, str]] = field(default_factory=list)
    violations: list[Violation] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)
    story: list[str] = field(default_factory=list)
    moves: int = 0


class Player:
    """One run.

    Args:
        setup: The world.
    """

    def __init__(self, setup: Setup) -> None:
        self.world = World(setup, PLENTY, LiveTurns())
        self.state = self.world.start()
        self.played = Played()
        self._speaker = Speaker(self.world)
        self._held: list[str] = []
        self._judged: list[tuple[int, int, Record]] = []

    def hold(self, pattern: str) -> None:
        """Let `settle` leave out what a pattern fits."""
        self._held.append(pattern)

    def free(self, pattern: str) -> None:
        """Take a pattern back.

        Raises:
            CannotHappen: It was not held.
        """
        if pattern not in self._held:
            raise CannotHappen(f"nothing of this was held back; held are: {self._held}")
        self._held.remove(pattern)

    def happen(self, step: str) -> None:
        """Let a step happen; one with a `*` as often as it can.

        Raises:
            CannotHappen: It cannot happen now; the message says what can.
        """
        self._play(self._find(step))
        while ANYTHING in step and (more := self._possible(step)):
            self._play(more[0])

    def settle(self) -> None:
        """Let everything happen that is not held back and needs no time to pass."""
        self._run(lambda move: move.kind in TIME or self._is_held(move))

    def finish(self) -> Played:
        """Hold nothing back, let time pass, and judge what is left."""
        self._held = []
        self._run(lambda move: move.kind is Kind.SUBMIT)
        self.played.violations += self.world.judge_end(self.state)
        roles = [role for role, _ in self.world.topology.nodes]
        self.played.violations += judge.judge(self._judged, roles, self.state.lives)
        return self.played

    def unsent(self) -> list[str]:
        """Return requests that were never sent."""
        asks = zip(self.world.setup.asks, self.state.progress, strict=True)
        return [request_of(ask.transfer) for ask, at in asks if at is Progress.UNSENT]

    def _find(self, step: str) -> Move:
        found = self._possible(step)
        if not found:
            can = "".join(f"\n    {phrase}" for phrase in dict.fromkeys(self._phrases()))
            raise CannotHappen(f"this cannot happen now; what can:{can}")
        return found[0]

    def _possible(self, step: str) -> list[Move]:
        return [move for move in self._moves() if fnmatchcase(self._phrase(move), step)]

    def _phrases(self) -> list[str]:
        return [self._phrase(move) for move in self._moves() if move.kind not in TIME]

    def _moves(self) -> list[Move]:
        return [move for move in self.world.moves(self.state) if not self._is_never(move)]

    def _phrase(self, move: Move) -> str:
        return self._speaker.phrase(self.state, move)

    def _is_held(self, move: Move) -> bool:
        phrase = self._phrase(move)
        return move.kind in BY_WORD or any(fnmatchcase(phrase, held) for held in self._held)

    def _is_never(self, move: Move) -> bool:
        """Whether it waits for a deadline that never passes."""
        if move.kind not in (Kind.PASS, Kind.EXPIRE):
            return False
        deadline = self.world.turns.site(self.state.sites[move.at]).node.deadline()
        return deadline is not None and deadline > HORIZON_NS

    def _run(self, leaves_out: Callable[[Move], bool]) -> None:
        """Let happen whatever can and is not left out, in a fixed order."""
        for _ in range(MOVES_MAX):
            moves = (m for m in self._moves() if m.kind not in SPENDS)
            move = next((m for m in moves if not leaves_out(m)), None)
            if move is None:
                return
            self._play(move)
        self.played.violations.append(Violation(Fault.NOT_ENDED, "this comes to no end"))

    def _play(self, move: Move) -> None:
        played, before = self.played, self.state.progress
        played.moves += 1
        played.story.append(self._phrase(move))
        if move.work is not None and move.work.kind == engine.BEGINS:
            played.computed.append((self._name(move.at), request_of(move.work.subject)))
        self._speaker.note(move)
        step = self.world.step(self.state, move)
        self.state = step.state
        self._look(step)
        self._note_ends(step, before)

    def _look(self, step: Step) -> None:
        played = self.played
        for place, turn in step.turns:
            for number in turn.records:
                record = self.world.turns.numbers.record(number)
                played.records.append(record)
                self._judged.append((place, step.state.lives[place], record))
        new = [violation for violation in step.violations if violation not in played.violations]
        played.violations += new
        played.story += [f"    !! {violation}" for violation in new]

    def _note_ends(self, step: Step, before: tuple[Progress, ...]) -> None:
        """Note which requests have ended in a step, and how."""
        told = {end.transfer: end for _, turn in step.turns for end in turn.endings}
        setup = self.world.setup
        for ask, was, at in zip(setup.asks, before, step.state.progress, strict=True):
            if was >= Progress.LEFT_ENDED or at < Progress.LEFT_ENDED:
                continue
            name, ending = request_of(ask.transfer), told.get(ask.transfer)
            refusal = gateway.refusal_by_contract(setup, ask)
            if refusal is not None:
                self.played.at_gateway.add(name)
            reason = refusal.reason if refusal else ending.reason if ending else _UNTOLD[at]
            self.played.ends[name] = reason or COMPLETED
            self.played.story.append(f"    {name} has ended: {self.played.ends[name]}")

    def _name(self, place: int) -> str:
        return self.world.topology.peer(place, 1).node
