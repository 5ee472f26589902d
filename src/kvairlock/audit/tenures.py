"""Who had which pages when: a tenure is what one lease holds, from allocation to the drain's end.

    sequence of one life:   allocated ----------------- ended
                                | reads and rulings of exactly these pages are the owner's own

Within one life numbers are the order of events, so no clock is needed here. What is compared are
whole lists; pages are only taken one by one in `kvairlock.audit.successions`.
"""

from __future__ import annotations

from typing import Any

import ibis
from ibis import Table

from kvairlock.audit.chains import ROLES, is_a, proven
from kvairlock.core.checks import CheckPolicy
from kvairlock.core.guards import Guard
from kvairlock.core.terms import Role

DEMANDED = (
    Guard.OUTCOME,
    Guard.IDENTITY,
    Guard.INPUT,
    Guard.LAYOUT,
    Guard.RANGE,
    Guard.PAGE_INDEX,
    Guard.GENERATION,
)
"""Checks that every ruling must list which admits; `full` demands `integrity` as well."""

_RULING = ("checks", "observed", "policy", "verified", "start", "stop", "expected_tokens")

Column = Any


def moves(told: Table) -> Table:
    """Return how leases begin and end: read once, since reading lists of pages is what costs.

    Args:
        told: What `chains.of_requests` returns.
    """
    t = told.filter(told.event.isin(("pages_allocated", "drain_ended")))
    own = ("event", "request", "life", "place", "lease", "pages", "generations", "sequence")
    return t.select(*own, "fence")


def ends(moved: Table) -> Table:
    """Return the end of every drain, those of kept prefixes included.

    Args:
        moved: What `moves` returns.
    """
    t = moved.filter(moved.event == "drain_ended")
    fenced = proven(t.fence)
    return t.select("life", "lease", "request", "pages", ended_seq=t.sequence, proven=fenced)


def tenures(moved: Table) -> Table:
    """Return a row per lease: whose, which pages, from when to when.

    `ended_seq` is null if no drain of the same lease and pages has ended: pages that became a
    prefix left their lease before, and their drain is another lease's. `freed_seq` is null as well
    if its fence proves nothing.

    Args:
        moved: What `moves` returns.
    """
    t = moved.filter(moved.event == "pages_allocated")
    t = t.select("request", "life", "place", "lease", "pages", "generations", given_seq=t.sequence)
    drained = ends(moved).rename(ended_request="request", ended_pages="pages")
    t = t.left_join(drained, ["life", "lease"])
    same = (t.ended_pages == t.pages) & (t.ended_request == t.request)
    ended = same.ifelse(t.ended_seq, None)
    return t.select(
        "request",
        "life",
        "place",
        "lease",
        "pages",
        "generations",
        "given_seq",
        ended_seq=ended,
        freed_seq=t.proven.ifelse(ended, None),
    )


def dealings(told: Table, held: Table) -> Table:
    """Compare rulings and reads on decode with what the same request held there.

    Args:
        told: What `chains.of_requests` returns.
        held: What `tenures` returns.

    Returns:
        A row per request: how many of its reads and rulings are of its own pages, and what the
        rulings that admit say.
    """
    t = _with_own(told, held)
    read, ruled = t.event == "read_started", t.event == "verdict"
    return t.group_by("request").aggregate(
        reads_own=(read & t.is_whole).sum(),
        rulings_own=(ruled & t.is_front).sum(),
        ranges_own=((t.event == "range_computed") & t.is_front).sum(),
        read_seq=t.sequence.max(where=read),
        confirmed_seq=t.sequence.max(where=~read),
        **_rulings(t, ruled),
    )


def _with_own(told: Table, held: Table) -> Table:
    own = held.filter(held.place == ROLES.index(Role.DECODE)).select(
        "request", "life", "given_seq", own_pages="pages", own_generations="generations"
    )
    done = _touches(told)
    t = done.left_join(own, ["request", "life"]).drop("request_right", "life_right")
    count = t.pages.length()
    after = t.sequence > t.given_seq
    whole = (t.pages == t.own_pages) & (t.generations == t.own_generations) & after
    front = (t.pages == t.own_pages[:count]) & (t.generations == t.own_generations[:count]) & after
    return t.mutate(
        is_whole=whole.fill_null(False), is_front=(front & (count > 0)).fill_null(False)
    )


def _touches(told: Table) -> Table:
    read = is_a(told, Role.DECODE, "read_started")
    ruled = is_a(told, Role.DECODE, "verdict") & (told.outcome == "admitted")
    computed = is_a(told, Role.DECODE, "range_computed")
    t = told.filter(read | ruled | computed)
    fields = ("request", "life", "event", "sequence", "pages", "generations", *_RULING)
    return t.select(*fields)


def _rulings(t: Table, ruled: Column) -> dict[str, Column]:
    """What the rulings say: which checks ran, over which pages, and for which tokens."""
    full = t.policy == CheckPolicy.FULL
    lacks_one = full & ~t.checks.contains(str(Guard.INTEGRITY))
    for guard in DEMANDED:
        lacks_one |= ~t.checks.contains(str(guard))
    unsaid = ibis.literal(value=False)
    for name in _RULING:
        unsaid |= t[name].isnull()
    # A recomputed request has two tenures, so a ruling may be here twice: whether, not how often.
    return {
        "unchecked": (ruled & lacks_one).fill_null(False).any(),
        "let_pass": (ruled & (t.observed.length() > 0)).fill_null(False).any(),
        "reduced": (ruled & ~full).fill_null(True).any(),
        "unverified": (ruled & full & (t.verified != t.pages)).fill_null(False).any(),
        "unsaid": (ruled & unsaid).any(),
        "unlisted": (t.pages.isnull() | t.generations.isnull()).any(),
        "confirmed_start": t.start.max(where=ruled),
        "confirmed_stop": t.stop.min(where=ruled),
        "expected_tokens": t.expected_tokens.max(where=ruled),
    }


def strays(told: Table, held: Table) -> Table:
    """Return reads of pages that no tenure of the reader has in that moment.

    Args:
        told: What `chains.of_requests` returns.
        held: What `tenures` returns.
    """
    t = _with_own(told, held)
    reads = t.filter(t.event == "read_started")
    own = reads.filter(reads.is_whole).select("request", "life", "sequence")
    t = reads.filter(reads.pages.notnull() & reads.generations.notnull())
    t = t.anti_join(own, ["request", "life", "sequence"])
    fields = ("request", "life", "sequence", "pages", "generations")
    return t.select(*fields, holds=t.given_seq.notnull()).distinct()
