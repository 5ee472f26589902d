"""The machine of a prefill node: an event goes to the step that it belongs to."""

from __future__ import annotations

from kvairlock.core.errors import Reason, Refusal, Stage
from kvairlock.core.events import (
    ComputeBegan,
    Computed,
    Digested,
    EngineFailed,
    Event,
    Granted,
    GuardsChanged,
    PeerGone,
    PeerLost,
    PeerUp,
    ScrubDone,
    Told,
    WriteEnded,
)
from kvairlock.core.memory.pool import Hold
from kvairlock.core.messages import Rehearse, Resize, Ruling, Withdraw
from kvairlock.core.protocol.handoff import HandoffStage
from kvairlock.core.protocol.prefill import ending, filling, intake, resizing, sharing
from kvairlock.core.protocol.prefill.job import Job
from kvairlock.core.protocol.prefill.state import PrefillState
from kvairlock.core.protocol.rehearsal import rehearse
from kvairlock.core.terms import Instant, TransferId


class PrefillNode(PrefillState):
    """The machine of one prefill node; see `PrefillState` for its arguments."""

    def handle(self, event: Event, now: Instant) -> None:
        """Take one event; what should happen is in `books.out`."""
        match event:
            case Granted():
                intake.granted(self, event, now)
            case ComputeBegan(name):
                self.compute_began(name)
            case Computed():
                filling.computed(self, event)
            case Digested():
                filling.digested(self, event)
            case WriteEnded():
                filling.write_ended(self, event, now)
            case ScrubDone(fenced):
                self.books.drain.scrubbed(fenced)
            case Told(peer, Rehearse() as asked):
                rehearse(self.books, peer, asked)
            case Told(_, Resize(pages)):
                for name, refusal in resizing.resized(self, pages):
                    self.fail(name, refusal, now)
            case _:
                self._handle_end(event, now)
        self._settle(now)

    def tick(self, now: Instant) -> None:
        """End what waited too long."""
        for job in list(self.jobs.values()):
            if job.deadline <= now:
                ending.fail(self, job, _overdue(job), now)
        self._settle(now)

    def fail(self, name: TransferId, refusal: Refusal, now: Instant) -> None:
        """End one request after an invariant broke while it was worked on."""
        if name in self.jobs:
            ending.fail(self, self.jobs[name], refusal, now)

    def _handle_end(self, event: Event, now: Instant) -> None:
        """Take an event that ends a prompt, or that is about a peer."""
        match event:
            case Told(peer, Withdraw(name, end)):
                ending.withdrawn(self, peer, name, end, now)
            case Told(peer, Ruling() as ruling):
                ending.ruled(self, peer, ruling, now)
            case EngineFailed(name, message):
                self._engine_failed(name, message, now)
            case GuardsChanged(guards):
                self.books.set_guards(guards)
            case PeerUp(peer):
                self.books.record_peer("peer_up", peer)
            case PeerLost(peer):
                ending.peer_lost(self, peer, now)
            case PeerGone():
                pass  # Windows are the receiver's: nothing of a gone process can reach our pages.
            case _:
                self.books.record_ignored(None, type(event).__name__, "not for a prefill node")

    def _engine_failed(self, name: TransferId, message: str, now: Instant) -> None:
        job = self.let_go(name, Hold.COMPUTE)
        if job is not None:
            ending.fail(self, job, Refusal(Reason.ENGINE, Stage.PREFILL, message), now)

    def _settle(self, now: Instant) -> None:
        self.books.drain.turn(now)
        self.settle()
        sharing.make_way(self, now)
        filling.pump(self, now)


def _overdue(job: Job) -> Refusal:
    waits = "the ruling" if job.stage is HandoffStage.REPORTED else "its turn"
    return Refusal(Reason.TIMEOUT, Stage.PREFILL, f"waited too long for {waits}")
