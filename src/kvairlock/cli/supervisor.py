"""Keeps the processes of a stack up, and takes them down in order.

    start   wave by wave (nodes, then the gateway); the next wave waits until all are ready
    keep    a process that ended is reaped and, if wanted, started again: a new incarnation, after a
            back-off that doubles up to a bound and starts afresh once a life was long
    stop    on SIGINT, SIGTERM or SIGHUP, or when a first start fails: waves in reverse, SIGTERM,
            SIGKILL after a grace; a second signal kills at once. Always ends with all reaped.

A process that a first start cannot bring up ends the whole; one that cannot come back is tried for
ever, because its peers serve on without it.
"""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import anyio
from anyio.abc import TaskGroup

from kvairlock.cli.child import Child, ChildSpec, Ready, StartFailed, how_ended
from kvairlock.core.terms import Instant
from kvairlock.runtime import clock


class Stage(StrEnum):
    """What a process is doing, as its supervisor sees it."""

    STARTING = "starting"
    READY = "ready"
    ENDED = "ended"
    WAITING = "waiting"
    STOPPING = "stopping"
    STOPPED = "stopped"


class View(Protocol):
    """Shows people what happens."""

    def moved(self, name: str, stage: Stage, detail: str) -> None:
        """A process has come to another stage."""

    def logged(self, name: str, line: str) -> None:
        """A process has logged a line."""


class Outcome(StrEnum):
    """Why a supervisor has ended."""

    STOPPED = "stopped"
    """It was told to."""
    ALL_ENDED = "all_ended"
    """No process was left, and none was to be started again."""


@dataclass(frozen=True, slots=True)
class Times:
    """How long things may take, in milliseconds.

    Args:
        start_ms: From the start of a process until it is ready.
        grace_ms: From SIGTERM to SIGKILL.
        backoff_ms_min: Before the first new start of a process; doubles with each.
        backoff_ms_max: Before any new start, at most.
        steady_ms: A life this long starts the back-off afresh.
    """

    start_ms: int
    grace_ms: int = 5_000
    backoff_ms_min: int = 200
    backoff_ms_max: int = 5_000
    steady_ms: int = 10_000


@dataclass(frozen=True, slots=True)
class Plan:
    """What a supervisor is to do.

    Args:
        waves: What to start, in order; the members of a wave start together.
        times: How long things may take.
        restart: Whether a process that ended is started again.
        view: Is told of every move and every line.
        up: Is told what every process said of itself, by name: once all are ready, and whenever
            they are so again.
    """

    waves: Sequence[Sequence[ChildSpec]]
    times: Times
    restart: bool
    view: View
    up: Callable[[Mapping[str, Ready]], None]


async def supervise(plan: Plan) -> Outcome:
    """Start all, keep them up until a signal comes, stop all.

    Raises:
        StartFailed: A process could not be started at first; the others were stopped.
    """
    with anyio.open_signal_receiver(*_signals()) as signals:
        async with anyio.create_task_group() as tasks:
            supervisor = _Supervisor(plan, tasks)
            outcome = await supervisor.run(signals)
    if supervisor.failed is not None:
        raise supervisor.failed
    return outcome


class _Supervisor:
    def __init__(self, plan: Plan, tasks: TaskGroup) -> None:
        self._plan = plan
        self._tasks = tasks
        self._life = anyio.CancelScope()
        self._children: dict[str, Child] = {}
        self._ready: dict[str, Ready] = {}
        self.failed: StartFailed | None = None

    async def run(self, signals: AsyncIterator[signal.Signals]) -> Outcome:
        self._tasks.start_soon(self._obey, signals)
        try:
            with self._life:
                await self._serve()
        finally:
            with anyio.CancelScope(shield=True):
                await self._stop_all()
            self._tasks.cancel_scope.cancel()
        return Outcome.STOPPED if self._life.cancelled_caught else Outcome.ALL_ENDED

    async def _obey(self, signals: AsyncIterator[signal.Signals]) -> None:
        async for _ in signals:
            if self._life.cancel_called:
                for child in self._children.values():
                    child.kill()
            self._life.cancel()

    async def _serve(self) -> None:
        async with anyio.create_task_group() as keepers:
            for wave in self._plan.waves:
                async with anyio.create_task_group() as starts:
                    for spec in wave:
                        starts.start_soon(self._start_first, spec)
                for spec in wave:
                    keepers.start_soon(self._keep, spec.name)
            self._say_up()

    async def _start_first(self, spec: ChildSpec) -> None:
        try:
            detail = await self._start(spec)
        except StartFailed as error:
            self.failed = self.failed or error
            self._life.cancel()
        else:
            self._plan.view.moved(spec.name, Stage.READY, detail)

    async def _start(self, spec: ChildSpec) -> str:
        began = clock.now()
        self._plan.view.moved(spec.name, Stage.STARTING, "")
        child = await Child.spawn(spec)
        self._children[spec.name] = child
        self._tasks.start_soon(child.listen, self._plan.view.logged)
        ready = await child.ready(self._plan.times.start_ms)
        self._ready[spec.name] = ready
        return f"pid {child.pid}, {ready.url or f'{ready.tokens} tokens'}, {_seconds(began)}"

    async def _keep(self, name: str) -> None:
        """Wait for the ends of a process, life after life."""
        backoff_ms = self._plan.times.backoff_ms_min
        while True:
            began = clock.now()
            ended = how_ended(await self._children[name].wait())
            self._ready.pop(name, None)
            self._plan.view.moved(name, Stage.ENDED, f"{ended}, after {_seconds(began)}")
            if not self._plan.restart:
                return
            if clock.elapsed_ms(began) >= self._plan.times.steady_ms:
                backoff_ms = self._plan.times.backoff_ms_min
            self._plan.view.moved(name, Stage.WAITING, f"starts again in {backoff_ms} ms")
            await anyio.sleep(backoff_ms / 1000)
            backoff_ms = min(2 * backoff_ms, self._plan.times.backoff_ms_max)
            await self._start_again(name)

    async def _start_again(self, name: str) -> None:
        try:
            detail = await self._start(self._children[name].spec)
        except StartFailed as error:
            self._plan.view.moved(name, Stage.ENDED, str(error))
            self._children[name].kill()
        else:
            self._say_up()  # first: who reads that it is ready may look for its new pid
            self._plan.view.moved(name, Stage.READY, detail)

    def _say_up(self) -> None:
        if len(self._ready) == sum(len(wave) for wave in self._plan.waves):
            self._plan.up(self._ready)

    async def _stop_all(self) -> None:
        for wave in reversed(self._plan.waves):
            async with anyio.create_task_group() as stops:
                for spec in wave:
                    if spec.name in self._children:
                        stops.start_soon(self._stop, self._children[spec.name])

    async def _stop(self, child: Child) -> None:
        if child.running:
            self._plan.view.moved(child.spec.name, Stage.STOPPING, "")
        ended = how_ended(await child.stop(self._plan.times.grace_ms))
        self._plan.view.moved(child.spec.name, Stage.STOPPED, ended)


def _signals() -> list[signal.Signals]:
    """Return the signals that end a stack; `nohup` has it live on without its terminal."""
    ends = [signal.SIGINT, signal.SIGTERM]
    ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return ends if ignored else [*ends, signal.SIGHUP]


def _seconds(since: Instant) -> str:
    return f"{clock.elapsed_ms(since) / 1000:.1f} s"
