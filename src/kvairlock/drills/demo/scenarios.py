"""The scenarios of the demo: hypothetical reconstructions of how one tenant reads another's cache.

Each runs against a stack that already serves, and says what came out. Whether that is what should
come out is the demo's table, not the scenario's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kvairlock.drills.canaries import Canaries, Marked
from kvairlock.drills.client import Client, Reply
from kvairlock.drills.records import Records
from kvairlock.drills.stack import wait_for

SMALL, LARGE, DECODE = "prefill-0", "prefill-1", "decode-0"
ROUTE_SMALL, ROUTE_LARGE = f"{SMALL}/{DECODE}", f"{LARGE}/{DECODE}"
OVERLONG_TOKENS = 900
FITTING_TOKENS = 400
SHORT_TOKENS = 120
PIECES_BEFORE_PAUSE = 5
WRITE_PIECE, WRITE_REPEAT = "write.piece", "write.repeat"
LAND, DECODE_STEP = "land", "decode.step"


@dataclass(frozen=True, slots=True)
class Bench:
    """What a scenario works with.

    Args:
        client: The way into the stack.
        canaries: Makes the prompts.
        records: The stack's evidence.
    """

    client: Client
    canaries: Canaries
    records: Records


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came out for the tenant who must not see another's text.

    Args:
        name: The scenario, or the part of it.
        leaked: Whether another tenant's canary was in the answer.
        own: Whether the answer is the tenant's own canary.
        refusal: Code of the typed refusal, or None.
        http_status: What the client got.
        computed: Token range that prefill computed for the request.
        written: Who wrote which bytes for it, or into it.
        answer: The answer in words.
        verdict: What the nodes recorded about it.
        message: The refusal's message, if there was one.
    """

    name: str
    leaked: bool
    own: bool
    refusal: str | None
    http_status: int
    computed: str
    written: str
    answer: str
    verdict: str
    message: str = ""


def _outcome(bench: Bench, name: str, asked: Marked, reply: Reply, **said: str) -> Outcome:
    records = bench.records
    request = records.request(reply.headers.get("x-request-id", ""))
    foreign = bench.canaries.foreign(asked, reply.text)
    own = asked.canary in reply.text
    verdict = said.get("verdict") or _verdict(records, request)
    # Text without a verdict of one's own came from pages of another request, whatever it says.
    unvouched = bool(reply.text) and not verdict.startswith("admitted")
    return Outcome(
        name=name,
        leaked=bool(foreign) or unvouched,
        own=own and not unvouched,
        refusal=reply.refusal,
        http_status=reply.status,
        computed=said.get("computed") or records.computed(request),
        written=said.get("written") or records.written(request),
        answer=_words(asked, reply, foreign, own, unvouched),
        verdict=verdict,
        message=str(reply.error.get("message", "")),
    )


def _words(
    asked: Marked, reply: Reply, foreign: tuple[Marked, ...], own: bool, unvouched: bool
) -> str:
    if foreign:
        whose = ", ".join(m.tenant for m in foreign)
        return f"{asked.tenant} reads a canary of {whose}: {foreign[0].canary}"
    if unvouched:
        return f"{asked.tenant} reads another request's pages: {reply.text}"
    if own:
        return f"{asked.tenant}'s own canary"
    return "none" if not reply.text else f"neither canary: {reply.text[:20]!r}"


def _verdict(records: Records, request: str) -> str:
    found = records.all("verdict", request=request)
    if found:
        stripped = records.all("parameters_stripped", request=request)
        return f"{found[-1]['outcome']}{'; ticket stripped' if stripped else ''}"
    refused = records.all("request_refused", request=request)
    return f"{refused[0]['reason']} at {refused[0]['stage']}" if refused else "none"


def together(bench: Bench) -> list[Outcome]:
    """Several tenants talk at once, each with its own canary."""
    tenants = ("acme", "bravo", "coral") * 4
    asked = [bench.canaries.prompt(tenant, SHORT_TOKENS) for tenant in tenants]
    calls = [bench.client.ask(prompt) for prompt in asked]
    replies = [call.result() for call in calls]
    outcomes = [
        _outcome(bench, "tenants at once", prompt, reply)
        for prompt, reply in zip(asked, replies, strict=True)
    ]
    bench.client.idle()
    # One row for all: the first that is not its own canary, if there is one.
    worst = min(outcomes, key=lambda outcome: (outcome.own, not outcome.leaked))
    if worst.own and not worst.leaked:
        return [_all_own(worst, len(outcomes))]
    return [worst]


def _all_own(one: Outcome, count: int) -> Outcome:
    return Outcome(
        name=one.name,
        leaked=False,
        own=True,
        refusal=None,
        http_status=one.http_status,
        computed=one.computed,
        written=one.written,
        answer=f"{count} of {count} answers are the own canary",
        verdict=one.verdict,
    )


def incident(bench: Bench) -> list[Outcome]:
    """An over-long prompt for a prefill pool that is smaller than what is advertised."""
    client, canaries = bench.client, bench.canaries
    client.answer(canaries.prompt("acme", OVERLONG_TOKENS), ROUTE_LARGE)
    client.idle()
    asked = canaries.prompt("bravo", OVERLONG_TOKENS)
    reply = client.answer(asked, ROUTE_SMALL)
    client.idle()
    return [_outcome(bench, "the incident", asked, reply)]


def late_write(bench: Bench) -> list[Outcome]:
    """A prefill process stops in mid-write, its client leaves, another tenant gets the memory."""
    client, canaries, records = bench.client, bench.canaries, bench.records
    client.point(SMALL, "arm", WRITE_PIECE, after=PIECES_BEFORE_PAUSE)
    leaver = client.ask(canaries.prompt("acme", FITTING_TOKENS), ROUTE_SMALL)
    client.held(SMALL, WRITE_PIECE)
    client.stack.pause(SMALL)
    try:
        leaver.leave()
        acme = records.tenant("acme")
        left = records.last("request_ended", tenant=acme, node=DECODE, end="cancelled")
        client.point(DECODE, "arm", DECODE_STEP)
        asked = canaries.prompt("bravo", FITTING_TOKENS)
        call = client.ask(asked, ROUTE_LARGE)
        client.held(DECODE, DECODE_STEP)
    finally:
        client.stack.resume(SMALL)
    client.point(SMALL, "release", WRITE_PIECE)
    ended = records.last("write_ended", request=left["request"])
    client.point(DECODE, "release", DECODE_STEP)
    reply = call.result()
    client.idle()
    late = len(ended["pages"]) - PIECES_BEFORE_PAUSE
    said = _where_it_landed(records, left["request"], asked, reply, late)
    return [_outcome(bench, "a late write", asked, reply, **said)]


def _where_it_landed(
    records: Records, writer: str, asked: Marked, reply: Reply, pages: int
) -> dict[str, str]:
    """Say into whose pages a write went that came after its request's end, and what fenced it."""
    granted = records.last("window_granted", request=writer)
    reader = records.request(reply.headers.get("x-request-id", ""))
    reads = records.last("read_started", request=reader)
    fenced = wait_for(
        "the window's fence", lambda: records.all("window_fenced", request=writer) or None
    )[-1]
    shared = set(granted["pages"]) & set(reads["pages"])
    fence = f"window fenced: {fenced['fence']}, {fenced['wait_ms']} ms after the end"
    if _lands_in_pool(records) and shared:
        where = f"{granted['peer']}: {pages} late pages into {asked.tenant}'s"
        return {"written": where, "verdict": f"admitted; {fence}"}
    where = f"{granted['peer']}: {pages} late pages into a file that nobody reads"
    return {"written": where, "verdict": f"admitted; {fence}"}


def _lands_in_pool(records: Records) -> bool:
    landing: str = records.last("node_started", node=DECODE)["landing"]
    return landing == "direct"


def after_success(bench: Bench) -> list[Outcome]:
    """A repeated copy of an admitted transfer runs after its source pages have a new owner."""
    client, canaries, records = bench.client, bench.canaries, bench.records
    client.point(SMALL, "arm", WRITE_REPEAT)
    client.point(DECODE, "arm", DECODE_STEP)
    asked = canaries.prompt("bravo", FITTING_TOKENS)
    call = client.ask(asked, ROUTE_SMALL)
    victim = records.transfer(client.held(DECODE, DECODE_STEP))
    granted = records.last("window_granted", request=victim)
    # The next prompt gets the same source pages, and keeps them until its own landing is over.
    client.point(DECODE, "arm", LAND)
    other = client.ask(canaries.prompt("coral", FITTING_TOKENS), ROUTE_SMALL)
    client.held(DECODE, LAND)
    client.point(SMALL, "release", WRITE_REPEAT)
    records.last("write_repeated", window=granted["window"])
    client.point(DECODE, "release", LAND)
    client.point(DECODE, "release", DECODE_STEP)
    reply = call.result()
    other.result()
    client.idle()
    where = f"into {asked.tenant}'s" if _lands_in_pool(records) else "into a file that nobody reads"
    said = {"written": f"{SMALL}: {len(granted['pages'])} pages again, {where}"}
    return [_outcome(bench, "a write after success", asked, reply, **said)]


@dataclass(frozen=True, slots=True)
class Theft:
    """One way to present a ticket that was issued for another request.

    Args:
        name: What it is called.
        tenant: Who presents it.
        own_prompt: Whether it comes with a prompt of the presenter's own.
    """

    name: str
    tenant: str
    own_prompt: bool


THEFTS = (
    Theft("a ticket used twice", "acme", False),
    Theft("a ticket for another input", "acme", True),
    Theft("a stolen ticket", "bravo", True),
)


def tickets(bench: Bench) -> list[Outcome]:
    """A ticket that is in use is presented again: as it is, for another input, by another."""
    client, canaries = bench.client, bench.canaries
    client.point(DECODE, "arm", DECODE_STEP, after=1)
    owner = canaries.prompt("acme", FITTING_TOKENS)
    first = client.ask(owner, ROUTE_LARGE, show_ticket=True)
    client.held(DECODE, DECODE_STEP)
    ticket = wait_for("the ticket", lambda: first.reply.headers.get("x-kvairlock-ticket"))
    presented = []
    for theft in THEFTS:
        prompt = canaries.prompt(theft.tenant, FITTING_TOKENS)
        asked = prompt if theft.own_prompt else owner
        presented.append((theft, asked, client.ask(asked, ROUTE_LARGE, ticket=ticket)))
    wait_for("the copies to be judged", lambda: _judged(bench, len(presented)))
    client.point(DECODE, "release", DECODE_STEP)
    outcomes = [
        _outcome(bench, theft.name, asked, call.result()) for theft, asked, call in presented
    ]
    first.result()
    client.idle()
    return outcomes


def _judged(bench: Bench, copies: int) -> bool | None:
    """Whether decode has seen all copies: open beside the first, refused, or waiting for pages."""
    node = bench.client.node(DECODE)["status"]
    refused = sum(n for name, n in node["counters"].items() if name.startswith("refused."))
    return True if sum(node["requests"].values()) - 1 + refused >= copies else None


SCENARIOS: dict[str, Callable[[Bench], list[Outcome]]] = {
    "together": together,
    "incident": incident,
    "late-write": late_write,
    "after-success": after_success,
    "tickets": tickets,
}
"""All scenarios by the name that the command line takes."""
