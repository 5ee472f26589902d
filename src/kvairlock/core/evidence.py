"""The schema of what is recorded: one table, which sinks write by and audits read by.

No prompt, no token id and no output is ever a field. Tenants and requests are keyed digests. Every
record also has the envelope below; each incarnation numbers its records, beats and closes, so that
a lost one shows.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

SCHEMA_VERSION = 2
SCHEMAS_READ = (1, SCHEMA_VERSION)
"""What readers of evidence here understand. Schema 1, of 0.1.0, has fewer events and fields: what
is not there was not recorded, and counts as missing."""

RENAMED: dict[tuple[int, str], dict[str, str]] = {
    (1, "node_started"): {"pages": "pool_pages"},
}
"""What fields of events of earlier schemas are called now: one name has one type everywhere."""


class Sensitivity(StrEnum):
    """How a field must be treated."""

    OPERATIONAL = "operational"
    PSEUDONYM = "pseudonym"


class Kind(StrEnum):
    """The type of a field."""

    TEXT = "text"
    INTEGER = "integer"
    INTEGERS = "integers"
    TEXTS = "texts"


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a record: what it is, and why it may be kept.

    Args:
        kind: Its type.
        unit: Its unit, empty if it has none.
        purpose: What it is needed for.
        retention_days: How long it is kept.
        sensitivity: How it must be treated.
        stands_for: Of a pseudonym: what it is the digest of, as `Sink.pseudonym` takes it.
    """

    kind: Kind
    unit: str
    purpose: str
    retention_days: int = 90
    sensitivity: Sensitivity = Sensitivity.OPERATIONAL
    stands_for: str = ""


def _text(purpose: str) -> Field:
    return Field(Kind.TEXT, "", purpose)


def _number(unit: str, purpose: str) -> Field:
    return Field(Kind.INTEGER, unit, purpose)


def _spans(unit: str, purpose: str) -> Field:
    return Field(Kind.INTEGERS, unit, purpose)


def _pseudonym(stands_for: str, purpose: str) -> Field:
    return Field(Kind.TEXT, "", purpose, 90, Sensitivity.PSEUDONYM, stands_for)


_TENANT = _pseudonym("tenant", "who holds or asks, without saying who")
_REQUEST = _pseudonym("request", "which request, without saying which")
_WHO = {"tenant": _TENANT, "request": _REQUEST}
_PAGES = _spans("page", "which pages")
_GENERATIONS = _spans("count", "in which of their lives")

_GUARDS_OFF = Field(Kind.TEXTS, "", "time without a guard is uncovered")
_LANDING = _text("how remote writes become pages")
_RELAXED = Field(Kind.TEXTS, "", "what does not enforce or is checked in part, on which route")
_DRILL = _text("which drill")
_WAIVER = {
    "waiver": _text("which waiver"),
    "relaxes": _RELAXED,
    "conditions": _text("under which conditions it may be used"),
    "owner": _text("the team or role that answers for it"),
    "expires_unix_s": _number("s", "until when it may be in force"),
    "evidence": _text("what must be seen before it may be widened"),
}

ENVELOPE: dict[str, Field] = {
    "schema": _number("version", "how to read the record"),
    "event": _text("which row of the schema"),
    "node": _text("who recorded"),
    "role": _text("as what"),
    "incarnation": _text("in which life of the process"),
    "sequence": _number("count", "gaps show lost records"),
    "at_unix_ns": _number("ns", "order between nodes, as good as their clocks"),
    "at_boot_ns": _number("ns", "order within one machine"),
}

EVENTS: dict[str, dict[str, Field]] = {
    "node_started": {
        "guards_off": _GUARDS_OFF,
        "landing": _LANDING,
        "pool_pages": _number("page", "capacity as measured"),
        "fingerprint": _text("what the capacity depends on"),
        "relaxed": _RELAXED,
    },
    "guards_changed": {"relaxed": _RELAXED},
    "waiver_began": {**_WAIVER},
    "waiver_expired": {**_WAIVER},
    "capacity_reported": {
        "epoch": _number("count", "which of the reports of this life is true"),
        "pool_pages": _number("page", "what requests may have"),
        "landing_pages": _number("page", "what one request may land (decode)"),
        "windows": _number("count", "windows that may be mapped at one time (decode)"),
        "context_tokens": _number("token", "longest context of the model"),
        "fingerprint": _text("what the figures depend on"),
        "cause": _text("why it was reported: at the start, or resized"),
    },
    "commitment_checked": {
        "outcome": _text("whether what is promised is held by what the nodes report now"),
        "violations": Field(Kind.TEXTS, "", "what is not, with figures, route and node"),
        "promised_tokens": _number("token", "context window as configured; 0 promises none"),
        "published_tokens": _number("token", "context window as advertised from now on"),
        "published_output_tokens": _number("token", "max_tokens as advertised; 0 sets no limit"),
    },
    "node_closed": {"records": _number("count", "a lost tail shows")},
    "beat": {
        "records": _number("count", "a silent node shows"),
        "guards_off": _GUARDS_OFF,
        "landing": _LANDING,
        "relaxed": _RELAXED,
        "points": Field(Kind.TEXTS, "", "failpoints that were armed in this life"),
        "leases": _spans("count", "which leases have pages; what is lost before is over by then"),
    },
    "evidence_lost": {"records": _number("count", "what the audit could not see")},
    "request_admitted": {
        **_WHO,
        "stage": _text("where"),
        "prompt_tokens": _number("token", "what was asked"),
        "max_tokens": _number("token", "what was asked"),
    },
    "request_refused": {
        **_WHO,
        "stage": _text("where it was refused"),
        "reason": _text("why"),
        "asked": _number("", "the figure that was over"),
        "limit": _number("", "the limit that it was over"),
        "limit_name": _text("which limit"),
    },
    "request_retried": {
        **_WHO,
        "before": _pseudonym("request", "which attempt it follows"),
        "attempt": _number("count", "how many there were"),
        "reason": _text("why the one before came to nothing"),
    },
    "would_refuse": {
        **_WHO,
        "guard": _text("which guard only observes"),
        "route": _text("on which route"),
        "stage": _text("where it would have been refused"),
        "reason": _text("why"),
        "asked": _number("", "the figure that was over"),
        "limit": _number("", "the limit that it was over"),
        "limit_name": _text("which limit"),
    },
    "parameters_stripped": {**_WHO, "names": Field(Kind.TEXTS, "", "what a client tried to send")},
    "request_recomputed": {
        **_WHO,
        "reason": _text("which evidence was missing"),
        "tokens": _number("token", "what recovery costs"),
    },
    "pages_allocated": {
        **_WHO,
        "lease": _number("", "which lease"),
        "pages": _PAGES,
        "generations": _GENERATIONS,
    },
    "window_granted": {
        **_WHO,
        "window": _text("which window"),
        "peer": _text("who may write"),
        "pages": _PAGES,
    },
    "window_fenced": {
        **_WHO,
        "window": _text("which window"),
        "fence": _text("the evidence that nobody can write any more"),
        "bytes_written": _number("byte", "what the writer stored, by its own statement"),
        "wait_ms": _number("ms", "how long memory waited after the request's end"),
    },
    "prefix_kept": {
        **_WHO,
        "lease": _number("", "which lease has the pages from now on"),
        "pages": _PAGES,
        "generations": _GENERATIONS,
    },
    "prefix_reused": {
        **_WHO,
        "tokens": _number("token", "what was not computed again"),
        "pages": _PAGES,
        "generations": _GENERATIONS,
        "creator": _pseudonym("tenant", "who computed it"),
        "scope": _pseudonym("scope", "for whom the request's tenant shares"),
        "creator_scope": _pseudonym("scope", "for whom it was computed: must be the same"),
    },
    "range_computed": {
        **_WHO,
        "start": _number("token", "what was really computed"),
        "stop": _number("token", "what was really computed"),
        "pages": _PAGES,
        "generations": _GENERATIONS,
    },
    "write_ended": {
        **_WHO,
        "window": _text("where the bytes went"),
        "pages": _PAGES,
        "bytes_written": _number("byte", "what was stored"),
        "status": _text("how the write ended"),
    },
    "write_repeated": {
        "window": _text("where a repeated copy of an ended write went"),
        "bytes_written": _number("byte", "what was stored"),
    },
    "pages_offered": {
        **_WHO,
        "peer": _text("who may claim"),
        "pages": _PAGES,
        "generations": _GENERATIONS,
    },
    "pages_claimed": {
        **_WHO,
        "peer": _text("who may read"),
        "claim": _text("under which claim"),
        "reader": _text("whether it asks afterwards"),
        "pages": _PAGES,
        "generations": _GENERATIONS,
    },
    "remote_read_started": {
        **_WHO,
        "peer": _text("whose pages are read"),
        "peer_incarnation": _text("in which life"),
        "claim": _text("under which claim"),
        "source_pages": _spans("page", "which of its pages"),
        "source_generations": _spans("count", "in which of their lives"),
        "pages": _PAGES,
    },
    "remote_read_ended": {
        **_WHO,
        "claim": _text("under which claim"),
        "pages": _PAGES,
        "status": _text("how the read ended"),
    },
    "pages_validated": {
        **_WHO,
        "peer": _text("who asked, or who was asked"),
        "claim": _text("about which claim"),
        "outcome": _text("stood, or why that cannot be said"),
        "pages": _PAGES,
        "generations": _GENERATIONS,
    },
    "pages_returned": {**_WHO, "claim": _text("which claim ended"), "pages": _PAGES},
    "pages_revoked": {
        **_WHO,
        "claim": _text("which claim ended, if there was one"),
        "reader": _text("whether it asks afterwards"),
        "reason": _text("why"),
        "pages": _PAGES,
        "generations": _GENERATIONS,
    },
    "receipt_sent": {
        **_WHO,
        "outcome": _text("what was stated"),
        "start": _number("token", "what was stated"),
        "stop": _number("token", "what was stated"),
    },
    "verdict": {
        **_WHO,
        "outcome": _text("admitted or the reason"),
        "checks": Field(Kind.TEXTS, "", "which checks ran and passed, over all of the pages"),
        "observed": Field(
            Kind.TEXTS, "", "which checks failed and only observe: evidence is missing"
        ),
        "policy": _text("which landed pages were digested; empty if none landed"),
        "verified": _spans("page", "over which of the pages `integrity` ran; no other is verified"),
        "start": _number("token", "confirmed range"),
        "stop": _number("token", "confirmed range"),
        "expected_tokens": _number("token", "what decode expected by its own figures"),
        "pages": _PAGES,
        "generations": _GENERATIONS,
    },
    "read_started": {**_WHO, "pages": _PAGES, "generations": _GENERATIONS},
    "read_ended": {**_WHO, "pages": _PAGES, "generations": _GENERATIONS},
    "mapping_refused": {**_WHO, "pages": _PAGES},
    "request_ended": {
        **_WHO,
        "end": _text("the end that won"),
        "reason": _text("why"),
        "computed_tokens": _number("token", "what was confirmed"),
        "generated_tokens": _number("token", "what was generated"),
        "reused_tokens": _number("token", "what was shared with an earlier prompt of its scope"),
    },
    "response_sent": {
        **_WHO,
        "http_status": _number("", "what its client got; 0 if it had left before"),
        "finish": Field(Kind.TEXTS, "", "finish_reason of each choice; none if it is no answer"),
        "prompt_tokens": _number("token", "usage as stated to the client; 0 if none was"),
        "generated_tokens": _number("token", "usage as stated to the client; 0 if none was"),
    },
    "end_came_later": {**_WHO, "end": _text("an end that changed nothing")},
    "drain_began": {
        **_WHO,
        "lease": _number("", "which lease"),
        "pages": _PAGES,
        "cause": _text("why the lease ended: how its request did, or that a prefix made room"),
    },
    "drain_ended": {
        **_WHO,
        "lease": _number("", "which lease"),
        "pages": _PAGES,
        "fence": _text("the evidence"),
        "wait_ms": _number("ms", "what safety cost"),
    },
    "message_ignored": {
        **_WHO,
        "message": _text("a message for which nothing is open"),
        "reason": _text("why it changed nothing"),
    },
    "frame_refused": {"peer": _text("on which channel"), "reason": _text("why")},
    "channel_opened": {
        "peer": _text("with whom"),
        "peer_incarnation": _text("in which life"),
        "messages": _number("version", "what an earlier version has no field for was never said"),
    },
    "peer_up": {"peer": _text("who"), "peer_incarnation": _text("in which life")},
    "peer_lost": {"peer": _text("who"), "peer_incarnation": _text("in which life")},
    "breaker_opened": {
        "route": _text("which route takes no requests any more"),
        "was": _text("its state before; open if it comes back open after a restart"),
        "condition": _text("which condition was met, of those written down before"),
        "count": _number("count", "how many failures counted"),
        "limit": _number("count", "how many open it"),
        "reason": _text("reason of the last of them, if requests failed"),
        "stage": _text("where that was decided"),
        "detail": _text("what else there is to say"),
    },
    "breaker_half_open": {
        "route": _text("which route is on trial"),
        "was": _text("its state before"),
    },
    "breaker_closed": {
        "route": _text("which route takes requests again"),
        "was": _text("its state before"),
    },
    "recovery_recorded": {
        "route": _text("of which route"),
        "record": _text("which of the three records"),
        "facts": Field(Kind.TEXTS, "", "what was seen, with the figures"),
        "incarnations": Field(Kind.TEXTS, "", "of which life of prefill and decode it speaks"),
        "epochs": _spans("count", "of which of their reports"),
        "fingerprints": Field(Kind.TEXTS, "", "of which configuration of theirs"),
    },
    "boundary_replayed": {
        **_WHO,
        "route": _text("which route was asked for more than it holds"),
        "limit_of": _text("which node's limit was tried"),
        "way": _text("by a request, or by asking the node how it would judge one"),
        "prompt_tokens": _number("token", "what was asked"),
        "max_tokens": _number("token", "what was asked"),
        "answer": _text("what came of it"),
        "reason": _text("why it was refused"),
        "stage": _text("where it was refused"),
        "asked": _number("", "the figure that was over, by the node's own statement"),
        "limit": _number("", "the limit that it was over"),
        "limit_name": _text("which limit"),
    },
    "tenant_fault": {
        **_WHO,
        "fault": _text("what its client did wrong; it counts against no route"),
        "faults": _number("count", "how many there were within a minute"),
        "limit": _number("count", "how many there may be; 0 if no limit is set"),
    },
    "drill_marked": {"drill": _DRILL, "phase": _text("whether it began or ended")},
    "drill_requested": {**_WHO, "drill": _DRILL},
    "invariant_broken": {"invariant": _text("which"), "detail": _text("where")},
    "failpoint": {"point": _text("which"), "action": _text("armed, reached or released")},
}
