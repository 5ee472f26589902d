"""Plays a schedule on a running stack, and says what came to light about one of its requests."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

from kvairlock.drills.canaries import Canaries, Marked
from kvairlock.drills.client import Call, Client, Reply
from kvairlock.drills.live_pages import tail_is_foreign
from kvairlock.drills.live_steps import (
    Answered,
    Arm,
    Ask,
    Hold,
    Idle,
    Leave,
    Look,
    Pass,
    Recorded,
    Release,
    Resume,
    Step,
    Stop,
)
from kvairlock.drills.records import Entry, Records
from kvairlock.drills.stack import wait_for


@dataclass(frozen=True, slots=True)
class Seen:
    """What came to light about one request.

    Args:
        http_status: What its client got.
        refusal: Code of the typed refusal, or None.
        text: Its answer.
        own: Whether its own canary is in it.
        foreign: Tenants whose canary is in it.
        vouched: Whether decode admitted pages for this very request.
        sharers: Tenants whose kept pages were read for it; itself is not among them.
        tail: Whether another's bytes were behind its prompt.
    """

    http_status: int
    refusal: str | None
    text: str
    own: bool
    foreign: tuple[str, ...]
    vouched: bool
    sharers: tuple[str, ...]
    tail: bool


class Player:
    """Carries out one schedule.

    Args:
        client: The way into the stack.
        canaries: Makes the prompts.
        records: The stack's evidence.
    """

    def __init__(self, client: Client, canaries: Canaries, records: Records) -> None:
        self._client, self._canaries, self._records = client, canaries, records
        self._prompts: dict[str, Marked] = {}
        self._calls: dict[str, Call] = {}
        self._asked_ns: dict[str, int] = {}
        self._asks: dict[str, Ask] = {}
        self._foreign_tail: set[str] = set()

    def play(self, steps: Iterable[Step], who: str) -> Seen:
        """Carry out the steps, and say what came to light about a request.

        Args:
            steps: The schedule.
            who: The request.

        Raises:
            DrillFailed: Something that is waited for does not happen.
        """
        for step in steps:
            self._do(step)
        return self._seen(who)

    def left(self, event: str) -> bool:
        """Return whether there is evidence of a kind since the first request was asked."""
        since = min(self._asked_ns.values(), default=0)
        return any(record["at_boot_ns"] >= since for record in self._records.all(event))

    def _do(self, step: Step) -> None:
        client = self._client
        match step:
            case Arm(node, point, after):
                client.point(node, "arm", point, after)
            case Release(node, point):
                client.point(node, "release", point)
            case Hold(node, point):
                client.held(node, point)
            case Ask():
                self._ask(step)
            case Answered(who):
                self._calls[who].result()
            case Leave(who):
                self._calls[who].leave()
            case Recorded():
                wait_for(f"evidence of {step.events}", lambda: self._recorded(step))
            case Stop(node):
                client.stack.pause(node)
            case Resume(node):
                client.stack.resume(node)
            case Pass(ms):
                time.sleep(ms / 1000)
            case Idle():
                client.idle()
            case Look():
                self._look(step)

    def _ask(self, ask: Ask) -> None:
        prompt = self._prompt(ask)
        ticket = self._ticket(ask.ticket) if ask.ticket else None
        self._prompts[ask.who], self._asks[ask.who] = prompt, ask
        self._asked_ns[ask.who] = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        self._calls[ask.who] = self._client.ask(
            prompt, ask.via or None, ask.max_tokens, ticket, show_ticket=ask.shows
        )

    def _prompt(self, ask: Ask) -> Marked:
        if ask.like:
            return self._prompts[ask.like]
        return self._canaries.prompt(ask.tenant, ask.characters, ask.beginning)

    def _ticket(self, who: str) -> str:
        reply = self._calls[who].reply
        return wait_for("the ticket", lambda: reply.headers.get("x-kvairlock-ticket"))

    def _recorded(self, wanted: Recorded) -> Entry | None:
        fields = {"node": wanted.node} if wanted.node else {}
        if wanted.tenant:
            fields["tenant"] = self._records.tenant(wanted.tenant)
        since = max(self._asked_ns.values(), default=0)
        for event in wanted.events:
            for record in self._records.all(event, **fields):
                if record["at_boot_ns"] >= since:
                    return record
        return None

    def _look(self, look: Look) -> None:
        mine, other = self._reading(look.who, look.node), self._reading(look.other, look.node)
        tokens = len(self._prompts[look.who].text)
        pid = self._client.stack.pids[look.node]
        if tail_is_foreign(pid, mine["pages"], other["pages"], tokens):
            self._foreign_tail.add(look.who)

    def _reading(self, who: str, node: str) -> Entry:
        tenant, since = self._records.tenant(self._asks[who].tenant), self._asked_ns[who]
        found = self._records.all("read_started", tenant=tenant, node=node)
        return next(record for record in found if record["at_boot_ns"] >= since)

    def _seen(self, who: str) -> Seen:
        prompt, reply = self._prompts[who], self._calls[who].result()
        records = self._records
        request = records.request(reply.headers.get("x-request-id", ""))
        return Seen(
            http_status=reply.status,
            refusal=reply.refusal,
            text=reply.text,
            own=prompt.canary in reply.text,
            foreign=tuple(m.tenant for m in self._canaries.foreign(prompt, reply.text)),
            vouched=bool(records.all("verdict", request=request, outcome="admitted")),
            sharers=self._sharers(who, reply),
            tail=who in self._foreign_tail,
        )

    def _sharers(self, who: str, reply: Reply) -> tuple[str, ...]:
        """Tenants whose kept pages were read for this request: under its own or another's name."""
        ask = self._asks[who]
        names = {asked.tenant: self._records.tenant(asked.tenant) for asked in self._asks.values()}
        since = self._asked_ns[who]
        creators = {
            record["creator"]
            for record in self._records.all("prefix_reused")
            if record["at_boot_ns"] >= since and reply.text
        }
        return tuple(t for t, name in names.items() if name in creators and t != ask.tenant)
