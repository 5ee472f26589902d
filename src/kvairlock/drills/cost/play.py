"""Plays one load of a cost run on a running stack, and watches what the stack holds meanwhile.

    clients        ask, read, leave, try again        ..........half..........
    strike         kills or stops a process                      |----->
    watch          looks at /status again and again   .  .  .  .  .  .  .  .  .
    settle         every process up, no request open, every page back

The strike comes after a number of ends and not after a time, so that it hits a slow machine where
it hits a fast one. Processes are watched from outside, by what nodes report.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

import anyio
import anyio.to_thread
import httpx

from kvairlock.core.terms import Instant
from kvairlock.drills.canaries import Canaries
from kvairlock.drills.client import Client
from kvairlock.drills.cost.loads import CostLoad, Strike
from kvairlock.drills.cost.samples import Sample
from kvairlock.drills.faults.table import Mishap
from kvairlock.drills.soak.judge import Answers, Leftovers
from kvairlock.drills.soak.load import Load, Outcome
from kvairlock.drills.soak.plan import Ask
from kvairlock.drills.stack import DrillFailed, Keys, wait_for
from kvairlock.engine.model import RECALL
from kvairlock.runtime import clock

SAMPLE_MS = 100


@dataclass(slots=True)
class Played:
    """One load that was played once.

    Args:
        load: The load.
        began: When the first request was sent.
        ended: When everything had settled again.
        seconds: From the first request to the last end.
        outcomes: What came to each client.
        answers: The same, counted.
        samples: What the nodes held back.
        leftovers: What was left when nothing ran any more.
    """

    load: CostLoad
    began: Instant
    ended: Instant
    seconds: float = 0.0
    outcomes: list[Outcome] = field(default_factory=list)
    answers: Answers = field(default_factory=Answers)
    samples: list[Sample] = field(default_factory=list)
    leftovers: Leftovers = field(default_factory=lambda: Leftovers(0, 0, 0, 0))


class LoadPlayer:
    """Plays loads on a running stack.

    Args:
        client: The operator's way into the stack.
        keys: The keys of its tenants.
        canaries: Of all prompts of the run.
        concurrency: Requests at one time where a load does not crowd.
        stop_ms: How long a stopped process stands.
        tell: Called whenever a request has ended, with the load and what has come of it so far.
    """

    def __init__(
        self,
        client: Client,
        keys: Keys,
        canaries: Canaries,
        concurrency: int,
        stop_ms: int,
        tell: Callable[[CostLoad, Answers], None],
    ) -> None:
        self._client, self._keys, self._canaries = client, keys, canaries
        self._concurrency, self._stop_ms, self._tell = concurrency, stop_ms, tell

    def play(self, load: CostLoad, asks: Sequence[Ask]) -> Played:
        """Play a load, and return once the stack has settled.

        Args:
            load: The load.
            asks: Its requests.

        Raises:
            DrillFailed: A process does not come back.
        """
        lives, now = self._client.stack.lives(), clock.now()
        played = Played(load, began=now, ended=now)
        anyio.run(self._play, played, asks)
        played.leftovers = self._settle(load.strike, lives)
        played.ended = clock.now()
        return played

    async def _play(self, played: Played, asks: Sequence[Ask]) -> None:
        half = anyio.Event()
        async with anyio.create_task_group() as watch:
            watch.start_soon(self._watch, played.samples)
            async with anyio.create_task_group() as tasks:
                if played.load.strike is not None:
                    tasks.start_soon(self._strike, played.load.strike, half)
                await self._ask(played, asks, half)
            watch.cancel_scope.cancel()

    async def _ask(self, played: Played, asks: Sequence[Ask], half: anyio.Event) -> None:
        def take(outcome: Outcome) -> None:
            played.outcomes.append(outcome)
            played.answers.take(outcome, self._canaries)
            self._tell(played.load, played.answers)
            if 2 * len(played.outcomes) >= len(asks):
                half.set()

        load = played.load
        clients = Load(
            self._client.url,
            self._keys.of,
            RECALL,
            self._concurrency * load.crowding,
            take,
            load.manners,
        )
        began_s = time.monotonic()
        await clients.run(asks)
        played.seconds = time.monotonic() - began_s

    async def _watch(self, samples: list[Sample]) -> None:
        while True:
            with suppress(httpx.HTTPError):  # a gateway that is gone is noticed after the requests
                status = await anyio.to_thread.run_sync(self._client.status)
                samples.append(Sample.of(status))
            await anyio.sleep(SAMPLE_MS / 1000)

    async def _strike(self, strike: Strike, half: anyio.Event) -> None:
        await half.wait()
        stack = self._client.stack
        if strike.mishap is Mishap.CRASH:
            stack.send(strike.node, signal.SIGKILL)
            return
        stack.send(strike.node, signal.SIGSTOP)
        try:
            await anyio.sleep(self._stop_ms / 1000)
        finally:
            stack.send(strike.node, signal.SIGCONT)

    def _settle(self, strike: Strike | None, lives: Mapping[str, str]) -> Leftovers:
        """Wait until all processes are there again, and return what they hold then."""
        if strike is not None and strike.mishap is Mishap.CRASH:
            again = partial(self._is_another, strike.node, lives[strike.node])
            wait_for(f"{strike.node} to be started again", again)
        self._client.wait_until_all_up()
        return self._leftovers()

    def _is_another(self, name: str, life: str) -> bool | None:
        return True if self._client.stack.lives()[name] != life else None

    def _leftovers(self) -> Leftovers:
        try:
            return Leftovers.of(self._client.idle())
        except DrillFailed:
            return Leftovers.of(self._client.status())
