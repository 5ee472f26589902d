"""The chain of one request, step by step: what should be on record, by how the request went.

    admission -> lease -> window -> computed -> receipt -> verdict -> reads -> end -> drain

Which steps must be there depends on the way that the request took: one that was refused has no
receipt, one that decode computed itself needs none. The table says which; what it asks for and
nobody recorded is missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from kvairlock.core.terms import Role

Record = Mapping[str, Any]


class Way(StrEnum):
    """How a request went."""

    REFUSED_AT_GATEWAY = "refused at the gateway"
    NOT_READ = "refused or ended before anything was read"
    HANDED_OVER = "computed by prefill, and handed over"
    PULLED = "computed by prefill, and fetched by decode"
    RECOMPUTED = "computed by decode itself"


_READ = (Way.HANDED_OVER, Way.PULLED, Way.RECOMPUTED)
_BY_PREFILL = (Way.HANDED_OVER, Way.PULLED)
_SENT = (Way.NOT_READ, *_READ)


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the chain.

    Args:
        name: What it is called.
        role: Who records it.
        event: As which event.
        ways: On which ways it must be there.
    """

    name: str
    role: Role
    event: str
    ways: tuple[Way, ...]


STEPS: tuple[Step, ...] = (
    Step("refusal", Role.GATEWAY, "request_refused", (Way.REFUSED_AT_GATEWAY,)),
    Step("admission", Role.GATEWAY, "request_admitted", _SENT),
    Step("admission", Role.DECODE, "request_admitted", _READ),
    Step("lease", Role.DECODE, "pages_allocated", _READ),
    Step("window", Role.DECODE, "window_granted", (Way.HANDED_OVER,)),
    Step("admission", Role.PREFILL, "request_admitted", _BY_PREFILL),
    Step("lease", Role.PREFILL, "pages_allocated", _BY_PREFILL),
    Step("computed range", Role.PREFILL, "range_computed", _BY_PREFILL),
    Step("write", Role.PREFILL, "write_ended", (Way.HANDED_OVER,)),
    Step("claim", Role.PREFILL, "pages_claimed", (Way.PULLED,)),
    Step("remote read", Role.DECODE, "remote_read_ended", (Way.PULLED,)),
    Step("validation", Role.PREFILL, "pages_validated", (Way.PULLED,)),
    Step("receipt", Role.PREFILL, "receipt_sent", _BY_PREFILL),
    Step("verdict", Role.DECODE, "verdict", _BY_PREFILL),
    Step("fence", Role.DECODE, "window_fenced", (Way.HANDED_OVER,)),
    Step("recomputation", Role.DECODE, "request_recomputed", (Way.RECOMPUTED,)),
    Step("computed range", Role.DECODE, "range_computed", (Way.RECOMPUTED,)),
    Step("reads", Role.DECODE, "read_started", _READ),
    Step("end of reads", Role.DECODE, "read_ended", _READ),
    Step("end", Role.DECODE, "request_ended", _READ),
    Step("response", Role.GATEWAY, "response_sent", _READ),
    Step("drain", Role.DECODE, "drain_began", _READ),
    Step("end of the drain", Role.DECODE, "drain_ended", _READ),
    Step("end", Role.PREFILL, "request_ended", _BY_PREFILL),
    Step("end of the drain", Role.PREFILL, "drain_ended", _BY_PREFILL),
)
PAIRS = (("pages_allocated", "drain_ended"), ("window_granted", "window_fenced"))
"""What was taken must come back, on decode, whatever way a request took."""


def way_of(records: Iterable[Record]) -> Way:
    """Return how a request went, by its records."""
    told = {(record["role"], record["event"]) for record in records}

    def has(role: Role, event: str) -> bool:
        return (role, event) in told

    if has(Role.DECODE, "request_recomputed"):
        return Way.RECOMPUTED
    read = has(Role.DECODE, "read_started") or has(Role.DECODE, "read_ended")
    if read:
        return Way.PULLED if has(Role.PREFILL, "pages_claimed") else Way.HANDED_OVER
    refused = has(Role.GATEWAY, "request_refused") and not has(Role.GATEWAY, "request_admitted")
    return Way.REFUSED_AT_GATEWAY if refused else Way.NOT_READ


def missing_of(records: Iterable[Record]) -> tuple[str, ...]:
    """Return what should be on record of a request and is not, in words."""
    known = list(records)
    told = {(record["role"], record["event"]) for record in known}
    way = way_of(known)
    missing = [
        f"{step.name} ({step.event} of {step.role})"
        for step in STEPS
        if way in step.ways and (step.role, step.event) not in told
    ]
    for taken, returned in PAIRS:
        if (Role.DECODE, taken) in told and (Role.DECODE, returned) not in told:
            missing.append(f"what was taken came back ({returned} of decode)")
    return tuple(dict.fromkeys(missing))
