"""One random run through a large world: faults first, then it is healed and must reach its end."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from kvairlock.core.effects import Record
from kvairlock.sim.draw import draw_budget, draw_setup, draw_weights
from kvairlock.sim.judge import judge
from kvairlock.sim.live import LiveTurns
from kvairlock.sim.outcome import Fault, Violation
from kvairlock.sim.setup import Setup
from kvairlock.sim.state import SPENDS, Budget, Kind, Move, State
from kvairlock.sim.world import World

FAULTY = 0.12
"""How often a fault happens where one can."""
MOVES_MAX = 3_000
"""No run needs as many: whatever takes longer makes no progress."""
SEEKS = frozenset(Fault) - {Fault.DENIED}
"""Whether a refusal under this load was right is judged in small worlds."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A world and what may go wrong in it."""

    setup: Setup
    budget: Budget


@dataclass(slots=True)
class Run:
    """What a run has shown.

    Args:
        moves: What happened, in order, before the world was healed.
        steps: Moves in total.
        violation: What must never be, if it was seen.
        sometimes: Rare states.
    """

    moves: list[Move] = field(default_factory=list)
    steps: int = 0
    violation: Violation | None = None
    sometimes: set[str] = field(default_factory=set)


class Player:
    """Plays moves in a world, one after the other, and judges what they show.

    Args:
        plan: The world.
    """

    def __init__(self, plan: Plan) -> None:
        self.world = World(plan.setup, plan.budget, LiveTurns())
        self.state: State = self.world.start()
        self.run = Run()
        self._records: list[tuple[int, int, Record]] = []

    @property
    def moves(self) -> list[Move]:
        """What can happen next."""
        return self.world.moves(self.state)

    def play(self, move: Move) -> bool:
        """Let something happen; False after a violation."""
        step = self.world.step(self.state, move)
        self.state = step.state
        self.run.steps += 1
        self.run.sometimes.update(step.sometimes)
        for place, turn in step.turns:
            self.run.sometimes.update(turn.sometimes)
            for number in turn.records:
                record = self.world.turns.numbers.record(number)
                self._records.append((place, step.state.lives[place], record))
        self.run.violation = next((v for v in step.violations if v.fault in SEEKS), None)
        return self.run.violation is None

    def heal(self) -> None:
        """Let no more go wrong, and demand that all comes to its end."""
        self.state = self.state._replace(left=Budget())
        for _ in range(MOVES_MAX):
            moves = self.moves
            if not moves:
                self._judge()
                return
            if not self.play(moves[0]):
                return
        self.run.violation = Violation(Fault.NOT_ENDED, "the healed world comes to no end")

    def _judge(self) -> None:
        found = self.world.judge_end(self.state)
        roles = [role for role, _ in self.world.topology.nodes]
        found += judge(self._records, roles, self.state.lives)
        self.run.violation = next(iter(found), None)


def plan_of(seed: str) -> Plan:
    """Return the world of a seed."""
    rng = Random(f"{seed} world")
    setup = draw_setup(rng)
    return Plan(setup, draw_budget(rng, setup))


def run(seed: str, plan: Plan | None = None) -> Run:
    """Make the run of a seed.

    Args:
        seed: What its schedule is drawn from.
        plan: Its world; drawn from the seed as well if None.
    """
    rng = Random(f"{seed} schedule")
    player, weights = Player(plan or plan_of(seed)), draw_weights(rng)
    for _ in range(rng.randint(20, 600)):
        move = _choose(rng, weights, player.moves)
        if move is None:
            break
        player.run.moves.append(move)
        if not player.play(move):
            return player.run
    player.heal()
    return player.run


def replay(plan: Plan, moves: list[Move]) -> Run:
    """Play what can be played of a schedule, heal, and return what that shows.

    Args:
        plan: The world.
        moves: The schedule; a move that is not possible at its turn is passed over.
    """
    player = Player(plan)
    for move in moves:
        if move not in player.moves:
            continue
        player.run.moves.append(move)
        if not player.play(move):
            return player.run
    player.heal()
    return player.run


def _choose(rng: Random, weights: dict[Kind, float], moves: list[Move]) -> Move | None:
    if not moves:
        return None
    faults = [move for move in moves if move.kind in SPENDS]
    free = [move for move in moves if move.kind not in SPENDS]
    among = faults if faults and (not free or rng.random() < FAULTY) else free
    return rng.choices(among, [weights[move.kind] for move in among])[0]
