"""Errors by whose fault they are, and refusals by reason.

    KvairlockError
     +- Misuse             our caller's: the call makes no sense in this state
     +- PeerMisbehaved     an authenticated peer broke the protocol: refuse, quarantine
     +- PeerIncompatible   honest but different: refuse early
     +- InvariantBroken    ours: end the request, quarantine its pages, close the route

A `Refusal` is data, not an exception: it crosses processes, ends requests and reaches clients. One
table says what each reason means to them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Fault(StrEnum):
    """Whose fault a refusal is."""

    CLIENT = "client"
    PEER = "peer"
    LOAD = "load"
    OURS = "ours"


class Reason(StrEnum):
    """Why something was refused. Closed: an unknown value is refused, never guessed."""

    IDENTITY = "identity"
    TENANT = "tenant"
    INPUT = "input"
    COMPUTED_INPUT = "computed_input"
    MODEL_LAYOUT = "model_layout"
    VERSION = "version"
    PAGE_INDEX = "page_index"
    RANGE = "range"
    GENERATION = "generation"
    INTEGRITY = "integrity"
    PEER_REJECTED = "peer_rejected"
    PEER_LOST = "peer_lost"
    MISSING_EVIDENCE = "missing_evidence"
    EXPIRED = "expired"
    REPLAYED = "replayed"
    FORGED = "forged"
    MALFORMED = "malformed"
    CONTEXT_LENGTH = "context_length"
    CAPACITY = "capacity"
    DRAINING = "draining"
    TENANT_SHARE = "tenant_share"
    ROUTE_CLOSED = "route_closed"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    ENGINE = "engine"
    INVARIANT = "invariant"


@dataclass(frozen=True, slots=True)
class ReasonRow:
    """What a reason means outside the core."""

    fault: Fault
    http_status: int
    code: str
    retry_after_s: int | None = None


REASONS: dict[Reason, ReasonRow] = {
    Reason.IDENTITY: ReasonRow(Fault.PEER, 502, "handoff_identity_mismatch"),
    Reason.TENANT: ReasonRow(Fault.CLIENT, 403, "ticket_of_another_tenant"),
    Reason.INPUT: ReasonRow(Fault.CLIENT, 403, "ticket_for_another_input"),
    Reason.COMPUTED_INPUT: ReasonRow(Fault.PEER, 502, "handoff_input_mismatch"),
    Reason.MODEL_LAYOUT: ReasonRow(Fault.PEER, 502, "model_layout_mismatch"),
    Reason.VERSION: ReasonRow(Fault.PEER, 502, "version_mismatch"),
    Reason.PAGE_INDEX: ReasonRow(Fault.PEER, 502, "handoff_page_index_mismatch"),
    Reason.RANGE: ReasonRow(Fault.PEER, 502, "handoff_range_mismatch"),
    Reason.GENERATION: ReasonRow(Fault.PEER, 502, "handoff_generation_mismatch"),
    Reason.INTEGRITY: ReasonRow(Fault.PEER, 502, "handoff_integrity_mismatch"),
    Reason.PEER_REJECTED: ReasonRow(Fault.PEER, 502, "prefill_rejected"),
    Reason.PEER_LOST: ReasonRow(Fault.PEER, 503, "node_lost", retry_after_s=1),
    Reason.MISSING_EVIDENCE: ReasonRow(Fault.PEER, 502, "missing_evidence"),
    Reason.EXPIRED: ReasonRow(Fault.CLIENT, 403, "ticket_expired"),
    Reason.REPLAYED: ReasonRow(Fault.CLIENT, 409, "ticket_already_used"),
    Reason.FORGED: ReasonRow(Fault.CLIENT, 403, "ticket_forged"),
    Reason.MALFORMED: ReasonRow(Fault.CLIENT, 400, "malformed"),
    Reason.CONTEXT_LENGTH: ReasonRow(Fault.CLIENT, 400, "context_length_exceeded"),
    Reason.CAPACITY: ReasonRow(Fault.LOAD, 503, "route_full", retry_after_s=1),
    Reason.DRAINING: ReasonRow(Fault.LOAD, 503, "draining", retry_after_s=2),
    Reason.TENANT_SHARE: ReasonRow(Fault.LOAD, 429, "tenant_share_exceeded", retry_after_s=2),
    Reason.ROUTE_CLOSED: ReasonRow(Fault.LOAD, 503, "route_closed", retry_after_s=5),
    Reason.TIMEOUT: ReasonRow(Fault.LOAD, 504, "timed_out", retry_after_s=2),
    Reason.CANCELLED: ReasonRow(Fault.CLIENT, 499, "client_left"),
    Reason.ENGINE: ReasonRow(Fault.OURS, 500, "engine_failed"),
    Reason.INVARIANT: ReasonRow(Fault.OURS, 500, "isolation_invariant_broken"),
}


class Stage(StrEnum):
    """Where in the life of a request something was refused."""

    GATEWAY = "gateway"
    DECODE_ADMISSION = "decode_admission"
    PREFILL_ADMISSION = "prefill_admission"
    PREFILL = "prefill"
    TRANSFER = "transfer"
    VERDICT = "verdict"
    DECODE = "decode"


@dataclass(frozen=True, slots=True)
class Refusal:
    """One refusal with its figures.

    Args:
        reason: The closed reason.
        stage: Where it was decided.
        message: For people; never holds prompts, keys or other tenants' names.
        asked: What was asked for, in the unit that `limit_name` says, or None.
        limit: What the limit is, or None.
        limit_name: Which limit it is, for example `prefill_pool_tokens`, or None.
    """

    reason: Reason
    stage: Stage
    message: str
    asked: int | None = None
    limit: int | None = None
    limit_name: str | None = None

    @property
    def row(self) -> ReasonRow:
        """The reason's meaning outside the core."""
        return REASONS[self.reason]


class KvairlockError(Exception):
    """The root of all errors that this project raises on purpose."""

    http_status = 500
    code = "internal_error"


class Misuse(KvairlockError):
    """Our own caller asked for something that this state does not allow."""

    code = "misuse"


class PeerMisbehaved(KvairlockError):
    """An authenticated peer broke the protocol."""

    http_status = 502
    code = "peer_misbehaved"

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class PeerIncompatible(KvairlockError):
    """An honest peer that speaks another version or holds another layout."""

    http_status = 502
    code = "peer_incompatible"


class InvariantBroken(KvairlockError):
    """An invariant of the core does not hold; the message names it and the pages."""

    code = "isolation_invariant_broken"

    def __init__(self, invariant: str, message: str) -> None:
        super().__init__(f"{invariant}: {message}")
        self.invariant = invariant
