"""What faults cost: loads with and without them, on one stack, interleaved, in one table.

    start -> warm up -> round 1: every load once, in a drawn order -> round 2 ... -> stop
                                                       -> read the evidence -> account

So all loads are compared in one run, and what the machine does besides hits all alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from rich.console import Console

from kvairlock.drills.canaries import Canaries
from kvairlock.drills.client import Client
from kvairlock.drills.cost.account import Account, Costed, document
from kvairlock.drills.cost.evidence import Heard, hear, read_all
from kvairlock.drills.cost.loads import LOADS, NORMAL, TENANTS, CostLoad, draw, order
from kvairlock.drills.cost.play import LoadPlayer, Played
from kvairlock.drills.cost.stack import STOP_MS, settings
from kvairlock.drills.cost.table import show
from kvairlock.drills.soak.judge import Answers
from kvairlock.drills.soak.plan import Ask
from kvairlock.drills.soak.report import View, show_json, so_far
from kvairlock.drills.stack import DrillFailed, make_keys, running, with_clients, workplace

OPERATOR = "operator"
WARM_UP = replace(NORMAL, name="warm-up")
"""What processes open and load on first use is there before anything is measured."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What a cost run is asked for with.

    Args:
        requests: How many in each load and round.
        rounds: How often each load is played.
        concurrency: Requests at one time where a load does not crowd.
        seed: What everything is drawn from.
    """

    requests: int
    rounds: int
    concurrency: int
    seed: int


def run(setting: Setting, *, json: bool = False, keep: Path | None = None) -> int:
    """Play all loads and print what they cost.

    Args:
        setting: What to do.
        json: Print one JSON document instead of a table.
        keep: Keep settings, log and evidence in this folder, which should be empty.

    Returns:
        0 if nothing leaked, broke or remained in any load, 1 if something did.
    """
    try:
        with workplace(keep) as folder:
            account = cost(setting, folder)
    except DrillFailed as failed:
        Console(stderr=True, markup=False).print(f"the cost run could not be carried out: {failed}")
        return 1
    told = document(account, asdict(setting))
    (show_json if json else show)(told)
    return 0 if told["ok"] else 1


def cost(setting: Setting, folder: Path) -> Account:
    """Play all loads on a stack of its own.

    Args:
        setting: What to do.
        folder: Where keys, settings, log and evidence go.

    Raises:
        DrillFailed: It did not start, or a process did not come back.
    """
    keys = with_clients(make_keys(folder, (OPERATOR,)), TENANTS)
    canaries, concurrency = Canaries(setting.seed), setting.concurrency
    progress = Progress(setting)
    with running(settings(concurrency), keys, folder) as stack, progress.shown():
        client = Client(stack, keys)
        client.wait_until_all_up()
        player = LoadPlayer(client, keys, canaries, concurrency, STOP_MS, progress.moved)
        warm_up = player.play(WARM_UP, draw(WARM_UP, 2 * concurrency, WARM_UP.name, canaries))
        plays = [player.play(load, asks) for load, asks in _rounds(setting, canaries)]
    everything = [warm_up, *plays]
    spans = [(played.began, played.ended) for played in everything]
    heard = hear(read_all(stack.evidence), spans)
    warm, *costed = (_costed(load, everything, heard) for load in (WARM_UP, *LOADS))
    return Account(warm, costed)


def _rounds(setting: Setting, canaries: Canaries) -> Iterator[tuple[CostLoad, list[Ask]]]:
    """Yield every load once a round, with requests of equal lengths, in an order of the round."""
    for number in range(setting.rounds):
        seed = f"{setting.seed}/{number}"
        for load in order(LOADS, seed):
            yield load, draw(load, setting.requests, seed, canaries)


def _costed(load: CostLoad, plays: Sequence[Played], heard: Sequence[Heard]) -> Costed:
    mine = [number for number, played in enumerate(plays) if played.load is load]
    return Costed(load, [plays[number] for number in mine], [heard[number] for number in mine])


class Progress:
    """Shows on stderr how far a cost run is.

    Args:
        setting: What it does.
    """

    def __init__(self, setting: Setting) -> None:
        self._done, self._rounds = 0, setting.rounds
        self._each = setting.requests * sum(load.crowding for load in LOADS)
        self._view = View(self._each * setting.rounds)

    def shown(self) -> AbstractContextManager[None]:
        """Show it while this is open."""
        return self._view.shown()

    def moved(self, load: CostLoad, answers: Answers) -> None:
        """Show that a request has ended."""
        if load is WARM_UP:
            return
        number = self._done // self._each + 1
        self._done += 1
        round_ = f"round {number} of {self._rounds}"
        self._view.moved(self._done, f"{round_}, {load.name}: {so_far(answers)}")
