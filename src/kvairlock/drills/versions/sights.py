"""What a stack of different releases is looked at for: each sight is what must be, and what was."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from itertools import permutations

from kvairlock.core.evidence import SCHEMA_VERSION
from kvairlock.core.terms import Fence
from kvairlock.drills.canaries import Marked
from kvairlock.drills.client import Call, Reply
from kvairlock.drills.records import Entry
from kvairlock.drills.stack import wait_for
from kvairlock.drills.versions.release import FIRST
from kvairlock.drills.versions.stack import CONTEXT_TOKENS, PAGE_TOKENS, PREFILL_PAGES, Mixed
from kvairlock.drills.versions.table import DECODE, PREFILL, Build, Incompatible
from kvairlock.runtime.failpoints import Failpoint
from kvairlock.sink.reading import read_lives
from kvairlock.wire.versions import Versions, common

TENANTS = ("acme", "bravo")
SHORT_TOKENS, FITTING_TOKENS = 200, 400
ANSWER_TOKENS = 17
"""A canary and its end."""
OVERLONG_TOKENS = CONTEXT_TOKENS
"""With an answer it is over what is published, and still under what prefill holds."""
OVERFULL_TOKENS = PREFILL_PAGES * PAGE_TOKENS + 1
PIECES_BEFORE_PAUSE = 2
SCHEMAS = {FIRST: 1}
"""The evidence schema of a release; of those that are not named, today's."""


@dataclass(frozen=True, slots=True)
class Sight:
    """One thing that was looked at.

    Args:
        expected: What must be seen.
        saw: What was.
        ok: Whether that is the same.
    """

    expected: str
    saw: str
    ok: bool


def told(stack: Mixed, asked: Marked, reply: Reply) -> str:
    """Say what a client got: whose canary, or which refusal."""
    foreign = stack.canaries.foreign(asked, reply.text)
    if foreign:
        return f"a canary of {foreign[0].tenant}"
    if reply.refusal is not None:
        return f"{reply.status} {reply.refusal}"
    return "the own canary" if reply.text == asked.canary else f"the text {reply.text[:20]!r}"


def answers(stack: Mixed, route: str | None = None) -> Sight:
    """Two tenants ask at once; each must be answered with its own canary."""
    asked = [stack.canaries.prompt(tenant, SHORT_TOKENS) for tenant in TENANTS]
    calls = [stack.client.ask(prompt, route) for prompt in asked]
    got = [told(stack, prompt, call.result()) for prompt, call in zip(asked, calls, strict=True)]
    expected = "two tenants at once get the own canary each"
    return Sight(expected, ", ".join(got), got == ["the own canary"] * len(asked))


def refuses_at_the_entry(stack: Mixed) -> Sight:
    """A prompt that is over the published window must be refused by the gateway, with figures."""
    limit = ("context_window", CONTEXT_TOKENS, OVERLONG_TOKENS + ANSWER_TOKENS)
    return _refuses(stack, OVERLONG_TOKENS, "gateway", *limit)


def refuses_at_prefill(stack: Mixed) -> Sight:
    """A prompt that the gateway let through must be refused by the node that cannot hold it."""
    limit = ("prefill_pool_tokens", OVERFULL_TOKENS - 1, OVERFULL_TOKENS)
    return _refuses(stack, OVERFULL_TOKENS, "prefill_admission", *limit)


def _refuses(
    stack: Mixed, tokens: int, stage: str, limit_name: str, limit: int, asked: int
) -> Sight:
    reply = stack.client.answer(stack.canaries.prompt(TENANTS[0], tokens))
    figures = {"stage": stage, "limit_name": limit_name, "limit": limit, "asked": asked}
    seen = {name: reply.error.get(name) for name in figures}
    got = _figures(f"{reply.status} {reply.refusal}", seen)
    expected = _figures("400 context_length_exceeded", figures)
    return Sight(f"{tokens} tokens are refused: {expected}", got, got == expected)


def _figures(what: str, figures: Mapping[str, object]) -> str:
    return ", ".join((what, *(f"{name} {value}" for name, value in figures.items())))


def drains(stack: Mixed) -> Sight:
    """A client leaves in mid-transfer: memory must wait for the writer, and then come back."""
    client, records, tenant = stack.client, stack.records, TENANTS[1]
    client.point(PREFILL, "arm", Failpoint.WRITE_PIECE, after=PIECES_BEFORE_PAUSE)
    call = client.ask(stack.canaries.prompt(tenant, FITTING_TOKENS))
    client.held(PREFILL, Failpoint.WRITE_PIECE)
    call.leave()
    who = {"tenant": records.tenant(tenant), "node": DECODE}
    ended = records.last("request_ended", end="cancelled", **who)
    wait_for("the window to drain", lambda: _draining(stack) or None)
    early = records.all("window_fenced", request=ended["request"])
    client.point(PREFILL, "release", Failpoint.WRITE_PIECE)
    fenced = records.last("window_fenced", request=ended["request"])
    client.idle()
    got = f"{len(early)} windows fenced before the writer had ended, then: {fenced['fence']}"
    expected = f"0 windows fenced before the writer had ended, then: {Fence.ACKNOWLEDGED}"
    return Sight(f"a client leaves in mid-transfer: {expected}", got, got == expected)


def _draining(stack: Mixed) -> int:
    draining: int = stack.client.node(DECODE)["status"]["windows_draining"]
    return draining


def ends_typed(stack: Mixed, asked: Marked, call: Call) -> Sight:
    """What was in flight at a node that gave way must end with a typed refusal, or be answered."""
    got = told(stack, asked, call.result())
    typed = call.reply.refusal is not None or got == "the own canary"
    return Sight("in flight: a typed refusal, or the own canary of a second attempt", got, typed)


def speaks(stack: Mixed) -> Sight:
    """Every process that records it must have agreed with each other one on the highest version."""
    expected = [
        f"{one} with {other}: messages {common(_spoken(stack, one), _spoken(stack, other))}"
        for one, other in permutations(sorted(stack.seats), 2)
        if stack.seats[one].build is Build.NEW
    ]
    opened = stack.records.all("channel_opened")
    got = sorted({f"{r['node']} with {r['peer']}: messages {r['messages']}" for r in opened})
    return Sight(_listed(expected), _listed(got), got == expected)


def _spoken(stack: Mixed, name: str) -> Versions:
    return stack.seats[name].build.speaks


def _listed(channels: Sequence[str]) -> str:
    return ", ".join(channels) or "no process records versions"


def is_refused(stack: Mixed, row: Incompatible) -> Sight:
    """A route without a version in common must be refused at the entry, with what either speaks."""
    stack.records.last("frame_refused", node=row.refuser)
    reply = stack.client.answer(stack.canaries.prompt(TENANTS[0], SHORT_TOKENS), row.closed)
    unsaid = [words for words in row.says if words not in str(reply.error.get("message"))]
    naming = f", naming {' and '.join(row.says)}" if row.says else ""
    expected = f"{row.closed} is refused: 503 route_closed{naming}; recorded by {row.refuser}"
    got = f"{reply.status} {reply.refusal}: {reply.error.get('message')}"
    closed = (reply.status, reply.refusal) == (HTTPStatus.SERVICE_UNAVAILABLE, "route_closed")
    return Sight(expected, got, closed and not unsaid)


def leaves_evidence(stack: Mixed) -> Sight:
    """After the stop every process must have left evidence of its release's schema, and whole."""
    schemas = {name: SCHEMAS.get(of.version, SCHEMA_VERSION) for name, of in stack.lives.items()}
    lives: list[list[Entry]] = read_lives(stack.evidence)
    found = {f"{life[0]['node']}-{life[0]['incarnation']}": life for life in lives}
    whole = [
        f"schema {schema}"
        for name, schema in schemas.items()
        if _is_whole(found.get(name, []), schema)
    ]
    expected = _counted(f"schema {schema}" for schema in schemas.values())
    got = _counted(whole)
    return Sight(f"evidence that is numbered and closed: {expected}", got, got == expected)


def _counted(words: Iterable[str]) -> str:
    return ", ".join(f"{count} of {word}" for word, count in sorted(Counter(words).items()))


def _is_whole(records: Sequence[Entry], schema: int) -> bool:
    numbers = [record["sequence"] for record in records]
    numbered = numbers == list(range(1, len(records) + 1))
    known = {record["schema"] for record in records} == {schema}
    return numbered and known and records[-1]["event"] == "node_closed"
