"""One row per request: what its records say, counted in one pass over everything.

    10 million records --group by request--> half a million rows of plain numbers

Every column is a count or an extreme of numbers, so the pass needs little memory and gives the same
on every engine. What lists of pages say is found out beside it, in `kvairlock.audit.tenures` and
`kvairlock.audit.suspicions`.
"""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus
from typing import Any

import ibis
from ibis import Table

from kvairlock.audit.counting import COUNT_MAX, Counters
from kvairlock.audit.spans import Life
from kvairlock.core.ends import End
from kvairlock.core.evidence import EVENTS
from kvairlock.core.terms import Fence, Role

ASIDE = (
    "end_came_later",
    "message_ignored",
    "tenant_fault",
    "parameters_stripped",
    "request_retried",
    "boundary_replayed",
    "drill_requested",
)
"""Events that name a request and change nothing about it; a peer may have named another's."""

ROLES = (Role.GATEWAY, Role.PREFILL, Role.DECODE)
STRANGE = len(ROLES)
"""The place of a process that is of no known role."""
LIFE_FACTOR = 2**40
"""A life and a number in it are one number: `life * LIFE_FACTOR + sequence`."""

COUNTED = {
    Role.GATEWAY: ("request_admitted", "request_refused", "response_sent"),
    Role.PREFILL: (
        "request_admitted",
        "request_refused",
        "pages_allocated",
        "prefix_reused",
        "range_computed",
        "write_ended",
        "receipt_sent",
        "request_ended",
        "pages_claimed",
        "pages_revoked",
    ),
    Role.DECODE: (
        "request_admitted",
        "request_refused",
        "request_recomputed",
        "pages_allocated",
        "window_granted",
        "window_fenced",
        "range_computed",
        "verdict",
        "read_started",
        "read_ended",
        "mapping_refused",
        "remote_read_ended",
        "request_ended",
        "drain_began",
        "drain_ended",
    ),
}
SEEN = (
    "receipts_completed",
    "receipts_refusing",
    "writes_done",
    "windows_proven",
    "drains_proven",
    "prefill_drains_began",
    "prefill_drains_proven",
    "remote_reads_done",
    "stood",
    "fell",
    "admitted",
    "verdicts_refusing",
    "would_refuse",
    "answers",
)
PROVEN = tuple(str(fence) for fence in Fence if fence is not Fence.UNPROVEN)
"""Fences that prove something; a word that nobody knows proves nothing."""

_LIFE = {"node": "string", "incarnation": "string", "life": "int64", "place": "int64"}
_FACTOR = 4
_NUMBERS = {event: number for number, event in enumerate(EVENTS)}
_EVENT_COUNTERS = Counters([f"{role}_{event}" for role in ROLES for event in COUNTED[role]])
_SEEN_COUNTERS = Counters(SEEN)

Column = Any


def of_requests(records: Table, lives: Iterable[Life]) -> Table:
    """Return the records about requests, with life and kind as numbers, and what each counts as.

    Args:
        records: The wide table.
        lives: All lives that there is evidence of.
    """
    known = [
        {
            "node": life.node,
            "incarnation": life.incarnation,
            "life": life.number,
            "place": place_of(life.role),
        }
        for life in lives
    ]
    t = records.filter(records.request.notnull())
    schema = ibis.schema(_LIFE)
    t = t.join(ibis.memtable(known, schema=schema), ["node", "incarnation"])
    return t.join(ibis.memtable(_kinds()), ["event", "place"])


def place_of(role: str) -> int:
    """Return the number of a role, `STRANGE` if it is none."""
    return ROLES.index(Role(role)) if role in tuple(Role) else STRANGE


def _kinds() -> list[dict[str, Any]]:
    """Every event that says something about a request, of every role: its code and its weights."""
    nothing = [0] * _EVENT_COUNTERS.words
    rows = []
    for event in EVENTS:
        if "request" not in EVENTS[event] or event in ASIDE:
            continue
        for place in range(STRANGE + 1):
            role = ROLES[place] if place < STRANGE else None
            counted = role is not None and event in COUNTED[role]
            weights = _EVENT_COUNTERS.weights(f"{role}_{event}") if counted else nothing
            words = {f"weight_{i}": weight for i, weight in enumerate(weights)}
            rows.append({"event": event, "place": place, "code": _code(place, event), **words})
    return rows


def _code(place: int, event: str) -> int:
    return _NUMBERS[event] * _FACTOR + place


def proven(fence: Column) -> Column:
    """Whether a fence is one that proves something; false where there is none."""
    return fence.isin(PROVEN).fill_null(False)


def is_a(told: Table, role: Role, event: str) -> Column:
    """Whether a record is an event of a role."""
    return told.code == _code(ROLES.index(role), event)


def chains(told: Table) -> Table:
    """Count what is told of each request.

    Args:
        told: What `of_requests` returns.

    Returns:
        A row per request and tenant. `gateway_`, `prefill_` and `decode_` say who told; `_at` is a
        wall clock in nanoseconds, `_seq` a number within one life.
    """
    seen = _SEEN_COUNTERS.of_flags(_flags(told))
    words = {f"seen_{i}": seen[i].sum() for i in range(_SEEN_COUNTERS.words)}
    words |= {f"word_{i}": told[f"weight_{i}"].sum() for i in range(_EVENT_COUNTERS.words)}
    row = told.group_by("request", "tenant").aggregate(
        records=told.count(), **words, **_extent(told), **_figures(told)
    )
    return _spelled(row)


def _spelled(row: Table) -> Table:
    """Give every counter, life and sequence a column of its own."""
    columns = _EVENT_COUNTERS.unpacked(row, [f"word_{i}" for i in range(_EVENT_COUNTERS.words)])
    columns |= _SEEN_COUNTERS.unpacked(row, [f"seen_{i}" for i in range(_SEEN_COUNTERS.words)])
    kept = [name for name in row.columns if not name.startswith(("word_", "seen_", "from_", "to_"))]
    columns["too_many"] = row.records > COUNT_MAX
    for role in ROLES:
        first, last = row[f"from_{role}"], row[f"to_{role}"]
        # A life's number is over the 40 bits of its sequences.
        columns[f"{role}_life"] = (first >> 40).cast("int32")
        columns[f"{role}_other_life"] = (last >> 40).cast("int32")
        columns[f"{role}_first_seq"] = first & (LIFE_FACTOR - 1)
        columns[f"{role}_last_seq"] = last & (LIFE_FACTOR - 1)
    return row.select(*kept, **columns)


def _extent(t: Table) -> dict[str, Column]:
    """How far the records of a request reach in each life."""
    at = t.life * LIFE_FACTOR + t.sequence
    columns = {"since_unix_ns": t.at_unix_ns.min()}
    for place, role in enumerate(ROLES):
        columns[f"from_{role}"] = at.min(where=t.place == place)
        columns[f"to_{role}"] = at.max(where=t.place == place)
    return columns


def _flags(t: Table) -> list[tuple[Column, dict[str, Column]]]:
    """What a record shows beside being there, by the kind of the record."""
    fenced = proven(t.fence)
    done, completed = t.status == "done", t.outcome == End.COMPLETED
    shown: dict[tuple[Role, str], dict[str, Column]] = {
        (Role.GATEWAY, "response_sent"): {
            "answers": (t.http_status == HTTPStatus.OK.value) & (t.finish.length() > 0)
        },
        (Role.PREFILL, "receipt_sent"): {
            "receipts_completed": completed,
            "receipts_refusing": ~completed,
        },
        (Role.PREFILL, "write_ended"): {"writes_done": done},
        (Role.PREFILL, "drain_began"): {"prefill_drains_began": ibis.literal(value=True)},
        (Role.PREFILL, "drain_ended"): {"prefill_drains_proven": fenced},
        (Role.PREFILL, "pages_validated"): {
            "stood": t.outcome == "stood",
            "fell": t.outcome != "stood",
        },
        (Role.DECODE, "window_fenced"): {"windows_proven": fenced},
        (Role.DECODE, "drain_ended"): {"drains_proven": fenced},
        (Role.DECODE, "remote_read_ended"): {"remote_reads_done": done},
        (Role.DECODE, "verdict"): {
            "admitted": t.outcome == "admitted",
            "verdicts_refusing": t.outcome != "admitted",
        },
    }
    kinds = [(is_a(t, role, event), flags) for (role, event), flags in shown.items()]
    return [*kinds, (t.event == "would_refuse", {"would_refuse": ibis.literal(value=True)})]


def _figures(t: Table) -> dict[str, Column]:
    """Figures of the request itself, and when what is ordered between nodes happened."""
    entered = is_a(t, Role.GATEWAY, "request_admitted")
    ended = is_a(t, Role.DECODE, "request_ended")
    stated = is_a(t, Role.PREFILL, "receipt_sent")
    told = is_a(t, Role.GATEWAY, "response_sent")
    claimed = is_a(t, Role.PREFILL, "pages_claimed")
    read = is_a(t, Role.DECODE, "read_started") | is_a(t, Role.DECODE, "read_ended")
    return {
        "claim": t.claim.min(where=claimed),
        "other_claim": t.claim.max(where=claimed),
        "began_seq": t.sequence.max(where=is_a(t, Role.DECODE, "drain_began")),
        "last_read_seq": t.sequence.max(where=read),
        "peer": t.peer.max(where=is_a(t, Role.DECODE, "window_granted")),
        "prompt_tokens": t.prompt_tokens.max(where=entered),
        "receipt_stop": t.stop.max(where=stated),
        "computed_stop": t.stop.max(where=is_a(t, Role.PREFILL, "range_computed")),
        "recomputed_stop": t.stop.max(where=is_a(t, Role.DECODE, "range_computed")),
        "computed_tokens": t.computed_tokens.max(where=ended),
        "generated_tokens": t.generated_tokens.max(where=ended),
        "told_prompt_tokens": t.prompt_tokens.max(where=told),
        "told_generated_tokens": t.generated_tokens.max(where=told),
        "entered_at": t.at_unix_ns.max(where=entered),
        "arrived_at": t.at_unix_ns.min(where=t.place == ROLES.index(Role.DECODE)),
        "accepted_at": t.at_unix_ns.min(where=t.place == ROLES.index(Role.PREFILL)),
        "stated_at": t.at_unix_ns.max(where=stated),
        "judged_at": t.at_unix_ns.max(where=is_a(t, Role.DECODE, "verdict")),
    }
