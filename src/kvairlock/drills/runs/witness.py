"""What the evidence and the answers say of a drill's requests.

Two witnesses: the client has the answer, the processes have recorded what they did for it. Where
the evidence is not at hand, nothing is said in its place.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from kvairlock.drills.canaries import Canaries, Marked
from kvairlock.drills.client import Call, Reply
from kvairlock.drills.library.drill import Trace
from kvairlock.drills.library.sights import Seen, Vouched
from kvairlock.drills.library.steps import Ask, Recorded
from kvairlock.drills.records import Entry, Records
from kvairlock.drills.stack import DrillFailed

SETTLE_S = 2.0
"""Within this time a process has written down what it did before it answered."""

LOOKS = 40
"""How often is looked within that time."""

ADMITTED = "admitted"
"""The outcome of a verdict that refuses nothing."""


@dataclass(slots=True)
class Asked:
    """One request that was made.

    Args:
        ask: The step.
        prompt: Its prompt.
        call: Its answer, as far as it has come.
        limit_tokens: What it was to fill, or None.
        at_boot_ns: When it was asked.
        tail: Whether another's slots were seen behind its prompt.
    """

    ask: Ask
    prompt: Marked
    call: Call
    limit_tokens: int | None
    at_boot_ns: int
    tail: bool = False

    @property
    def asked_tokens(self) -> int | None:
        """What it asked for, in the unit of what it was to fill."""
        return None if self.limit_tokens is None else self.limit_tokens + self.ask.over


class Witness:
    """Tells what came to light of the requests of one run.

    Args:
        records: The evidence, or None if it is not at hand.
        canaries: Those of all prompts.
        asked: The requests that were made so far, by name.
    """

    def __init__(
        self, records: Records | None, canaries: Canaries, asked: Mapping[str, Asked]
    ) -> None:
        self._records, self._canaries, self._asked = records, canaries, asked

    @property
    def has_evidence(self) -> bool:
        """Whether the evidence is at hand."""
        return self._records is not None

    def seen(self, asked: Asked) -> Seen:
        """Wait for the end of a request, and return what came to light of it."""
        prompt, reply = asked.prompt, asked.call.result()
        return Seen(
            tenant=asked.ask.tenant,
            http_status=reply.status,
            error=reply.error,
            text=reply.text,
            sent_tokens=len(prompt.text),
            prompt_tokens=reply.usage.get("prompt_tokens"),
            asked_tokens=asked.asked_tokens,
            limit_tokens=asked.limit_tokens,
            own=prompt.canary in reply.text,
            foreign=tuple(m.tenant for m in self._canaries.foreign(prompt, reply.text)),
            vouched=self._vouched(reply),
            sharers=self._sharers(asked, reply),
            tail=asked.tail,
        )

    def recorded(self, wanted: Recorded) -> Entry | None:
        """Return evidence since the last request was asked, or None while there is none."""
        records = self._at_hand()
        fields = {"node": wanted.node} if wanted.node else {}
        if wanted.tenant:
            fields["tenant"] = records.tenant(wanted.tenant)
        since = max((asked.at_boot_ns for asked in self._asked.values()), default=0)
        for event in wanted.events:
            for record in records.all(event, **fields):
                if record["at_boot_ns"] >= since:
                    return record
        return None

    def left(self, trace: Trace) -> bool:
        """Return whether the receiver recorded what it must; waits until all is written down."""
        records = self._at_hand()
        wanted: dict[str, str | int] = {"node": trace.node, **trace.fields}
        if trace.request:
            wanted["request"] = self.request_name(trace.request) or ""
        since = min(asked.at_boot_ns for asked in self._asked.values())
        found = _settled(records, trace.event, wanted)
        return any(record["at_boot_ns"] >= since for record in found)

    def refused_by(self, request: str) -> str:
        """Say which process recorded first that it refused something of a request, and why."""
        if self._records is None or (name := self.request_name(request)) is None:
            return ""
        refusals = [
            f"{r['node']}: {r['reason']} at {r['stage']}"
            for r in self._records.all("request_refused", request=name)
        ]
        verdicts = [
            f"{r['node']}: verdict {r['outcome']}"
            for r in self._records.all("verdict", request=name)
            if r["outcome"] != ADMITTED
        ]
        stripped = [
            f"{r['node']}: transfer parameters stripped"
            for r in self._records.all("parameters_stripped", request=name)
        ]
        return next(iter([*stripped, *verdicts, *refusals]), "")

    def request_name(self, request: str) -> str | None:
        """Return what the evidence calls a request of the drill; None while it says nothing.

        A client that left before its answer began was never told the name of its request; the
        gateway's own record of the tenant's next request says it.
        """
        asked, records = self._asked[request], self._at_hand()
        told = asked.call.reply.headers.get("x-request-id")
        if told:
            return records.request(told)
        tenant = records.tenant(asked.ask.tenant)
        found = records.all("request_admitted", node="gateway", tenant=tenant)
        return next((r["request"] for r in found if r["at_boot_ns"] >= asked.at_boot_ns), None)

    def _at_hand(self) -> Records:
        if self._records is None:
            raise DrillFailed("the evidence is not at hand")
        return self._records

    def _vouched(self, reply: Reply) -> Vouched:
        if self._records is None or not reply.text:
            return Vouched.UNSEEN
        request = self._records.request(reply.headers.get("x-request-id", ""))
        found = _settled(self._records, "verdict", {"request": request, "outcome": ADMITTED})
        return Vouched.ADMITTED if found else Vouched.NEVER

    def _sharers(self, asked: Asked, reply: Reply) -> tuple[str, ...]:
        """Tenants whose kept pages were read for a request: in its own name, or its ticket's."""
        if self._records is None or not reply.text:
            return ()
        names = {
            self.request_name(name) for name in (asked.ask.request, asked.ask.ticket_of) if name
        }
        creators = {
            record["creator"]
            for record in self._records.all("prefix_reused")
            if record["at_boot_ns"] >= asked.at_boot_ns and record["request"] in names
        }
        others = {other.ask.tenant for other in self._asked.values()} - {asked.ask.tenant}
        return tuple(t for t in sorted(others) if self._records.tenant(t) in creators)


def _settled(records: Records, event: str, wanted: Mapping[str, str | int]) -> list[Entry]:
    """Return records of a kind, or none if there are none once everything is written down."""
    for _ in range(LOOKS):
        found = [r for r in records.all(event) if all(_says(r, *item) for item in wanted.items())]
        if found:
            return found
        time.sleep(SETTLE_S / LOOKS)
    return []


def _says(record: Entry, name: str, value: str | int) -> bool:
    said = record.get(name)
    return value in said if isinstance(said, list) else bool(said == value)
