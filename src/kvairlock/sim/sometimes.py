"""Rare states that a run must have been in: one that is never reached was never tested.

Sites note them as turns show them: some from the evidence that a turn emits, some from who still
holds pages after it, some from what arrives too late. A run reports those that it missed.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from kvairlock.core.effects import Record
from kvairlock.core.memory.pool import Hold, Pool


class Rare(StrEnum):
    """Rare states."""

    LATE_WRITE_DRAINING = "late_write_draining"
    LATE_WRITE_QUARANTINED = "late_write_quarantined"
    LATE_WRITE_AFTER_SUCCESS = "late_write_after_success"
    RECEIPT_AFTER_CANCEL = "receipt_after_cancel"
    VERDICT_AFTER_CANCEL = "verdict_after_cancel"
    OLD_INCARNATION = "old_incarnation"
    END_AFTER_END = "end_after_end"
    GRANT_REPEATED = "grant_repeated"
    STEP_AFTER_END = "step_after_end"
    LANDING_AFTER_END = "landing_after_end"
    FILL_AFTER_END = "fill_after_end"
    CHUNK_AFTER_END = "chunk_after_end"
    WRITE_AFTER_END = "write_after_end"
    WRITER_KEEPS_WINDOW = "writer_keeps_window"
    FENCED_BY_SEAL = "fenced_by_seal"
    FENCED_BY_PROCESS_END = "fenced_by_process_end"
    DRAIN_UNDER_FULL_POOL = "drain_under_full_pool"
    RESUMED_LATE = "resumed_late"
    RECOVERY = "recovery"
    FAIRNESS = "fairness"
    PUSHED_OUT = "pushed_out"
    PREFIX_REUSED = "prefix_reused"
    PEER_LOST_IN_TRANSFER = "peer_lost_in_transfer"
    CLAIM_AFTER_EXPIRY = "claim_after_expiry"
    CLAIM_REPEATED = "claim_repeated"
    READ_AFTER_END = "read_after_end"
    LOAN_REVOKED_IN_READ = "loan_revoked_in_read"
    LOAN_AFTER_END = "loan_after_end"


SOMETIMES: dict[Rare, str] = {
    Rare.LATE_WRITE_DRAINING: "a write landed in memory whose request had ended",
    Rare.LATE_WRITE_QUARANTINED: "a write landed in pages of the pool that were in quarantine",
    Rare.LATE_WRITE_AFTER_SUCCESS: "a copy of a write landed after its transfer was admitted",
    Rare.RECEIPT_AFTER_CANCEL: "a receipt came for a request whose client had left",
    Rare.VERDICT_AFTER_CANCEL: "decode's answer came to a prompt that prefill was done with",
    Rare.OLD_INCARNATION: "a receipt of an ended life, or to one, came late and was refused",
    Rare.END_AFTER_END: "a request was ended once more; the first end stood",
    Rare.GRANT_REPEATED: "a grant came twice; its prompt was computed once",
    Rare.STEP_AFTER_END: "a decode step still ran on pages whose request had ended",
    Rare.LANDING_AFTER_END: "a window was still being landed when its request had ended",
    Rare.FILL_AFTER_END: "a recomputed prompt was still being filled in when its request had ended",
    Rare.CHUNK_AFTER_END: "prefill still computed into pages whose request had ended",
    Rare.WRITE_AFTER_END: "prefill still wrote from pages whose request had ended",
    Rare.WRITER_KEEPS_WINDOW: "a window could not be sealed, since its writer still had it",
    Rare.FENCED_BY_SEAL: "a window was taken back by a seal, without its writer's word",
    Rare.FENCED_BY_PROCESS_END: "a window was taken back because its writer's process had ended",
    Rare.DRAIN_UNDER_FULL_POOL: "a request waited for pages while the last ones drained",
    Rare.RESUMED_LATE: "a node woke up with passed deadlines, and handled them before messages",
    Rare.RECOVERY: "decode computed a prompt itself, since the evidence did not come",
    Rare.FAIRNESS: "a request was granted its pages before one that had come earlier",
    Rare.PUSHED_OUT: "a full queue gave the place of one tenant to another",
    Rare.PREFIX_REUSED: "a prompt was served from pages that its scope had kept",
    Rare.PEER_LOST_IN_TRANSFER: "prefill was lost between grant and receipt",
    Rare.CLAIM_AFTER_EXPIRY: "a claim raced the offer's expiry, and lost",
    Rare.CLAIM_REPEATED: "a claim came again after it had been answered, and was answered the same",
    Rare.READ_AFTER_END: "decode's own read still ran when its request had ended",
    Rare.LOAN_REVOKED_IN_READ: "pages were taken back during a read, and the reader was told so",
    Rare.LOAN_AFTER_END: "pages waited for a reader that does not ask, after their request's end",
}
"""What each of them means."""

PULL_ONLY = frozenset(
    {
        Rare.CLAIM_AFTER_EXPIRY,
        Rare.CLAIM_REPEATED,
        Rare.READ_AFTER_END,
        Rare.LOAN_REVOKED_IN_READ,
        Rare.LOAN_AFTER_END,
    }
)
"""States that only pull has."""

BY_HOLD_AT_DECODE = {
    Hold.COMPUTE: Rare.STEP_AFTER_END,
    Hold.LANDING: Rare.LANDING_AFTER_END,
    Hold.FILL: Rare.FILL_AFTER_END,
    Hold.READ: Rare.READ_AFTER_END,
}
BY_HOLD_AT_PREFILL = {
    Hold.COMPUTE: Rare.CHUNK_AFTER_END,
    Hold.WRITE: Rare.WRITE_AFTER_END,
    Hold.LOAN: Rare.LOAN_AFTER_END,
}

LOST = ("peer_lost", "transfer")
_FENCES = {"sealed": Rare.FENCED_BY_SEAL, "process_gone": Rare.FENCED_BY_PROCESS_END}


def seen_in(records: Iterable[Record]) -> list[Rare]:
    """Return the rare states that the evidence of a turn shows."""
    return [rare for record in records if (rare := _seen_in(record)) is not None]


def held_after_end(pool: Pool, names: dict[Hold, Rare]) -> list[Rare]:
    """Return the rare states in which somebody is still at the pages of an ended lease.

    Args:
        pool: The pool after a turn.
        names: What a hold means on this kind of node.
    """
    holds = {hold for lease in pool.leases.values() if not lease.live for hold in lease.holds}
    return [rare for hold, rare in names.items() if hold in holds]


def _seen_in(record: Record) -> Rare | None:
    fields = record.fields
    match record.event:
        case "request_recomputed":
            return Rare.RECOVERY
        case "end_came_later":
            return Rare.END_AFTER_END
        case "prefix_reused":
            return Rare.PREFIX_REUSED
        case "window_fenced":
            return _FENCES.get(str(fields["fence"]))
        case "message_ignored" if fields["message"] == "grant":
            return Rare.GRANT_REPEATED
        case "message_ignored" if fields["message"] == "ruling":
            return Rare.VERDICT_AFTER_CANCEL
        case "request_refused" if (fields["reason"], fields["stage"]) == LOST:
            return Rare.PEER_LOST_IN_TRANSFER
        case "request_refused" if fields["limit_name"] == "tenant_queue_places":
            return Rare.PUSHED_OUT
    return None
