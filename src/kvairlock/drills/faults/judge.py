"""What was seen of one row of the fault matrix, and what of it is not as the row says.

A row asserts what the nodes recorded, not that nobody complained: how the request ended on each
node, on which evidence its window was fenced, that no page came back without any.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kvairlock.core.ends import End
from kvairlock.core.errors import Reason
from kvairlock.core.terms import Fence
from kvairlock.drills.canaries import Marked
from kvairlock.drills.client import Reply
from kvairlock.drills.faults.bench import P0
from kvairlock.drills.faults.outcomes import (
    Answer,
    CutShort,
    Disconnected,
    Left,
    Outcome,
    RecordedEnd,
    Refused,
    When,
    recorded,
)
from kvairlock.drills.faults.table import Row
from kvairlock.drills.journal import Journal
from kvairlock.drills.records import Entry
from kvairlock.runtime.failpoints import Failpoint

HTTP_OK = 200


@dataclass(frozen=True, slots=True)
class Seen:
    """What was seen of one row.

    Args:
        client: What the client got, in the table's words.
        reply: The same as it came; None if the client had left.
        decode: How the request ended in decode's records.
        prefill: The same in prefill's.
        fence: On which evidence its window was fenced; None if that is not recorded.
        client_ms: How long the client waited for what it got, or None if it had left.
        next_ms: How long after the end of the mishap the next request had been answered.
        wrong: What must hold in every row, and does not.
    """

    client: str
    reply: Reply | None
    decode: str
    prefill: str
    fence: str | None
    client_ms: int | None
    next_ms: int
    wrong: tuple[str, ...]

    def __str__(self) -> str:
        """Say it in one line."""
        told = "" if self.client_ms is None else f" after {self.client_ms} ms"
        parts = (
            f"client: {self.client}{told}",
            f"decode: {self.decode}",
            f"prefill: {self.prefill}",
            f"window fenced: {self.fence or RecordedEnd.NOTHING}",
            f"next answered after {self.next_ms} ms",
        )
        return "; ".join(parts)


def expected(row: Row) -> str:
    """Say in one line what a row expects."""
    rule, bounds = row.rule, row.bounds
    parts = (
        f"client: {rule.client} within {bounds.client_ms} ms",
        f"decode: {' or '.join(_words(rule.decode))}",
        f"prefill: {' or '.join(_words(rule.prefill))}",
        f"window fenced: {' or '.join(rule.fence) or RecordedEnd.NOTHING}",
        f"next answered within {bounds.next_ms} ms",
    )
    return "; ".join(parts)


def complaints(row: Row, seen: Seen) -> tuple[str, ...]:
    """Say what is not as a row says; nothing if it holds."""
    return tuple(_complaints(row, seen))


def _complaints(row: Row, seen: Seen) -> Iterator[str]:
    rule, bounds = row.rule, row.bounds
    if seen.client != str(rule.client):
        yield "the client got something else"
    if seen.decode not in _words(rule.decode):
        yield "decode recorded another end"
    if seen.prefill not in _words(rule.prefill):
        yield "prefill recorded another end"
    if not _is_expected(seen.fence, rule.fence):
        yield "the window was not fenced on that evidence"
    if seen.client_ms is not None and seen.client_ms > bounds.client_ms:
        yield "the client was told too late"
    if seen.next_ms > bounds.next_ms:
        yield "the next request was answered too late"
    yield from seen.wrong


def _is_expected(fence: str | None, any_of: Sequence[Fence]) -> bool:
    return fence in any_of if any_of else fence is None


def _words(endings: Sequence[RecordedEnd]) -> list[str]:
    return [ending.words for ending in endings]


def got(prompt: Marked, reply: Reply, when: When) -> str:
    """Say in the table's words what a client got that had not left."""
    outcome = _outcome(prompt, reply, when)
    said = f"{reply.status} {reply.error or repr(reply.text)}, {when}"
    return said if outcome is None else str(outcome)


def _outcome(prompt: Marked, reply: Reply, when: When) -> Outcome | None:
    """Return which of the table's outcomes it is, or None."""
    if reply.refusal == "connection":
        return Disconnected(when)
    if not reply.error:
        return Answer(when) if reply.text == prompt.canary else None
    reason = reply.error.get("reason")
    if reason not in list(Reason):
        return None
    if reply.status != HTTP_OK:
        return Refused(when, Reason(reason))
    begins = bool(reply.text) and prompt.canary.startswith(reply.text)
    return CutShort(when, Reason(reason)) if begins else None


def left() -> str:
    """Say in the table's words that the client had left."""
    return str(Left())


# Evidence


def ending(journal: Journal, request: str, node: str) -> str:
    """Return how a request has ended in a node's records: all ends, though there must be one."""
    found = journal.all("request_ended", request=request, node=node)
    words = [recorded(End(entry["end"]), entry["reason"]) for entry in found]
    return ", then ".join(words) or RecordedEnd.NOTHING.words


def fence(journal: Journal, request: str) -> str | None:
    """Return on which evidence a request's window was fenced, or None."""
    found = journal.all("window_fenced", request=request)
    return ", then ".join(str(entry["fence"]) for entry in found) or None


def violations(journal: Journal, request: str) -> tuple[str, ...]:
    """Say what the nodes' records show that must never be."""
    return tuple(_violations(journal, request))


def _violations(journal: Journal, request: str) -> Iterator[str]:
    for entry in journal.all("invariant_broken"):
        yield f"{entry['node']} broke the invariant {entry['invariant']}"
    for entry in journal.all("window_fenced", request=request):
        if entry["at_boot_ns"] < _writer_let_go_ns(journal):
            yield "the window was fenced while its writer was held"
    written = journal.all("write_ended", request=request, node=P0)
    for entry in journal.all("drain_ended", fence=str(Fence.UNPROVEN)):
        pages = f"{len(entry['pages'])} pages of {entry['node']}"
        yield f"{pages} came back without evidence"
        if any(_was_given_to_others(journal, entry, write) for write in written):
            yield f"{pages} were another request's before their writer was done"


def _writer_let_go_ns(journal: Journal) -> int:
    """When the writer that was held went on; 0 if none was, or if it never did: it has crashed."""
    moves = journal.all("failpoint", node=P0, point=str(Failpoint.WRITE_PIECE))
    armed = [move["incarnation"] for move in moves if move["action"] == "arm"]
    let_go = [m for m in moves if m["action"] == "release" and m["incarnation"] in armed]
    return max((move["at_boot_ns"] for move in let_go), default=0)


def _was_given_to_others(journal: Journal, freed: Entry, write: Entry) -> bool:
    """Whether pages of an ended lease were allocated again before a write ended."""
    return any(
        freed["at_boot_ns"] < entry["at_boot_ns"] < write["at_boot_ns"]
        and set(entry["pages"]) & set(freed["pages"])
        for entry in journal.all("pages_allocated", node=freed["node"])
    )
