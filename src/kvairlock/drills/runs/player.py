"""Carries out the steps of a drill on a running stack, from outside, within its limits."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from kvairlock.drills.canaries import Canaries, Marked
from kvairlock.drills.client import GatewayClient
from kvairlock.drills.library.drill import Drill
from kvairlock.drills.library.sights import Seen
from kvairlock.drills.library.steps import (
    PROMPT_CHARACTERS,
    Answered,
    AnyStep,
    Arm,
    Ask,
    Crowd,
    Fills,
    Held,
    Idle,
    Leave,
    Look,
    Pass,
    Recorded,
    Release,
    Resume,
    Stop,
    asks_of,
)
from kvairlock.drills.records import Entry, Records
from kvairlock.drills.runs.witness import Asked, Witness
from kvairlock.drills.slots import tail_is_foreign
from kvairlock.drills.stack import WAIT_S, DrillFailed, Running, wait_for

ALIKE_SEED = 0
"""What all prompts begin with that begin alike is the same in every drill."""

Found = TypeVar("Found")


class BeyondLimits(DrillFailed):
    """A drill would have gone beyond what was agreed on, and was ended instead."""

    code = "beyond_limits"


@dataclass(frozen=True, slots=True)
class Site:
    """Where a drill is carried out.

    Args:
        client: The way into the gateway.
        records: The evidence, or None if it is not at hand.
        stack: The processes, or None if they are somebody else's.
    """

    client: GatewayClient
    records: Records | None
    stack: Running | None


class Player:
    """Carries out one drill, once.

    Args:
        drill: The drill.
        site: Where.
        canaries: Makes the prompts.
    """

    def __init__(self, drill: Drill, site: Site, canaries: Canaries) -> None:
        self._drill, self._site, self._canaries = drill, site, canaries
        self._client = site.client
        self._shown = {ask.ticket_of for ask in drill.asks}
        self._alike = Canaries(ALIKE_SEED).filler(max(ask.alike for ask in drill.asks))
        self._asked: dict[str, Asked] = {}
        self._crowds: dict[str, tuple[str, ...]] = {}
        self._until = time.monotonic() + drill.limits.seconds_max
        self.witness = Witness(site.records, canaries, self._asked)

    @property
    def asked(self) -> Mapping[str, Asked]:
        """The requests that were made so far, by name."""
        return self._asked

    def play(self) -> dict[str, Seen]:
        """Carry out the steps; return what came to light of each request once all have ended.

        Raises:
            BeyondLimits: A limit would be exceeded.
            DrillFailed: Something that is waited for does not happen.
        """
        with self._client.drilling(self._drill.name):
            for step in self._drill.steps:
                self._do(step)
        return {name: self.witness.seen(asked) for name, asked in self._asked.items()}

    # Steps

    def _do(self, step: AnyStep) -> None:
        client = self._client
        match step:
            case Arm(node, point, after):
                client.point(node, "arm", point, after)
            case Release(node, point):
                client.point(node, "release", point)
            case Held(node, point):
                client.held(node, point)
            case Ask() | Crowd():
                self._ask_all(step)
            case Answered(request):
                for name in self._crowds[request]:
                    self._asked[name].call.result()
            case Leave(request):
                for name in self._crowds[request]:
                    self._asked[name].call.leave()
            case Recorded(events):
                self._wait_for(f"evidence of {events}", lambda: self.witness.recorded(step))
            case Stop(node):
                self._stack.pause(node)
            case Resume(node):
                self._stack.resume(node)
            case Pass(ms):
                time.sleep(ms / 1000)
            case Idle():
                client.idle()
            case Look():
                self._look(step)

    @property
    def _stack(self) -> Running:
        if self._site.stack is None:
            raise DrillFailed("the processes are not this drill's to touch")
        return self._site.stack

    def _wait_for(self, what: str, look: Callable[[], Found | None]) -> Found:
        return wait_for(what, look, min(WAIT_S, self._seconds_left()))

    def _seconds_left(self) -> float:
        left = self._until - time.monotonic()
        if left <= 0:
            most = self._drill.limits.seconds_max
            raise BeyondLimits(f"it has taken longer than limits.seconds_max, {most} s")
        return left

    def _look(self, look: Look) -> None:
        mine, other = self._reading(look.request, look.node), self._reading(look.other, look.node)
        asked = self._asked[look.request]
        pid, tokens = self._stack.pids[look.node], len(asked.prompt.text)
        asked.tail = tail_is_foreign(pid, mine["pages"], other["pages"], tokens)

    def _reading(self, request: str, node: str) -> Entry:
        if self._site.records is None:
            raise DrillFailed("the evidence is not at hand")
        name = self._wait_for(f"a record of {request}", lambda: self.witness.request_name(request))
        return self._site.records.last("read_started", request=name, node=node)

    # Asking

    def _ask_all(self, step: Ask | Crowd) -> None:
        asks = asks_of((step,))
        self._crowds[step.request] = tuple(ask.request for ask in asks)
        # All prompts first, so that the requests of a crowd come together.
        for ask, (limit_tokens, prompt) in [(ask, self._prompt(ask)) for ask in asks]:
            self._ask(ask, limit_tokens, prompt)

    def _ask(self, ask: Ask, limit_tokens: int | None, prompt: Marked) -> None:
        self._seconds_left()
        ticket = self._ticket(ask.ticket_of) if ask.ticket_of else None
        route, show = ask.route or None, ask.request in self._shown
        at_boot_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        call = self._client.ask(prompt, route, ask.max_tokens, ticket, show_ticket=show)
        self._asked[ask.request] = Asked(ask, prompt, call, limit_tokens, at_boot_ns)

    def _ticket(self, request: str) -> str:
        reply = self._asked[request].call.reply
        return self._wait_for("the ticket", lambda: reply.headers.get("x-kvairlock-ticket"))

    def _prompt(self, ask: Ask) -> tuple[int | None, Marked]:
        """Return what a prompt is to fill, if anything, in tokens, and the prompt."""
        if ask.same_as:
            return None, replace(self._asked[ask.same_as].prompt, tenant=ask.tenant)
        limit = None if ask.fills is None else self._measured(ask, ask.fills)
        length = PROMPT_CHARACTERS if ask.characters is None else ask.characters
        if limit is not None:
            answer = 0 if ask.fills is Fills.PREFILL else ask.max_tokens
            length = limit + ask.over - answer
        self._agreed(ask.request, length)
        return limit, self._canaries.prompt(ask.tenant, length, self._alike[: ask.alike])

    def _measured(self, ask: Ask, fills: Fills) -> int:
        """Return a figure that the stack states of itself, in tokens."""
        if fills is Fills.PROMISE:
            return self._client.context_tokens()
        prefill, _, decode = ask.route.partition("/")
        node = prefill if fills is Fills.PREFILL else decode
        report = self._client.node(node)["status"]["report"]
        return int(report["pages"] * report["page_tokens"])

    def _agreed(self, request: str, length: int) -> None:
        least, most = self._drill.limits.prompt_tokens
        if not least <= length <= most:
            raise BeyondLimits(
                f"{request} would be a prompt of {length} tokens; limits.prompt_tokens is {least} "
                f"to {most}"
            )
