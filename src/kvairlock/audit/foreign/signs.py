"""What a line of an engine's log can be a sign of, whichever engine wrote it."""

from __future__ import annotations

from enum import StrEnum


class Engine(StrEnum):
    """Whose line it is."""

    VLLM = "vllm"
    SGLANG = "sglang"


class Side(StrEnum):
    """Which half of a disaggregated pair wrote a line or a file."""

    PREFILL = "prefill"
    DECODE = "decode"
    UNKNOWN = "unknown"


class Sign(StrEnum):
    """What a line says, as far as it matters here."""

    LEASE_EXPIRED = "lease_expired"
    """Prefill gave pages back that it had kept for decode, since too much time had passed."""
    READ_UNKNOWN = "read_unknown"
    """Decode reported to have read pages that prefill no longer keeps for it."""
    READ_DECLINED = "read_declined"
    """A read was not begun, since what it would have read had expired."""
    NOTE_LOST = "note_lost"
    """Decode could not tell prefill that it had read."""
    TRANSFERRED = "transferred"
    """A transfer was reported as done."""
    TRANSFER_FAILED = "transfer_failed"
    """A transfer was reported as failed."""
    PREFILL_FAILED = "prefill_failed"
    """Prefill gave a request up while its pages were being handed over."""
    REFUSED = "refused"
    """A node refused a request, since it has no room for one that long."""
    ABORTED = "aborted"
    """A request was given up, by its client or by a node."""
    ABORT_LATE = "abort_late"
    """Prefill was told of an abort of something that it had written, or did not know."""
    DECODE_FAILED = "decode_failed"
    """Decode gave a request up, so that it did not generate from what had arrived."""
    RELEASED_UNPROVEN = "released_unproven"
    """Decode gave pages back without knowing that nobody writes into them any more."""
    OTHERS_METADATA = "others_metadata"
    """What arrived for one request was labelled as another's."""
    OTHER_BYTES = "other_bytes"
    """What arrived has another checksum than what prefill sent."""
    UNCHECKED = "unchecked"
    """Requests were let in without the checksum that was switched on."""
    ANSWERED = "answered"
    """A request has been answered, with tokens."""
