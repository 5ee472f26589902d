"""The soak: a stack under more load than it has pages for, by many tenants, some of whom leave.

    start -> warm up -> nothing open: count files -> soak -> nothing open: count again -> stop
                                                                 -> read the evidence -> judge

Its stack has two unequal prefill nodes, as in the demo, and a decode pool that holds some of the
requests that come at one time, so that the others wait. A process that dies is not started again.
"""

from __future__ import annotations

import json as jsonlib
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import anyio
from rich.console import Console

from kvairlock.core.guards import Guard
from kvairlock.core.terms import LandingPolicy
from kvairlock.drills.canaries import Canaries
from kvairlock.drills.client import Client
from kvairlock.drills.gauges import Descriptors, Gauges
from kvairlock.drills.soak.evidence import hear
from kvairlock.drills.soak.judge import Answers, Leftovers, Soaked
from kvairlock.drills.soak.load import Load, Outcome
from kvairlock.drills.soak.plan import CONTEXT_TOKENS, Ask, Plan, Profile, profile_for
from kvairlock.drills.soak.report import View, document, show, show_json, so_far
from kvairlock.drills.stack import (
    DrillFailed,
    Keys,
    Running,
    make_keys,
    running,
    wait_for,
    with_clients,
    workplace,
)
from kvairlock.engine.model import served_name

OPERATOR = "operator"
SAMPLES = 10
"""Of memory, over a soak."""

WARM_SHARE = 5
"""At most one request of so many is part of the warm-up."""

SETTLE_S = 5.0
PREFILL_MS = 60_000


@dataclass(frozen=True, slots=True)
class Setting:
    """What a soak is asked for with.

    Args:
        model: The model to serve: a name, or the absolute path of a file.
        requests: How many, or None for what suits the model.
        tenants: How many ask.
        concurrency: Requests at one time.
        seed: What everything is drawn from.
        guards_off: The guards that do not enforce.
        landing: How remote writes become pages.
    """

    model: str
    requests: int | None
    tenants: int
    concurrency: int
    seed: int
    guards_off: tuple[Guard, ...]
    landing: LandingPolicy


def run(setting: Setting, *, json: bool = False, keep: Path | None = None) -> int:
    """Soak a stack and print what came of it.

    Args:
        setting: What to do.
        json: Print one JSON document instead of a table.
        keep: Keep settings, log and evidence in this folder, which should be empty.

    Returns:
        0 if all is as it must be, 1 if not.
    """
    try:
        with workplace(keep) as folder:
            soaked = soak(setting, folder)
    except DrillFailed as failed:
        Console(stderr=True, markup=False).print(f"the soak could not be carried out: {failed}")
        return 1
    facts = {
        "model": served_name(setting.model),
        "seed": setting.seed,
        "tenants": setting.tenants,
        "concurrency": setting.concurrency,
        "landing": str(setting.landing),
        "guards_off": [str(guard) for guard in setting.guards_off],
    }
    told = document(soaked, facts)
    (show_json if json else show)(told)
    return 0 if told["ok"] else 1


def soak(setting: Setting, folder: Path) -> Soaked:
    """Soak a stack of its own.

    Args:
        setting: What to do.
        folder: Where keys, settings, log and evidence go.

    Raises:
        DrillFailed: It did not start, or one of its processes has ended.
    """
    profile = profile_for(setting.model)
    tenants = [f"tenant-{number}" for number in range(setting.tenants)]
    plan = Plan(setting.seed, tenants, profile)
    asks = [plan.draw() for _ in range(setting.requests or profile.requests)]
    keys = with_clients(make_keys(folder, (OPERATOR,)), tenants)
    view = View(len(asks))
    with running(settings(setting, profile), keys, folder) as stack, view.shown():
        clients = Clients(setting, stack, keys, plan.canaries, view)
        seconds, descriptors, leftovers = clients.soak(asks)
    return Soaked(
        asked=len(asks),
        repeats=profile.repeats,
        answers=clients.answers,
        leftovers=leftovers,
        descriptors=descriptors,
        memory=clients.gauges.memory,
        witness=hear(stack.evidence),
        seconds=seconds,
    )


def settings(setting: Setting, profile: Profile) -> str:
    """Return the TOML of a soak's stack.

    Args:
        setting: What to do.
        profile: What its model is asked.
    """
    off = ", ".join(f'"{guard}"' for guard in setting.guards_off)
    is_drill = bool(off) or setting.landing is LandingPolicy.DIRECT
    return f"""
model = {jsonlib.dumps(setting.model)}
restart = false

[gateway]
port = 0
ticket_s = {(profile.queue_ms + PREFILL_MS) // 1000 + 1}

[commitment]
context_tokens = {CONTEXT_TOKENS}

[[prefill]]
name = "prefill-0"
pages = 20

[[prefill]]
name = "prefill-1"
pages = 160

[[decode]]
name = "decode-0"
pages = 128
landing = "{setting.landing}"

[limits]
queue_ms = {profile.queue_ms}
prefill_ms = {PREFILL_MS}

[drill]
enabled = {str(is_drill).lower()}
guards_off = [{off}]
"""


class Clients:
    """All clients of one soak, and what is seen from outside meanwhile.

    Args:
        setting: What to do.
        stack: The stack, which serves.
        keys: The keys of its tenants.
        canaries: Of the prompts.
        view: Is shown how it goes.
    """

    def __init__(
        self, setting: Setting, stack: Running, keys: Keys, canaries: Canaries, view: View
    ) -> None:
        self.answers = Answers()
        self.gauges = Gauges(stack.pids)
        self._setting, self._stack, self._keys = setting, stack, keys
        self._canaries, self._view = canaries, view
        self._operator = Client(stack, keys)

    def soak(self, asks: Sequence[Ask]) -> tuple[float, Mapping[str, Descriptors], Leftovers]:
        """Ask everything; return the seconds that took, and what the stack holds afterwards.

        What a process opens once, on first use, it opens for the first requests; they count like
        the others, but files and memory are compared with what was there after them.

        Raises:
            DrillFailed: A process has ended.
        """
        warm = min(2 * self._setting.concurrency, len(asks) // WARM_SHARE)
        every = max(1, len(asks) // SAMPLES)
        started = time.monotonic()
        self._ask(asks[:warm], self._count)
        self._leftovers()
        before = self.gauges.descriptors()
        self.gauges.sample_memory()
        self._ask(asks[warm:], partial(self._sample, every))
        seconds = time.monotonic() - started
        leftovers = self._leftovers()
        after = self._files_settled(before)
        self.gauges.sample_memory()
        return seconds, {n: Descriptors(before[n], after[n]) for n in before}, leftovers

    def _ask(self, asks: Sequence[Ask], tell: Callable[[Outcome], None]) -> None:
        concurrency = self._setting.concurrency
        model = served_name(self._setting.model)
        load = Load(self._stack.url, self._keys.of, model, concurrency, tell)
        anyio.run(load.run, asks)
        self.gauges.descriptors()  # raises here if a process has ended

    def _count(self, outcome: Outcome) -> None:
        self.answers.take(outcome, self._canaries)
        self._view.moved(self.answers.requests, so_far(self.answers))

    def _sample(self, every: int, outcome: Outcome) -> None:
        self._count(outcome)
        if self.answers.requests % every == 0:
            with suppress(DrillFailed):  # a process that has ended is noticed after the requests
                self.gauges.sample_memory()

    def _leftovers(self) -> Leftovers:
        try:
            status = self._operator.idle()
        except DrillFailed:
            status = self._operator.status()
        return Leftovers.of(status)

    def _files_settled(self, before: Mapping[str, int]) -> dict[str, int]:
        """Give processes a moment to close what their clients have closed; return what is open."""

        def look() -> dict[str, int] | None:
            now = self.gauges.descriptors()
            return now if all(now[name] <= before[name] for name in now) else None

        try:
            return wait_for("files to be closed", look, SETTLE_S)
        except DrillFailed:
            return self.gauges.descriptors()
