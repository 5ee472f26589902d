"""Ends of a prompt: the first wins; a write in flight keeps its pages until it is terminal."""

from __future__ import annotations

from kvairlock.core.effects import StopCompute
from kvairlock.core.ends import End, end_for
from kvairlock.core.errors import Reason, Refusal, Stage
from kvairlock.core.messages import Ruling
from kvairlock.core.protocol import handoff
from kvairlock.core.protocol.handoff import HandoffStage, Signal
from kvairlock.core.protocol.ledger import cause_of, verb_for
from kvairlock.core.protocol.prefill.intake import drop
from kvairlock.core.protocol.prefill.job import Job
from kvairlock.core.protocol.prefill.receipts import send_receipt
from kvairlock.core.protocol.prefill.sharing import keep
from kvairlock.core.protocol.prefill.state import PrefillState
from kvairlock.core.terms import Instant, Peer, TransferId

WITHDRAWN = {
    End.COMPLETED: Reason.PEER_REJECTED,
    End.REJECTED: Reason.PEER_REJECTED,
    End.CANCELLED: Reason.CANCELLED,
    End.TIMED_OUT: Reason.TIMEOUT,
    End.FAILED: Reason.PEER_LOST,
}
"""Why a prompt has ended here, by how decode says that the request has ended there."""

REJECTED = Refusal(Reason.PEER_REJECTED, Stage.VERDICT, "decode did not admit the receipt")


def ruled(node: PrefillState, peer: Peer, ruling: Ruling, now: Instant) -> None:
    """Decode has judged the receipt: keep what may be shared, let go of the rest."""
    job = node.jobs.get(ruling.transfer)
    if job is None and not ruling.admitted:
        return  # It acknowledges a refusal of ours.
    if job is None or job.asked.decode != peer or job.stage is not HandoffStage.REPORTED:
        node.books.record_ignored(job.owner if job else None, "ruling", "no receipt is open")
        return
    if ruling.admitted:
        job.stage = handoff.advance(job.stage, Signal.CONFIRM)
        keep(node, job, now)
    _close(node, job, None if ruling.admitted else ruling.refusal or REJECTED, now)


def withdrawn(node: PrefillState, peer: Peer, name: TransferId, end: End, now: Instant) -> None:
    """Decode has ended the request."""
    job = node.jobs.get(name)
    if job is None or job.asked.decode != peer:
        node.books.record_ignored(job.owner if job else None, "withdraw", "nothing is open")
        return
    refusal = Refusal(WITHDRAWN[end], Stage.DECODE, f"decode ended the request as {end}")
    _close(node, job, refusal, now)


def peer_lost(node: PrefillState, peer: Peer, now: Instant) -> None:
    """Nobody waits for the prompts of a lost decode node."""
    node.books.record_peer("peer_lost", peer)
    for job in list(node.jobs.values()):
        if job.asked.decode == peer:
            refusal = Refusal(Reason.PEER_LOST, Stage.TRANSFER, "the decode node was lost")
            fail(node, job, refusal, now)


def fail(node: PrefillState, job: Job, refusal: Refusal, now: Instant) -> None:
    """End a job for a reason of ours, and say so in place of a receipt of success."""
    if job.stage is not HandoffStage.REPORTED:
        send_receipt(node, job.asked, job.owner, end_for(refusal.reason), refusal)
    _close(node, job, refusal, now)


def _close(node: PrefillState, job: Job, refusal: Refusal | None, now: Instant) -> None:
    stop(node, job)
    if job.stage is HandoffStage.GRANTED and not job.is_writing:
        drop(node, job.asked)
    give_back(node, job, refusal, now)


def stop(node: PrefillState, job: Job) -> None:
    """Take a job out of the table and the queue, and its prompt out of the engine."""
    del node.jobs[job.name]
    if job.name in node.queue:
        node.queue.remove(job.name)
    node.emit(StopCompute(job.name))


def give_back(node: PrefillState, job: Job, refusal: Refusal | None, now: Instant) -> None:
    """Write the end of a stopped job; it is the first, since the table has it no longer."""
    job.stage = handoff.advance(job.stage, Signal.CLOSE)
    _record(node, job, refusal)
    node.closing[job.name] = job
    if job.lease is not None:
        node.books.drain.begin(job.lease, verb_for(refusal), cause_of(refusal), now)


def _record(node: PrefillState, job: Job, refusal: Refusal | None) -> None:
    end = end_for(refusal.reason) if refusal else job.outcome
    node.books.counters[f"ended.{end}"] += 1
    node.books.record(
        "request_ended",
        job.owner,
        end=end,
        reason=refusal.reason if refusal else "",
        computed_tokens=job.stop if job.digests else 0,
        generated_tokens=0,
        reused_tokens=job.reused_tokens(node.books.report.page_tokens) if job.digests else 0,
    )
