"""The machine of a decode node: an event goes to the step that it belongs to."""

from __future__ import annotations

from kvairlock.core.effects import StopCompute
from kvairlock.core.errors import Reason, Refusal, Stage
from kvairlock.core.events import (
    ComputeBegan,
    Computed,
    DecodeFinished,
    EngineFailed,
    Event,
    GuardsChanged,
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
from kvairlock.core.memory.pool import Hold
from kvairlock.core.messages import Cancel, Receipt, Rehearse, Released, Resize
from kvairlock.core.protocol.decode import (
    ending,
    grants,
    intake,
    reading,
    resizing,
    verdicts,
)
from kvairlock.core.protocol.decode.state import DecodeState
from kvairlock.core.protocol.handoff import HandoffStage
from kvairlock.core.protocol.rehearsal import rehearse
from kvairlock.core.terms import Instant, Peer, Role, TransferId


class DecodeNode(DecodeState):
    """The machine of one decode node; see `DecodeState` for its arguments."""

    def handle(self, event: Event, now: Instant) -> None:
        """Take one event; what should happen is in `books.out`."""
        match event:
            case Submitted():
                intake.submitted(self, event, now)
            case Told(peer, Receipt() as receipt):
                verdicts.receipt_came(self, peer, receipt, now)
            case Landed():
                verdicts.landed(self, event, now)
            case ComputeBegan(name):
                self._compute_began(name)
            case Computed():
                verdicts.computed(self, event, now)
            case StepBegan():
                reading.step_began(self, event, now)
            case StepEnded():
                reading.step_ended(self, event)
            case ScrubDone(fenced):
                self.books.drain.scrubbed(fenced)
            case Told(peer, Rehearse() as asked):
                rehearse(self.books, peer, asked)
            case Told(_, Resize(pages)):
                resizing.resized(self, pages, now)
            case _:
                self._handle_end(event, now)
        self._settle(now)

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
                ending.expire(self, reception, now)
            elif reception.reland_at is not None and reception.reland_at <= now:
                verdicts.land(self, reception)
        self.windows.probe(now)
        self._settle(now)

    def fail(self, name: TransferId, refusal: Refusal, now: Instant) -> None:
        """End one request after an invariant broke while it was worked on."""
        if name in self.receptions:
            ending.finish(self, self.receptions[name], refusal, now)

    def _handle_end(self, event: Event, now: Instant) -> None:
        """Take an event that ends a request, or that is about a peer or a window."""
        match event:
            case DecodeFinished(name):
                ending.completed(self, name, now)
            case EngineFailed(name, message):
                self.let_go(name, Hold.FILL)
                refusal = Refusal(Reason.ENGINE, Stage.DECODE, message)
                ending.finish_named(self, name, refusal, now)
            case Told(peer, Cancel(name)):
                ending.cancelled(self, peer, name, now)
            case Told(peer, Released() as released):
                self._released(peer, released, now)
            case WindowFailed(name, message):
                ending.window_failed(self, name, message, now)
            case WindowFenced(window, fence):
                self.windows.fence(window, fence, now)
            case GuardsChanged(guards):
                self.books.set_guards(guards)
            case PeerUp(peer):
                self._peer_up(peer)
            case PeerLost(peer):
                ending.peer_lost(self, peer, now)
            case PeerGone(peer):
                ending.abandon(self, peer, now)
                self.windows.gone(peer, now)
            case _:
                self.books.record_ignored(None, type(event).__name__, "not for a decode node")

    def _compute_began(self, name: TransferId) -> None:
        reception = self.receptions.get(name)
        if reception is not None and reception.stage is HandoffStage.RECOVERING:
            self.hold(name, reception.granted.lease, Hold.FILL)
        else:
            self.emit(StopCompute(name))

    def _released(self, peer: Peer, released: Released, now: Instant) -> None:
        if not self.windows.released(released.window, peer, released.bytes_written, now):
            self.books.record_ignored(None, "released", "no such window of this writer")

    def _peer_up(self, peer: Peer) -> None:
        if peer.role is Role.PREFILL:
            self.peers[peer.node] = peer
        self.books.record_peer("peer_up", peer)

    def _settle(self, now: Instant) -> None:
        self.books.drain.turn(now)
        grants.pump(self, now)
