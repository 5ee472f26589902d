"""Decode's side: reserve, grant a window, judge what comes, read only what was confirmed.

    Submitted -> OFFERED (queue) -> GRANTED -> receipt -> REPORTED -> landed -> CONFIRMED -> CLOSED

Any end closes: the first wins and is written once. The lease then waits in the drain for its
holds, and the window, which is the writer's as well, for evidence that nobody can write into it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from kvairlock.core import admission, handoff
from kvairlock.core.capacity import CapacityReport, Demand
from kvairlock.core.claims import Claims
from kvairlock.core.effects import (
    CopyPages,
    Land,
    OpenWindow,
    Send,
    StartDecode,
    StopDecode,
    ZeroTail,
)
from kvairlock.core.ends import ENDS, End, end_for
from kvairlock.core.errors import Reason, Refusal, Stage
from kvairlock.core.events import (
    DecodeFinished,
    EngineFailed,
    Event,
    Landed,
    PeerGone,
    PeerLost,
    PeerUp,
    ScrubDone,
    StepBegan,
    StepEnded,
    Submitted,
    Told,
    WindowFailed,
    WindowFenced,
)
from kvairlock.core.guards import Guard, GuardSet
from kvairlock.core.handoff import Expectation, HandoffStage, Signal, Verdict
from kvairlock.core.ledger import Ledger, judge_ticket, verb_for
from kvairlock.core.messages import (
    Cancel,
    Ended,
    Receipt,
    Released,
    RequestTicket,
    Ruling,
    Withdraw,
)
from kvairlock.core.page import PageStage, Verb
from kvairlock.core.pool import Hold, Lease
from kvairlock.core.reception import DecodeLimits, Reception, choice_tables, refusal_for_wait
from kvairlock.core.terms import (
    NS_PER_MS,
    Claimant,
    Fence,
    Instant,
    LandingPolicy,
    NodeName,
    Owner,
    Pages,
    PageSpan,
    Peer,
    TransferId,
)
from kvairlock.core.windows import Window, Windows

RELAND_NS = 10 * NS_PER_MS
READ_STAGES = frozenset({PageStage.READABLE, PageStage.FILLING})


class DecodeNode:
    """The machine of one decode node.

    Args:
        report: What the node measured; `landing_pages` in it is what one request may land.
        guards: Which guards enforce.
        limits: Deadlines and caps.
        policy: How remote writes become pages.
        layout: Digest of the node's page layout.
    """

    def __init__(
        self,
        report: CapacityReport,
        guards: GuardSet,
        limits: DecodeLimits,
        policy: LandingPolicy,
        layout: str,
    ) -> None:
        self.books = Ledger(report, guards)
        self.limits, self.policy, self.layout = limits, policy, layout
        self.receptions: dict[TransferId, Reception] = {}
        self.closing: dict[TransferId, Lease] = {}
        self.queue: list[TransferId] = []
        self.windows = Windows(self.books.out, self.books.drain.fences)
        self.claims = Claims()
        self.peers: dict[NodeName, Peer] = {}

    # What the host tells

    def handle(self, event: Event, now: Instant) -> None:
        """Take one event; what should happen is in `books.out`."""
        match event:
            case Submitted():
                self._submitted(event, now)
            case Told(peer, Receipt() as receipt):
                self._receipt(peer, receipt, now)
            case Told(peer, Released() as released):
                self._released(peer, released, now)
            case Told(message=Cancel(name)):
                self._cancelled(name, now)
            case Landed():
                self._landed(event, now)
            case StepBegan():
                self._step_began(event, now)
            case StepEnded():
                self._step_ended(event, now)
            case DecodeFinished():
                self._finish_named(event.transfer, None, now)
            case EngineFailed():
                refusal = Refusal(Reason.INVARIANT, Stage.DECODE, event.message)
                self._finish_named(event.transfer, refusal, now)
            case WindowFailed():
                refusal = Refusal(Reason.CAPACITY, Stage.TRANSFER, event.message)
                self._window_failed(event.transfer, refusal, now)
            case WindowFenced():
                self.windows.fence(event.window, event.fence, now)
            case PeerUp():
                self._peer_up(event.peer)
            case PeerLost():
                self._peer_lost(event.peer, now)
            case PeerGone():
                self.windows.gone(event.peer, now)
            case ScrubDone():
                self.books.drain.scrubbed(event.fenced)
            case _:
                self.books.record_ignored(None, type(event).__name__, "not for a decode node")
        self.books.drain.turn(now)
        self._pump(now)

    def deadline(self) -> Instant | None:
        """Return when `tick` is due, if anything waits."""
        times = [r.deadline for r in self.receptions.values()]
        times += [r.reland_at for r in self.receptions.values() if r.reland_at is not None]
        times += self.windows.deadline()
        return min(times, default=None)

    def tick(self, now: Instant) -> None:
        """End what waited too long; look for evidence on windows that nobody wants any more."""
        for reception in list(self.receptions.values()):
            if reception.deadline <= now:
                self._expired(reception, now)
            elif reception.reland_at is not None and reception.reland_at <= now:
                self._land(reception)
        self.windows.probe(now)
        self.books.drain.turn(now)
        self._pump(now)

    def fail(self, name: TransferId, refusal: Refusal, now: Instant) -> None:
        """End one request after an invariant broke while it was worked on."""
        reception = self.receptions.get(name)
        if reception is not None:
            self._finish(reception, End.FAILED, refusal, now)

    # Admission

    def _submitted(self, asked: Submitted, now: Instant) -> None:
        ticket, refusal = judge_ticket(asked.presented, self.books.guards, Stage.DECODE_ADMISSION)
        if ticket is None:
            self._refuse(asked, refusal or _no_ticket())
            return
        claim = self.claims.claimant(ticket.owner.transfer)
        if refusal is None and claim == asked.claimant:
            self.books.record_ignored(ticket.owner, "submit", "repeated by the same claimant")
            return
        refusal = refusal or self._judge(ticket, claim, asked, now)
        if refusal is not None:
            self._refuse(asked, refusal)
        elif claim is not None and ticket.owner.transfer in self.receptions:
            self._attach(ticket, asked, now)
        else:
            self._admit(ticket, asked, now)

    def _judge(
        self, ticket: RequestTicket, claim: Claimant | None, asked: Submitted, now: Instant
    ) -> Refusal | None:
        stage = Stage.DECODE_ADMISSION
        if claim is not None and self.books.on(Guard.CLAIMANT):
            return Refusal(Reason.REPLAYED, stage, "the ticket was used by somebody else before")
        if asked.prefill not in self.peers:
            return Refusal(Reason.PEER_LOST, stage, f"no link to {asked.prefill}")
        demand = Demand(asked.presented.prompt_tokens, asked.max_tokens, asked.choices)
        if self.books.on(Guard.CAPACITY):
            refusal = admission.judge_decode(self.books.report, demand)
            if refusal is not None:
                return refusal
        if self.books.on(Guard.SHARE):
            pages = demand.prompt_pages(self.books.report.page_tokens)
            pinned = self._pages_draining(ticket.owner.tenant)
            limit = self.books.report.landing_pages
            refusal = admission.judge_share(pinned, pages, limit)
            if refusal is not None:
                return refusal
        if len(self.queue) >= self.limits.queue_max:
            message = f"{len(self.queue)} requests wait for pages already"
            return Refusal(
                Reason.CAPACITY, stage, message, len(self.queue), self.limits.queue_max, "queue_max"
            )
        return None

    def _admit(self, ticket: RequestTicket, asked: Submitted, now: Instant) -> None:
        name = ticket.owner.transfer
        demand = Demand(asked.presented.prompt_tokens, asked.max_tokens, asked.choices)
        deadline = _after(now, self.limits.queue_ms)
        self.receptions[name] = Reception(name, ticket, asked, demand, deadline)
        self._remember(ticket, asked, now)
        self.queue.append(name)
        self.books.counters["admitted"] += 1
        self.books.record(
            "request_admitted",
            ticket.owner,
            stage=Stage.DECODE_ADMISSION,
            prompt_tokens=demand.prompt_tokens,
            max_tokens=demand.max_tokens,
        )

    def _attach(self, ticket: RequestTicket, asked: Submitted, now: Instant) -> None:
        """Without the `claimant` guard: whoever presents a ticket reads what it names."""
        original = self.receptions[ticket.owner.transfer]
        if original.stage is not HandoffStage.CONFIRMED:
            self._refuse(asked, _no_ticket())
            return
        presenter = Owner.named(asked.presented.tenant, asked.transfer)
        named = replace(ticket, owner=presenter)
        deadline = _after(now, self.limits.decode_ms)
        stage = HandoffStage.CONFIRMED
        guest = Reception(asked.transfer, named, asked, original.demand, deadline, stage)
        guest.tables = original.tables[:1]
        guest.computed_tokens = original.computed_tokens
        self.receptions[guest.name] = guest
        pages, generations = _lists(self.books.pool.span(guest.tables[0]))
        self.books.record("read_started", presenter, pages=pages, generations=generations)
        self.books.out.append(StartDecode(guest.name, guest.tables, original.name))

    def _remember(self, ticket: RequestTicket, asked: Submitted, now: Instant) -> None:
        left_s = max(ticket.expires_unix_s - asked.presented.now_unix_s, 0) + 1
        until = _after(now, left_s * 1000)
        self.claims.remember(ticket.owner.transfer, asked.claimant, until, now)

    def _refuse(self, asked: Submitted, refusal: Refusal) -> None:
        # In the name of who presented the ticket: whose it is has nothing to do with it.
        presenter = Owner.named(asked.presented.tenant, asked.transfer)
        self.books.record_refusal(presenter, refusal)
        ended = Ended(asked.transfer, end_for(refusal.reason), refusal, 0, 0)
        self.books.out.append(Send(asked.gateway.node, ended))

    # Grant

    def _pump(self, now: Instant) -> None:
        for name in self.queue.copy():
            reception = self.receptions[name]
            if not self._fits(reception):
                return
            if self._within_share(reception):
                self.queue.remove(name)
                self._grant(reception, now)

    def _fits(self, reception: Reception) -> bool:
        size = self.books.report.page_tokens
        room = self.limits.landing_pages - self.windows.pages()
        enough = reception.demand.decode_pages(size) <= self.books.pool.pages_free
        return enough and reception.demand.prompt_pages(size) <= room

    def _within_share(self, reception: Reception) -> bool:
        if not self.books.on(Guard.SHARE):
            return True
        landing = self.windows.pages(reception.owner.tenant)
        pages = reception.demand.prompt_pages(self.books.report.page_tokens)
        return landing + pages <= self.books.report.landing_pages

    def _grant(self, reception: Reception, now: Instant) -> None:
        writer = self.peers.get(reception.asked.prefill)
        if writer is None:
            refusal = Refusal(Reason.PEER_LOST, Stage.TRANSFER, "the prefill node was lost")
            self._finish(reception, End.FAILED, refusal, now)
            return
        pool, demand = self.books.pool, reception.demand
        lease = pool.reserve(reception.owner, demand.decode_pages(pool.page_tokens))
        prompt = lease.pages[: demand.prompt_pages(pool.page_tokens)]
        window = Window(reception.asked.window, reception.owner, writer, len(prompt), lease)
        if self.policy is LandingPolicy.DIRECT:
            pool.advance(lease, Verb.GRANT, prompt)
            lease.hold(Hold.WINDOW)
        reception.lease, reception.window = lease, window
        reception.stage = handoff.advance(reception.stage, Signal.GRANT)
        reception.deadline = _after(now, self.limits.prefill_ms)
        reception.want = self._expect(reception, prompt)
        self.windows.add(window)
        self._tell_grant(reception, window, prompt)

    def _expect(self, reception: Reception, prompt: Pages) -> Expectation:
        generations = tuple(self.books.pool.generation[prompt].tolist())
        return Expectation(
            owner=reception.owner,
            window=reception.asked.window,
            input_digest=reception.asked.presented.input_digest,
            layout=self.layout,
            prompt_tokens=reception.demand.prompt_tokens,
            pages=len(prompt),
            generations=generations,
        )

    def _tell_grant(self, reception: Reception, window: Window, prompt: Pages) -> None:
        lease, want = reception.lease, reception.want
        if lease is None or want is None:
            return
        self.books.record(
            "pages_allocated",
            reception.owner,
            lease=lease.id,
            pages=tuple(lease.pages.tolist()),
            generations=tuple(lease.generations.tolist()),
        )
        self.books.record(
            "window_granted",
            reception.owner,
            window=window.id,
            peer=window.writer.node,
            pages=tuple(prompt.tolist()),
        )
        self.books.out.append(
            OpenWindow(
                window.id,
                reception.name,
                window.writer.node,
                prompt,
                want.generations,
                reception.asked.seed,
                self.limits.prefill_ms,
            )
        )

    # Receipt, landing, verdict

    def _receipt(self, peer: Peer, receipt: Receipt, now: Instant) -> None:
        reception = self.receptions.get(receipt.transfer)
        if reception is None or reception.stage is not HandoffStage.GRANTED:
            owner = reception.owner if reception else None
            self.books.record_ignored(owner, "receipt", "no expectation is open for it")
            return
        window = reception.window
        if self.books.on(Guard.IDENTITY) and (window is None or window.writer != peer):
            self.books.record_ignored(reception.owner, "receipt", "from another than was granted")
            return
        if reception.want is None or window is None:
            return
        reception.receipt = receipt
        reception.computed_tokens = receipt.stop - receipt.start
        verdict = handoff.judge_statement(reception.want, receipt, self.books.guards)
        reception.verdict = verdict
        if verdict.refusal is None and self._can_be_written(reception):
            message = "the writer has not released the window"
            refusal = Refusal(Reason.MISSING_EVIDENCE, Stage.VERDICT, message)
            verdict = Verdict(refusal, verdict.checks)
        if verdict.refusal is not None:
            self._reject(reception, verdict, now)
            return
        reception.stage = handoff.advance(reception.stage, Signal.REPORT)
        reception.deadline = _after(now, self.limits.landing_ms)
        self._land(reception)

    def _can_be_written(self, reception: Reception) -> bool:
        """Whether a remote process may still store into the very pages that would be read."""
        holds = reception.lease.holds if reception.lease else {}
        return Hold.WINDOW in holds and self.books.on(Guard.DRAIN)

    def _land(self, reception: Reception) -> None:
        lease, window = reception.lease, reception.window
        if lease is None or window is None:
            return
        reception.reland_at = None
        lease.hold(Hold.LANDING)
        self.closing[reception.name] = lease
        pages = lease.pages[: window.pages]
        self.books.out.append(Land(reception.name, window.id, pages, reception.asked.seed))

    def _landed(self, event: Landed, now: Instant) -> None:
        lease = self.closing.pop(event.transfer, None)
        if lease is not None:
            lease.release(Hold.LANDING)
        reception = self.receptions.get(event.transfer)
        if reception is None or reception.stage is not HandoffStage.REPORTED:
            return
        if event.digests is None:
            reception.reland_at = Instant(now + RELAND_NS)
            return
        stated = reception.receipt.digests if reception.receipt else ()
        verdict = handoff.judge_bytes(stated, event.digests, self.books.guards)
        verdict = reception.covers(verdict)
        if verdict.refusal is not None:
            self._reject(reception, verdict, now)
        else:
            self._confirm(reception, verdict, now)

    def _reject(self, reception: Reception, verdict: Verdict, now: Instant) -> None:
        refusal = verdict.refusal or _no_ticket()
        self._record_verdict(reception, refusal.reason, verdict)
        self._finish(reception, end_for(refusal.reason), refusal, now)

    def _confirm(self, reception: Reception, verdict: Verdict, now: Instant) -> None:
        lease, window = reception.lease, reception.window
        if lease is None or window is None:
            return
        pool, prompt = self.books.pool, lease.pages[: window.pages]
        pool.advance(lease, Verb.ADMIT, prompt)
        pool.advance(lease, Verb.FILL, lease.pages[window.pages :])
        self._zero_tail(reception, prompt)
        self._share_prompt(reception, lease)
        reception.span = pool.span(lease.pages)
        reception.stage = handoff.advance(reception.stage, Signal.CONFIRM)
        reception.deadline = _after(now, self.limits.decode_ms)
        self._record_verdict(reception, "admitted", verdict)
        self.books.out.append(Send(window.writer.node, Ruling(reception.name, True, None)))
        self.windows.unwant(window, now)
        pages, generations = _lists(reception.span)
        self.books.record("read_started", reception.owner, pages=pages, generations=generations)
        self.books.out.append(StartDecode(reception.name, reception.tables, reception.name))

    def _zero_tail(self, reception: Reception, prompt: Pages) -> None:
        used = reception.demand.prompt_tokens % self.books.pool.page_tokens
        if used and self.books.on(Guard.TAIL):
            self.books.out.append(ZeroTail(int(prompt[-1]), used))

    def _share_prompt(self, reception: Reception, lease: Lease) -> None:
        size, demand = self.books.pool.page_tokens, reception.demand
        reception.tables = choice_tables(lease.pages, demand, size)
        shared, prompt = demand.shared_pages(size), demand.prompt_pages(size)
        for table in reception.tables[1:]:
            self.books.out.append(CopyPages(lease.pages[shared:prompt], table[shared:prompt]))

    def _record_verdict(self, reception: Reception, outcome: str, verdict: Verdict) -> None:
        receipt, want, lease = reception.receipt, reception.want, reception.lease
        if receipt is None or want is None or lease is None:
            return
        pages = lease.pages[: want.pages]
        self.books.counters[f"verdict.{outcome}"] += 1
        self.books.record(
            "verdict",
            reception.owner,
            outcome=outcome,
            checks=tuple(str(check) for check in verdict.checks),
            start=receipt.start,
            stop=receipt.stop,
            expected_tokens=want.prompt_tokens,
            pages=tuple(pages.tolist()),
            generations=want.generations,
        )

    # Reading

    def _step_began(self, event: StepBegan, now: Instant) -> None:
        for name in event.transfers:
            reception = self.receptions.get(name)
            if self.books.on(Guard.MAPPING) and not self._mapped(reception):
                self._unmapped(name, reception, now)
            elif reception is not None and reception.lease is not None:
                reception.lease.hold(Hold.COMPUTE)
                self.closing[name] = reception.lease

    def _mapped(self, reception: Reception | None) -> bool:
        if reception is None or reception.span is None:
            return False
        span, lease = reception.span, reception.lease
        owned = lease is not None and bool(np.all(self.books.pool.lease[span.pages] == lease.id))
        return owned and not len(self.books.pool.stale(span, READ_STAGES))

    def _unmapped(self, name: TransferId, reception: Reception | None, now: Instant) -> None:
        self.books.out.append(StopDecode(name))
        if reception is None:
            self.books.record("mapping_refused", Owner.named("", name), pages=())
            return
        stale: Pages = np.array([], dtype=np.int32)
        if reception.span is not None:
            stale = self.books.pool.stale(reception.span, READ_STAGES)
        self.books.record("mapping_refused", reception.owner, pages=tuple(stale.tolist()))
        message = "the page table names pages that are not this request's"
        refusal = Refusal(Reason.GENERATION, Stage.DECODE, message)
        self._finish(reception, End.FAILED, refusal, now)

    def _step_ended(self, event: StepEnded, now: Instant) -> None:
        for name, tokens in zip(event.transfers, event.tokens, strict=True):
            lease = self.closing.pop(name, None)
            if lease is not None:
                lease.release(Hold.COMPUTE)
            reception = self.receptions.get(name)
            if reception is not None:
                reception.generated_tokens += tokens

    # Ends

    def _cancelled(self, name: TransferId, now: Instant) -> None:
        refusal = Refusal(Reason.CANCELLED, Stage.GATEWAY, "the client left")
        self._finish_named(name, refusal, now)

    def _finish_named(self, name: TransferId, refusal: Refusal | None, now: Instant) -> None:
        reception = self.receptions.get(name)
        end = end_for(refusal.reason) if refusal else End.COMPLETED
        if reception is None:
            self.books.record_late(Owner.named("", name), end)
            return
        self._finish(reception, end, refusal, now)

    def _expired(self, reception: Reception, now: Instant) -> None:
        refusal = refusal_for_wait(reception, self.limits, self._pages_draining())
        self._finish(reception, end_for(refusal.reason), refusal, now)

    def _finish(
        self, reception: Reception, end: End, refusal: Refusal | None, now: Instant
    ) -> None:
        """Write the end; it is the first, since an ended reception is no longer in the table."""
        del self.receptions[reception.name]
        if reception.name in self.queue:
            self.queue.remove(reception.name)
        if reception.stage is HandoffStage.CONFIRMED:
            self._stop_reading(reception)
        elif reception.window is not None and ENDS[end].tells_peer:
            told = self._last_word(reception, end, refusal)
            self.books.out.append(Send(reception.window.writer.node, told))
        reception.stage = handoff.advance(reception.stage, Signal.CLOSE)
        if reception.window is not None and reception.window.wanted:
            self.windows.unwant(reception.window, now)
        self._tell_end(reception, end, refusal)
        if reception.lease is not None:
            self.books.drain.begin(reception.lease, verb_for(refusal), now)

    def _last_word(
        self, reception: Reception, end: End, refusal: Refusal | None
    ) -> Ruling | Withdraw:
        """What prefill is told of an end before the pages were read: it answers its receipt."""
        if reception.receipt is not None:
            return Ruling(reception.name, False, refusal)
        return Withdraw(reception.name, end)

    def _stop_reading(self, reception: Reception) -> None:
        self.books.out.append(StopDecode(reception.name))
        if reception.span is not None:
            pages, generations = _lists(reception.span)
            self.books.record("read_ended", reception.owner, pages=pages, generations=generations)

    def _tell_end(self, reception: Reception, end: End, refusal: Refusal | None) -> None:
        if refusal is not None:
            self.books.record_refusal(reception.owner, refusal)
        self.books.counters[f"ended.{end}"] += 1
        generated, computed = reception.generated_tokens, reception.computed_tokens
        self.books.record(
            "request_ended",
            reception.owner,
            end=end,
            reason=refusal.reason if refusal else "",
            computed_tokens=computed,
            generated_tokens=generated,
        )
        ended = Ended(reception.asked.transfer, end, refusal, computed, generated)
        self.books.out.append(Send(reception.asked.gateway.node, ended))

    # Windows and peers

    def _released(self, peer: Peer, message: Released, now: Instant) -> None:
        if not self.windows.released(message.window, peer, message.bytes_written, now):
            self.books.record_ignored(None, "released", "no such window of this writer")

    def _window_failed(self, name: TransferId, refusal: Refusal, now: Instant) -> None:
        reception = self.receptions.get(name)
        if reception is None or reception.window is None:
            return
        # It was never granted, so nobody can write into it.
        self._finish(reception, end_for(refusal.reason), refusal, now)
        self.windows.fence(reception.asked.window, Fence.LOCAL, now)

    def _peer_up(self, peer: Peer) -> None:
        self.peers[peer.node] = peer
        self.books.record("peer_up", None, peer=peer.node, peer_incarnation=peer.incarnation)

    def _peer_lost(self, peer: Peer, now: Instant) -> None:
        if self.peers.get(peer.node) == peer:
            del self.peers[peer.node]
        self.books.record("peer_lost", None, peer=peer.node, peer_incarnation=peer.incarnation)
        for reception in list(self.receptions.values()):
            if reception.asked.gateway == peer:
                refusal = Refusal(Reason.CANCELLED, Stage.GATEWAY, "the gateway left")
                self._finish(reception, End.CANCELLED, refusal, now)
            elif self._waits_for(reception, peer):
                message = f"{peer.node} was lost before it confirmed the transfer"
                refusal = Refusal(Reason.PEER_LOST, Stage.TRANSFER, message)
                self._finish(reception, End.FAILED, refusal, now)

    def _waits_for(self, reception: Reception, peer: Peer) -> bool:
        window = reception.window
        granted = reception.stage is HandoffStage.GRANTED
        return granted and window is not None and window.writer == peer

    def _pages_draining(self, tenant: str | None = None) -> int:
        """Pages of windows whose request has ended and of leases in the drain, of one or all."""
        return self.windows.pages_draining(tenant) + self.books.drain.pages_of(tenant)


def _after(now: Instant, wait_ms: int) -> Instant:
    return Instant(now + wait_ms * NS_PER_MS)


def _no_ticket() -> Refusal:
    return Refusal(Reason.FORGED, Stage.DECODE_ADMISSION, "there is no ticket that names a request")


def _lists(span: PageSpan) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return tuple(span.pages.tolist()), tuple(span.generations.tolist())
