"""Every span that is ever sent, and every attribute on it: one table for code, docs and tests.

Attributes are figures and reasons of closed lists. No prompt, token, tenant, key or request id is
one, and lists (pages, checks) are counted, never listed.

On nodes spans follow what the core tells its host. A *cue* is the name of an evidence record, or of
an event or effect of the core; `kvairlock.node.tracing` translates them by this table.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from kvairlock.core.terms import Role

LANDED_NOT_YET = "Landed, not yet"
"""The cue of a window that turned out to be in use still."""

RECEIPT_SENT = "Receipt of success"
"""The cue of a receipt in which nothing is refused."""


class Kind(StrEnum):
    """Where a span's parent is and its children are, as OpenTelemetry has it."""

    SERVER = "server"
    """The parent is in another process."""
    CLIENT = "client"
    """There is a child in another process."""
    INTERNAL = "internal"


@dataclass(frozen=True, slots=True)
class SpanRow:
    """One span.

    Args:
        role: Which process it is of.
        kind: Where its parent and its children are.
        parent: The row that it is under.
        meaning: What it is.
        begins: Cues with which it begins; none if the host begins it itself.
        ends: Cues with which it ends; it ends with its process's first span at the latest.
        outlives: Whether it may go on after that span has ended.
        attributes: What may be on it, by name, each with the field of the cue that it is taken
            from; where that is empty, the host knows it.
        keyed: Field of its cues that tells several of it under one request apart.
    """

    role: Role
    kind: Kind
    parent: str
    meaning: str
    begins: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()
    outlives: bool = False
    attributes: dict[str, str] = field(default_factory=dict)
    keyed: str = ""


REFUSED = {
    "error.type": "",
    "kvairlock.refusal.stage": "stage",
    "kvairlock.refusal.asked": "asked",
    "kvairlock.refusal.limit": "limit",
    "kvairlock.refusal.limit_name": "limit_name",
}
"""What may be on a span that failed."""

SPANS: dict[str, SpanRow] = {
    "request": SpanRow(
        Role.GATEWAY,
        Kind.SERVER,
        "",
        "a client's request, from its head to the last byte of its answer",
        attributes={
            "http.request.method": "",
            "http.route": "",
            "http.response.status_code": "",
            "gen_ai.operation.name": "",
            "gen_ai.provider.name": "",
            "gen_ai.request.model": "",
            "gen_ai.request.max_tokens": "",
            "gen_ai.request.choice.count": "",
            "gen_ai.request.stream": "",
            "gen_ai.usage.input_tokens": "",
            "gen_ai.usage.output_tokens": "",
            "gen_ai.usage.cache_read.input_tokens": "",
            "kvairlock.end": "",
            "kvairlock.prompt_tokens": "",
            **REFUSED,
        },
    ),
    "admit": SpanRow(
        Role.GATEWAY,
        Kind.INTERNAL,
        "request",
        "key, body and parameters are read and judged",
        attributes={"error.type": ""},
    ),
    "attempt": SpanRow(
        Role.GATEWAY,
        Kind.CLIENT,
        "request",
        "one attempt on one route, until its nodes have said how it ended",
        attributes={"kvairlock.attempt": "", "kvairlock.route": "", **REFUSED},
    ),
    "decode": SpanRow(
        Role.DECODE,
        Kind.SERVER,
        "attempt",
        "the request on its decode node, until its first end",
        ends=("request_ended",),
        attributes={
            "kvairlock.end": "end",
            "kvairlock.computed_tokens": "computed_tokens",
            "kvairlock.generated_tokens": "generated_tokens",
            "kvairlock.reused_tokens": "reused_tokens",
            **REFUSED,
        },
    ),
    "decode.queue": SpanRow(
        Role.DECODE,
        Kind.INTERNAL,
        "decode",
        "waits for pages; they are reserved in the moment in which it ends",
        begins=("request_admitted", "request_recomputed"),
        ends=("pages_allocated",),
        attributes={"kvairlock.pages": "pages"},
    ),
    "decode.receipt": SpanRow(
        Role.DECODE,
        Kind.CLIENT,
        "decode",
        "a window is granted, and prefill's receipt waited for",
        begins=("window_granted",),
        ends=("Land", "verdict", "request_recomputed"),
        attributes={"kvairlock.peer": "peer", "kvairlock.pages": "pages"},
    ),
    "decode.land": SpanRow(
        Role.DECODE,
        Kind.INTERNAL,
        "decode",
        "the window's bytes are brought out of reach and digested",
        begins=("Land",),
        ends=("Landed", LANDED_NOT_YET),
        attributes={"kvairlock.pages": "pages", "kvairlock.digested": "digested"},
    ),
    "decode.verdict": SpanRow(
        Role.DECODE,
        Kind.INTERNAL,
        "decode",
        "what landed is compared with what was stated and expected",
        begins=("Landed",),
        ends=("verdict",),
        attributes={"kvairlock.verdict": "outcome", "kvairlock.checks": "checks"},
    ),
    "decode.compute": SpanRow(
        Role.DECODE,
        Kind.INTERNAL,
        "decode",
        "decode computes the prompt itself, where no evidence of its transfer came",
        begins=("StartCompute",),
        ends=("range_computed", "StopCompute"),
    ),
    "decode.read": SpanRow(
        Role.DECODE,
        Kind.INTERNAL,
        "decode",
        "the pages are read step by step, and tokens are generated",
        begins=("read_started",),
        ends=("read_ended",),
        attributes={"kvairlock.pages": "pages"},
    ),
    "decode.window": SpanRow(
        Role.DECODE,
        Kind.INTERNAL,
        "decode",
        "a window is open, until there is evidence that nobody can write into it",
        begins=("window_granted",),
        ends=("window_fenced",),
        outlives=True,
        attributes={
            "kvairlock.peer": "peer",
            "kvairlock.fence": "fence",
            "kvairlock.bytes_written": "bytes_written",
        },
        keyed="window",
    ),
    "decode.drain": SpanRow(
        Role.DECODE,
        Kind.INTERNAL,
        "decode",
        "a lease has ended, and its pages wait until nobody can reach them",
        begins=("drain_began",),
        ends=("drain_ended",),
        outlives=True,
        attributes={
            "kvairlock.pages": "pages",
            "kvairlock.drain.cause": "cause",
            "kvairlock.fence": "fence",
        },
        keyed="lease",
    ),
    "prefill": SpanRow(
        Role.PREFILL,
        Kind.SERVER,
        "decode.receipt",
        "the prompt on its prefill node, until its first end",
        ends=("request_ended",),
        attributes={
            "kvairlock.end": "end",
            "kvairlock.computed_tokens": "computed_tokens",
            "kvairlock.reused_tokens": "reused_tokens",
            **REFUSED,
        },
    ),
    "prefill.queue": SpanRow(
        Role.PREFILL,
        Kind.INTERNAL,
        "prefill",
        "waits for pages",
        begins=("request_admitted",),
        ends=("pages_allocated",),
        attributes={"kvairlock.pages": "pages"},
    ),
    "prefill.compute": SpanRow(
        Role.PREFILL,
        Kind.INTERNAL,
        "prefill",
        "the prompt is computed; in between it is the turn of others",
        begins=("StartCompute",),
        ends=("range_computed",),
    ),
    "prefill.chunk": SpanRow(
        Role.PREFILL,
        Kind.INTERNAL,
        "prefill.compute",
        "one chunk of it in the engine",
        begins=("ComputeBegan",),
        ends=("Computed", "EngineFailed"),
        attributes={"kvairlock.computed_tokens": "stop"},
    ),
    "prefill.seal": SpanRow(
        Role.PREFILL,
        Kind.INTERNAL,
        "prefill",
        "full pages are closed and digested",
        begins=("Digest",),
        ends=("Digested",),
        attributes={"kvairlock.pages": "pages"},
    ),
    "prefill.write": SpanRow(
        Role.PREFILL,
        Kind.INTERNAL,
        "prefill",
        "pages are stored into the window; a write that was begun runs to its own end",
        begins=("Write",),
        ends=("WriteEnded",),
        outlives=True,
        attributes={"kvairlock.pages": "pages", "kvairlock.bytes_written": "bytes_written"},
    ),
    "prefill.ruling": SpanRow(
        Role.PREFILL,
        Kind.INTERNAL,
        "prefill",
        "the receipt is sent, and decode's ruling waited for",
        begins=(RECEIPT_SENT,),
    ),
    "prefill.drain": SpanRow(
        Role.PREFILL,
        Kind.INTERNAL,
        "prefill",
        "a lease has ended, and its pages wait until nobody can reach them",
        begins=("drain_began",),
        ends=("drain_ended",),
        outlives=True,
        attributes={
            "kvairlock.pages": "pages",
            "kvairlock.drain.cause": "cause",
            "kvairlock.fence": "fence",
        },
        keyed="lease",
    ),
}

ATTRIBUTES: dict[str, str] = {
    "http.request.method": "method of the request",
    "http.route": "path of the endpoint, as the table of endpoints has it",
    "http.response.status_code": "status of the answer; absent if none was begun",
    "error.type": "reason of the refusal, or code of the error: lists are closed",
    "gen_ai.operation.name": "`chat` or `text_completion`",
    "gen_ai.provider.name": "`kvairlock`",
    "gen_ai.request.model": "the one model that is served",
    "gen_ai.request.max_tokens": "tokens to generate per choice, at most",
    "gen_ai.request.choice.count": "how many choices",
    "gen_ai.request.stream": "whether the answer is sent as it comes",
    "gen_ai.usage.input_tokens": "prompt tokens whose cache was confirmed",
    "gen_ai.usage.output_tokens": "tokens generated, over all choices",
    "gen_ai.usage.cache_read.input_tokens": "prompt tokens taken from kept pages",
    "kvairlock.end": "the end that won",
    "kvairlock.prompt_tokens": "prompt tokens that were asked about",
    "kvairlock.attempt": "which attempt, from 1",
    "kvairlock.route": "its route, as PREFILL/DECODE",
    "kvairlock.peer": "the node on the other end",
    "kvairlock.refusal.stage": "where it was refused",
    "kvairlock.refusal.asked": "the figure that was over",
    "kvairlock.refusal.limit": "the limit that it was over",
    "kvairlock.refusal.limit_name": "which limit",
    "kvairlock.pages": "how many pages",
    "kvairlock.digested": "how many of them were digested after they landed",
    "kvairlock.checks": "how many checks ran and passed",
    "kvairlock.verdict": "admitted, or the reason",
    "kvairlock.computed_tokens": "prompt tokens that were computed",
    "kvairlock.generated_tokens": "tokens generated, over all choices",
    "kvairlock.reused_tokens": "prompt tokens taken from kept pages",
    "kvairlock.bytes_written": "bytes stored into the window",
    "kvairlock.fence": "the evidence on which memory was taken back",
    "kvairlock.drain.cause": "why the lease ended",
}
"""Every attribute, with what it says."""
