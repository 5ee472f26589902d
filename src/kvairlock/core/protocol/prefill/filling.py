"""From the queue to sealed pages: reserve, compute, zero the tail, seal, digest, write, report."""

from __future__ import annotations

import numpy as np

from kvairlock.core.effects import Digest, Send, StartCompute, Write, ZeroTail
from kvairlock.core.errors import Reason, Refusal, Stage
from kvairlock.core.events import Computed, Digested, WriteEnded
from kvairlock.core.guards import Guard
from kvairlock.core.memory.page import Verb
from kvairlock.core.memory.pool import Hold
from kvairlock.core.memory.prefixes import Match
from kvairlock.core.messages import Released
from kvairlock.core.promise.capacity import Demand
from kvairlock.core.protocol import handoff
from kvairlock.core.protocol.handoff import Signal
from kvairlock.core.protocol.prefill.ending import fail
from kvairlock.core.protocol.prefill.job import EMPTY, Job
from kvairlock.core.protocol.prefill.receipts import send_receipt
from kvairlock.core.protocol.prefill.sharing import make_room, shared_prefix
from kvairlock.core.protocol.prefill.state import PrefillState, leave
from kvairlock.core.terms import Instant, after


def pump(node: PrefillState, now: Instant) -> None:
    """Start prompts in the order of arrival, as long as their pages fit."""
    while node.queue and _start(node, node.jobs[node.queue[0]], now):
        node.queue.pop(0)


def _start(node: PrefillState, job: Job, now: Instant) -> bool:
    """Begin to compute; False while there are too few free pages.

    A prefix that is held takes room as well: what does not fit beside it may fit in its place.
    """
    pool, prefix = node.books.pool, shared_prefix(node, job)
    if not _reserve(node, job, prefix, now):
        if _needed(node, job, prefix) <= pool.pages_coming:
            return False  # As soon as they are zeroed.
        if not _reserve(node, job, EMPTY, now):
            return False
    pool.advance(job.own, Verb.FILL, job.own.pages)
    _record_start(node, job)
    start = len(job.prefix.pages) * pool.page_tokens
    node.emit(StartCompute(job.name, job.table, start, job.stop))
    if start == job.stop:
        _seal(node, job)
    return True


def _needed(node: PrefillState, job: Job, prefix: Match) -> int:
    size = node.books.pool.page_tokens
    return Demand(job.stop, 0).prompt_pages(size) - len(prefix.pages)


def _reserve(node: PrefillState, job: Job, prefix: Match, now: Instant) -> bool:
    """Reserve what a prompt needs behind a prefix, if that fits now."""
    pool, needed = node.books.pool, _needed(node, job, prefix)
    for entry in prefix.entries:
        entry.users += 1
    make_room(node, needed, now)
    if needed > pool.pages_free:
        leave(prefix.entries)
        return False
    job.prefix, job.lease = prefix, pool.reserve(job.owner, needed)
    return True


def _record_start(node: PrefillState, job: Job) -> None:
    generations = node.books.pool.generation
    node.books.record_allocated(job.own)
    for entry in job.prefix.entries:
        pages = entry.lease.pages[np.isin(entry.lease.pages, job.prefix.pages)]
        node.books.record(
            "prefix_reused",
            job.owner,
            tokens=len(pages) * node.books.pool.page_tokens,
            pages=tuple(pages.tolist()),
            generations=tuple(generations[pages].tolist()),
            creator=entry.creator.tenant,
            scope=job.ticket.scope,
            creator_scope=entry.scope,
        )


def computed(node: PrefillState, event: Computed) -> None:
    """A chunk is done; the last one seals the pages."""
    job = node.let_go(event.transfer, Hold.COMPUTE)
    if job is not None and event.stop == job.stop:
        _seal(node, job)


def _seal(node: PrefillState, job: Job) -> None:
    pool, lease = node.books.pool, job.own
    used = job.stop % pool.page_tokens
    if used and node.on(Guard.TAIL):
        node.emit(ZeroTail(int(lease.pages[-1]), used))
    pool.advance(lease, Verb.SEAL, lease.pages)
    node.books.record(
        "range_computed",
        job.owner,
        start=len(job.prefix.pages) * pool.page_tokens,
        stop=job.stop,
        pages=tuple(lease.pages.tolist()),
        generations=tuple(lease.generations.tolist()),
    )
    lease.hold(Hold.COMPUTE)
    node.emit(Digest(job.name, job.table, job.asked.seed))


def digested(node: PrefillState, event: Digested) -> None:
    """The sealed pages are digested: write them."""
    job = node.let_go(event.transfer, Hold.COMPUTE)
    if job is not None:
        job.digests, job.input_digest = event.digests, event.input_digest
        job.own.hold(Hold.WRITE)
        node.emit(Write(job.name, job.asked.window, job.table))


def write_ended(node: PrefillState, event: WriteEnded, now: Instant) -> None:
    """A write is terminal: let go of its window, and report if the job is still open."""
    known = node.known(event.transfer)
    if known is None:
        node.books.record_ignored(None, "write ended", "no such transfer")
        return
    job = node.let_go(event.transfer, Hold.WRITE)
    node.books.record(
        "write_ended",
        known.owner,
        window=event.window,
        pages=tuple(known.table.tolist()),
        bytes_written=event.bytes_written,
        status="done" if event.done else "failed",
    )
    released = Released(event.transfer, event.window, event.bytes_written)
    node.emit(Send(known.asked.decode.node, released))
    if job is not None and event.done:
        _report(node, job, now)
    elif job is not None:
        fail(node, job, Refusal(Reason.PEER_LOST, Stage.TRANSFER, "the write failed"), now)


def _report(node: PrefillState, job: Job, now: Instant) -> None:
    job.stage = handoff.advance(job.stage, Signal.REPORT)
    job.deadline = after(now, node.limits.verdict_ms)
    send_receipt(node, job.asked, job.owner, job.outcome, None, job)
