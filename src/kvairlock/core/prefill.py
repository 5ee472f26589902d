"""Prefill's side: judge by the own pool, compute, seal, write, state what was really done.

    Granted -> [queue] -> GRANTED: compute chunks -> seal, digest -> write -> receipt -> REPORTED
                                                                     -> ruling -> CLOSED
A write that was submitted runs to its own terminal status whatever becomes of the request; its
source pages and the window stay held until then.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kvairlock.core import admission, handoff
from kvairlock.core.capacity import CapacityReport, Demand
from kvairlock.core.effects import (
    Digest,
    DropWindow,
    Send,
    StartCompute,
    StopCompute,
    Write,
    ZeroTail,
)
from kvairlock.core.ends import End, end_for
from kvairlock.core.errors import Reason, Refusal, Stage
from kvairlock.core.events import (
    ComputeBegan,
    Computed,
    Digested,
    EngineFailed,
    Event,
    Granted,
    PeerGone,
    PeerLost,
    PeerUp,
    ScrubDone,
    Told,
    WriteEnded,
)
from kvairlock.core.guards import Guard, GuardSet
from kvairlock.core.handoff import HandoffStage, Signal
from kvairlock.core.ledger import Ledger, judge_ticket, verb_for
from kvairlock.core.messages import Receipt, Released, RequestTicket, Ruling, Withdraw
from kvairlock.core.page import Verb
from kvairlock.core.pool import Hold, Lease
from kvairlock.core.prefixes import Entry, Key, Match, Prefixes
from kvairlock.core.terms import NS_PER_MS, Instant, Owner, Pages, Peer, TransferId

NO_PAGES: Pages = np.array([], dtype=np.int32)
EMPTY = Match((), NO_PAGES)
PLACEHOLDER_TOKENS = 1


@dataclass(frozen=True, slots=True)
class PrefillLimits:
    """Deadlines and caps of a prefill node.

    Args:
        verdict_ms: Longest wait for the ruling on a receipt.
        prefix_pages: Pages that finished prefixes may keep.
    """

    verdict_ms: int
    prefix_pages: int


@dataclass(slots=True)
class Job:
    """One prompt on this node.

    Args:
        asked: The grant.
        ticket: What the request's ticket vouches for.
        deadline: When the receiver stops to wait, then when the ruling is overdue.
        stop: How many tokens are to be computed.
        outcome: What the receipt will state.
        prefix: Shared pages that are not computed again.
        lease: The own pages, behind the shared ones.
        digests: Digest of each page once sealed.
    """

    asked: Granted
    ticket: RequestTicket
    deadline: Instant
    stop: int
    outcome: End = End.COMPLETED
    stage: HandoffStage = HandoffStage.OFFERED
    prefix: Match = EMPTY
    lease: Lease | None = None
    digests: tuple[int, ...] = ()

    @property
    def owner(self) -> Owner:
        """Whose prompt it is."""
        return self.ticket.owner

    @property
    def table(self) -> Pages:
        """All pages in token order, shape (pages,)."""
        own = self.lease.pages if self.lease else NO_PAGES
        return np.concatenate([self.prefix.pages, own])

    @property
    def keys(self) -> tuple[Key, ...]:
        """Scope and key of each full page."""
        return tuple((self.ticket.scope, key) for key in self.asked.page_keys)


class PrefillNode:
    """The machine of one prefill node.

    Args:
        report: What the node measured.
        guards: Which guards enforce.
        limits: Deadlines and caps.
        layout: Digest of the node's page layout.
    """

    def __init__(
        self, report: CapacityReport, guards: GuardSet, limits: PrefillLimits, layout: str
    ) -> None:
        self.books = Ledger(report, guards)
        self.limits, self.layout = limits, layout
        self.jobs: dict[TransferId, Job] = {}
        self.closing: dict[TransferId, Job] = {}
        self.queue: list[TransferId] = []
        self.prefixes = Prefixes()

    # What the host tells

    def handle(self, event: Event, now: Instant) -> None:
        """Take one event; what should happen is in `books.out`."""
        match event:
            case Granted():
                self._granted(event, now)
            case Told(peer, Withdraw(name, end)):
                self._withdrawn(peer, name, end, now)
            case Told(peer, Ruling() as ruling):
                self._ruled(peer, ruling, now)
            case ComputeBegan(name):
                self._hold(name, Hold.COMPUTE)
            case Computed():
                self._computed(event, now)
            case Digested():
                self._digested(event, now)
            case WriteEnded():
                self._write_ended(event, now)
            case EngineFailed(name, message):
                self._engine_failed(name, message, now)
            case PeerUp(peer):
                self.books.record(
                    "peer_up", None, peer=peer.node, peer_incarnation=peer.incarnation
                )
            case PeerLost(peer):
                self._peer_lost(peer, now)
            case PeerGone():
                pass  # Windows are the receiver's: nothing of a gone process can reach our pages.
            case ScrubDone(fenced):
                self.books.drain.scrubbed(fenced)
            case _:
                self.books.record_ignored(None, type(event).__name__, "not for a prefill node")
        self._turn(now)

    def deadline(self) -> Instant | None:
        """Return when `tick` is due, if anything waits."""
        return min((job.deadline for job in self.jobs.values()), default=None)

    def tick(self, now: Instant) -> None:
        """End what waited too long."""
        for job in list(self.jobs.values()):
            if job.deadline <= now:
                waits = "the ruling" if job.stage is HandoffStage.REPORTED else "its turn"
                message = f"waited too long for {waits}"
                self._finish(job, Refusal(Reason.TIMEOUT, Stage.PREFILL, message), now)
        self._turn(now)

    def fail(self, name: TransferId, refusal: Refusal, now: Instant) -> None:
        """End one request after an invariant broke while it was worked on."""
        job = self.jobs.get(name)
        if job is not None:
            self._finish(job, refusal, now)

    # Admission

    def _granted(self, asked: Granted, now: Instant) -> None:
        if asked.transfer in self.jobs or asked.transfer in self.closing:
            self.books.record_ignored(None, "grant", "this transfer is under way already")
            self._drop(asked)
            return
        ticket, refusal = judge_ticket(asked.presented, self.books.guards, Stage.PREFILL_ADMISSION)
        if ticket is None or refusal is not None:
            self._refuse(asked, ticket, refusal)
            return
        job = Job(asked, ticket, _after(now, asked.patience_ms), asked.presented.prompt_tokens)
        if ticket.owner.transfer != asked.transfer or asked.layout != self.layout:
            message = "the grant names another request or another model layout"
            reason = Reason.IDENTITY
            self._refuse(asked, ticket, Refusal(reason, Stage.PREFILL_ADMISSION, message))
            return
        refusal = admission.judge_prefill(self.books.report, Demand(job.stop, 0))
        if refusal is not None and self.books.on(Guard.CAPACITY):
            self._refuse(asked, ticket, refusal)
            return
        if refusal is not None:
            # What engines without this guard did: note the rejection, compute on a placeholder.
            job.outcome, job.stop = End.REJECTED, PLACEHOLDER_TOKENS
        self._admit(job)

    def _admit(self, job: Job) -> None:
        job.stage = handoff.advance(job.stage, Signal.GRANT)
        self.jobs[job.asked.transfer] = job
        self.queue.append(job.asked.transfer)
        self.books.counters["admitted"] += 1
        self.books.record(
            "request_admitted",
            job.owner,
            stage=Stage.PREFILL_ADMISSION,
            prompt_tokens=job.asked.presented.prompt_tokens,
            max_tokens=job.ticket.max_tokens,
        )

    def _refuse(
        self, asked: Granted, ticket: RequestTicket | None, refusal: Refusal | None
    ) -> None:
        refusal = refusal or Refusal(Reason.FORGED, Stage.PREFILL_ADMISSION, "no ticket")
        owner = ticket.owner if ticket else Owner.named("", asked.transfer)
        self.books.record_refusal(owner, refusal)
        self._drop(asked)
        receipt = self._receipt(asked, owner, end_for(refusal.reason), refusal)
        self._send_receipt(asked, receipt)

    # Start

    def _turn(self, now: Instant) -> None:
        self.books.drain.turn(now)
        self._settle()
        while self.queue and self._start(self.jobs[self.queue[0]], now):
            self.queue.pop(0)

    def _start(self, job: Job, now: Instant) -> bool:
        """Reserve pages and begin to compute; False while there are too few free pages."""
        pool = self.books.pool
        prefix = self._shared(job)
        needed = Demand(job.stop, 0).prompt_pages(pool.page_tokens) - len(prefix.pages)
        for entry in prefix.entries:
            entry.users += 1
        self._make_room(needed, now)
        if needed > pool.pages_free:
            self._leave(prefix.entries)
            return False
        job.prefix, job.lease = prefix, pool.reserve(job.owner, needed)
        pool.advance(job.lease, Verb.FILL, job.lease.pages)
        self._record_start(job)
        start = len(prefix.pages) * pool.page_tokens
        self.books.out.append(StartCompute(job.asked.transfer, job.table, start, job.stop))
        if start == job.stop:
            self._seal(job)
        return True

    def _shared(self, job: Job) -> Match:
        if job.outcome is not End.COMPLETED or not job.ticket.scope:
            return EMPTY
        keys = job.keys
        if not self.books.on(Guard.SCOPE):
            keys = tuple(("", key) for _, key in keys)
        return self.prefixes.match(keys)

    def _make_room(self, pages: int, now: Instant) -> None:
        """Let go of idle prefixes until `pages` are free."""
        while pages > self.books.pool.pages_coming:
            entry = self.prefixes.pop_idle()
            if entry is None:
                return
            self.books.drain.begin(entry.lease, Verb.RETIRE, now)

    def _record_start(self, job: Job) -> None:
        lease = job.lease
        if lease is None:
            return
        self.books.record(
            "pages_allocated",
            job.owner,
            lease=lease.id,
            pages=tuple(lease.pages.tolist()),
            generations=tuple(lease.generations.tolist()),
        )
        for entry in job.prefix.entries:
            pages = entry.lease.pages[np.isin(entry.lease.pages, job.prefix.pages)]
            self.books.record(
                "prefix_reused",
                job.owner,
                tokens=len(pages) * self.books.pool.page_tokens,
                pages=tuple(pages.tolist()),
                generations=tuple(self.books.pool.generation[pages].tolist()),
                creator=entry.creator.tenant,
            )

    # Compute, seal, write, report

    def _computed(self, event: Computed, now: Instant) -> None:
        job = self._release(event.transfer, Hold.COMPUTE)
        if job is not None and event.stop == job.stop:
            self._seal(job)

    def _seal(self, job: Job) -> None:
        pool, lease = self.books.pool, job.lease
        if lease is None:
            return
        used = job.stop % pool.page_tokens
        if used and self.books.on(Guard.TAIL):
            self.books.out.append(ZeroTail(int(lease.pages[-1]), used))
        pool.advance(lease, Verb.SEAL, lease.pages)
        table = job.table
        self.books.record(
            "range_computed",
            job.owner,
            start=0,
            stop=job.stop,
            pages=tuple(table.tolist()),
            generations=tuple(pool.generation[table].tolist()),
        )
        lease.hold(Hold.COMPUTE)
        self.books.out.append(Digest(job.asked.transfer, table, job.asked.seed))

    def _digested(self, event: Digested, now: Instant) -> None:
        job = self._release(event.transfer, Hold.COMPUTE)
        if job is None or job.lease is None:
            return
        job.digests = event.digests
        job.lease.hold(Hold.WRITE)
        self.books.out.append(Write(event.transfer, job.asked.window, job.table))

    def _write_ended(self, event: WriteEnded, now: Instant) -> None:
        job = self._release(event.transfer, Hold.WRITE)
        known = job or self.closing.get(event.transfer)
        if known is None:
            self.books.record_ignored(None, "write ended", "no such transfer")
            return
        status = "done" if event.done else "failed"
        self.books.record(
            "write_ended",
            known.owner,
            window=event.window,
            pages=tuple(known.table.tolist()),
            bytes_written=event.bytes_written,
            status=status,
        )
        released = Released(event.transfer, event.window, event.bytes_written)
        self.books.out.append(Send(known.asked.decode.node, released))
        if job is None:
            return
        if event.done:
            self._report(job, now)
        else:
            self._finish(job, Refusal(Reason.PEER_LOST, Stage.TRANSFER, "the write failed"), now)

    def _report(self, job: Job, now: Instant) -> None:
        job.stage = handoff.advance(job.stage, Signal.REPORT)
        job.deadline = _after(now, self.limits.verdict_ms)
        receipt = self._receipt(job.asked, job.owner, job.outcome, None, job)
        self._send_receipt(job.asked, receipt)

    def _receipt(
        self,
        asked: Granted,
        owner: Owner,
        outcome: End,
        refusal: Refusal | None,
        job: Job | None = None,
    ) -> Receipt:
        """State what was really done: with a job its range and digests, without one nothing."""
        digests = job.digests if job else ()
        return Receipt(
            transfer=asked.transfer,
            owner=owner,
            outcome=outcome,
            refusal=refusal,
            window=asked.window,
            input_digest=asked.presented.input_digest,
            layout=self.layout,
            pages=tuple(range(len(digests))),
            start=0,
            stop=job.stop if job else 0,
            generations=asked.generations,
            digests=digests,
        )

    def _send_receipt(self, asked: Granted, receipt: Receipt) -> None:
        self.books.record(
            "receipt_sent",
            receipt.owner,
            outcome=receipt.outcome,
            start=receipt.start,
            stop=receipt.stop,
        )
        self.books.out.append(Send(asked.decode.node, receipt))

    # Ends

    def _ruled(self, peer: Peer, ruling: Ruling, now: Instant) -> None:
        job = self.jobs.get(ruling.transfer)
        if job is None or job.asked.decode != peer or job.stage is not HandoffStage.REPORTED:
            self.books.record_ignored(job.owner if job else None, "ruling", "no receipt is open")
            return
        if ruling.admitted:
            job.stage = handoff.advance(job.stage, Signal.CONFIRM)
            self._share(job, now)
        self._close(job, ruling.refusal, now)

    def _share(self, job: Job, now: Instant) -> None:
        """Keep the full pages of an admitted prompt for later requests of its scope."""
        lease, pool = job.lease, self.books.pool
        keys = job.keys if self.books.on(Guard.SCOPE) else tuple(("", k) for _, k in job.keys)
        new = keys[len(job.prefix.pages) :]
        clean = job.outcome is End.COMPLETED and job.ticket.scope
        if lease is None or not clean or not new or any(map(self.prefixes.knows, new)):
            return
        if len(new) > self.limits.prefix_pages:
            return
        while self.prefixes.pages + len(new) > self.limits.prefix_pages:
            entry = self.prefixes.pop_idle()
            if entry is None:
                return
            self.books.drain.begin(entry.lease, Verb.RETIRE, now)
        pool.advance(lease, Verb.SHARE, lease.pages[: len(new)])
        shared = pool.transfer(lease, job.owner, len(new))
        self.prefixes.add(Entry(job.owner, new, shared))

    def _withdrawn(self, peer: Peer, name: TransferId, end: End, now: Instant) -> None:
        job = self.jobs.get(name)
        if job is None or job.asked.decode != peer:
            self.books.record_ignored(job.owner if job else None, "withdraw", "nothing is open")
            return
        reason = Reason.CANCELLED if end is End.CANCELLED else Reason.PEER_REJECTED
        self._close(job, Refusal(reason, Stage.DECODE, f"decode ended the request as {end}"), now)

    def _engine_failed(self, name: TransferId, message: str, now: Instant) -> None:
        job = self._release(name, Hold.COMPUTE)
        if job is not None:
            self._finish(job, Refusal(Reason.INVARIANT, Stage.PREFILL, message), now)

    def _peer_lost(self, peer: Peer, now: Instant) -> None:
        self.books.record("peer_lost", None, peer=peer.node, peer_incarnation=peer.incarnation)
        for job in list(self.jobs.values()):
            if job.asked.decode == peer:
                refusal = Refusal(Reason.PEER_LOST, Stage.TRANSFER, "the decode node was lost")
                self._close(job, refusal, now)

    def _finish(self, job: Job, refusal: Refusal, now: Instant) -> None:
        """End a job for a reason of ours, and say so instead of a receipt of success."""
        if job.stage is not HandoffStage.REPORTED:
            outcome = end_for(refusal.reason)
            self._send_receipt(job.asked, self._receipt(job.asked, job.owner, outcome, refusal))
        self._close(job, refusal, now)

    def _close(self, job: Job, refusal: Refusal | None, now: Instant) -> None:
        """Write the end; it is the first, since an ended job is no longer in the table."""
        name = job.asked.transfer
        del self.jobs[name]
        if name in self.queue:
            self.queue.remove(name)
        self.books.out.append(StopCompute(name))
        computing = job.stage is HandoffStage.GRANTED
        job.stage = handoff.advance(job.stage, Signal.CLOSE)
        lease = job.lease
        if computing and (lease is None or Hold.WRITE not in lease.holds):
            self._drop(job.asked)
        self._record_end(job, refusal)
        self.closing[name] = job
        if lease is not None:
            self.books.drain.begin(lease, verb_for(refusal), now)
        self._settle()

    def _record_end(self, job: Job, refusal: Refusal | None) -> None:
        end = end_for(refusal.reason) if refusal else job.outcome
        self.books.counters[f"ended.{end}"] += 1
        self.books.record(
            "request_ended",
            job.owner,
            end=end,
            reason=refusal.reason if refusal else "",
            computed_tokens=job.stop if job.digests else 0,
            generated_tokens=0,
        )

    def _drop(self, asked: Granted) -> None:
        """Give a window back into which nothing was written."""
        self.books.out.append(DropWindow(asked.transfer, asked.window))
        released = Released(asked.transfer, asked.window, 0)
        self.books.out.append(Send(asked.decode.node, released))

    # Holds

    def _hold(self, name: TransferId, kind: Hold) -> None:
        job = self.jobs.get(name)
        if job is not None and job.lease is not None:
            job.lease.hold(kind)

    def _release(self, name: TransferId, kind: Hold) -> Job | None:
        """Take a hold back; return the job if it is still open."""
        job = self.jobs.get(name)
        known = job or self.closing.get(name)
        if known is not None and known.lease is not None:
            known.lease.release(kind)
        return job

    def _settle(self) -> None:
        """Forget closed jobs whose last reader or writer has gone, and leave their prefixes."""
        for name, job in list(self.closing.items()):
            if job.lease is None or not job.lease.holds:
                del self.closing[name]
                self._leave(job.prefix.entries)

    def _leave(self, entries: tuple[Entry, ...]) -> None:
        for entry in entries:
            entry.users -= 1


def _after(now: Instant, wait_ms: int) -> Instant:
    return Instant(now + wait_ms * NS_PER_MS)
