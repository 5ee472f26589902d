"""Prefixes on a prefill node: who may read finished pages, and who has to make room."""

from __future__ import annotations

from kvairlock.core.ends import End
from kvairlock.core.guards import Guard
from kvairlock.core.memory.page import Verb
from kvairlock.core.memory.prefixes import Entry, Key, Match
from kvairlock.core.protocol.prefill.job import EMPTY, Job
from kvairlock.core.protocol.prefill.state import PrefillState
from kvairlock.core.terms import Instant
from kvairlock.core.waits import EVICTED

ANYBODY = ""


def shared_prefix(node: PrefillState, job: Job) -> Match:
    """Find the pages of a prompt that its scope already holds."""
    if job.outcome is not End.COMPLETED or not job.ticket.scope:
        return EMPTY
    return node.prefixes.match(_keys(node, job))


def make_room(node: PrefillState, pages: int, now: Instant) -> None:
    """Let go of idle prefixes until `pages` are free, or will be once they are zeroed.

    Nothing is let go if that would not be enough.
    """
    if pages > node.books.pool.pages_coming + node.prefixes.pages_idle:
        return
    while pages > node.books.pool.pages_coming:
        if not _evict(node, now):
            return


def make_way(node: PrefillState, now: Instant) -> None:
    """Let go of idle prefixes while the pool has more pages than it is to have."""
    pool = node.books.pool
    while pool.pages_surplus and pool.pages_coming < 0:
        if not _evict(node, now):
            return


def keep(node: PrefillState, job: Job, now: Instant) -> None:
    """Keep the full pages of an admitted prompt for later requests of its scope."""
    new = _keys(node, job)[len(job.prefix.pages) :]
    clean = job.outcome is End.COMPLETED and job.ticket.scope
    if not clean or not new or any(map(node.prefixes.knows, new)):
        return
    if not _has_room(node, len(new), now):
        return
    pool, lease = node.books.pool, job.own
    pool.advance(lease, Verb.SHARE, lease.pages[: len(new)])
    shared = pool.transfer(lease, job.owner, len(new))
    node.books.record(
        "prefix_kept",
        job.owner,
        lease=shared.id,
        pages=tuple(shared.pages.tolist()),
        generations=tuple(shared.generations.tolist()),
    )
    node.prefixes.add(Entry(job.owner, new, shared, job.ticket.scope))


def _keys(node: PrefillState, job: Job) -> tuple[Key, ...]:
    """Scope and key of each full page; without the `scope` guard all scopes are one."""
    scope = job.ticket.scope if node.on(Guard.SCOPE) else ANYBODY
    return tuple((scope, key) for key in job.asked.page_keys)


def _has_room(node: PrefillState, pages: int, now: Instant) -> bool:
    limit = node.limits.prefix_pages
    if pages > limit:
        return False
    while node.prefixes.pages + pages > limit:
        if not _evict(node, now):
            return False
    return True


def _evict(node: PrefillState, now: Instant) -> bool:
    entry = node.prefixes.pop_idle()
    if entry is None:
        return False
    node.books.drain.begin(entry.lease, Verb.RETIRE, EVICTED, now)
    return True
