"""The machine of a lender: an event goes to the step that it belongs to."""

from __future__ import annotations

from kvairlock.core.errors import Refusal
from kvairlock.core.events import (
    Asked,
    Claimed,
    ComputeBegan,
    Computed,
    Digested,
    EngineFailed,
    Event,
    GuardsChanged,
    PeerGone,
    PeerLost,
    PeerUp,
    ScrubDone,
    Told,
)
from kvairlock.core.messages import Cancel, Rehearse, Release, Resize, Ruling, Validate, Withdraw
from kvairlock.core.protocol.prefill import filling, resizing, sharing
from kvairlock.core.protocol.pull.lender import ending, intake, lending
from kvairlock.core.protocol.pull.lender.state import LenderState
from kvairlock.core.protocol.rehearsal import rehearse
from kvairlock.core.terms import Instant, TransferId


class LenderNode(LenderState):
    """The machine of one lender; see `LenderState` for its arguments."""

    def handle(self, event: Event, now: Instant) -> None:
        """Take one event; what should happen is in `books.out`."""
        match event:
            case Asked():
                intake.asked(self, event, now)
            case ComputeBegan(name):
                self.compute_began(name)
            case Computed():
                filling.computed(self, event)
            case Digested():
                lending.digested(self, event, now)
            case EngineFailed(name, message):
                ending.engine_failed(self, name, message, now)
            case ScrubDone(fenced):
                self.books.drain.scrubbed(fenced)
            case Told(peer, Rehearse() as asked):
                rehearse(self.books, peer, asked)
            case Told(_, Resize(pages)):
                for name, refusal in resizing.resized(self, pages):
                    self.fail(name, refusal, now)
            case _:
                self._handle_peer(event, now)
        self._settle(now)

    def tick(self, now: Instant) -> None:
        """End what waited too long."""
        for job in list(self.jobs.values()):
            if job.deadline <= now:
                ending.expire(self, job, now)
        self._settle(now)

    def fail(self, name: TransferId, refusal: Refusal, now: Instant) -> None:
        """End one request after an invariant broke while it was worked on."""
        if name in self.jobs:
            ending.fail(self, self.jobs[name], refusal, now)

    def _handle_peer(self, event: Event, now: Instant) -> None:
        """Take what a peer says, or what is known about it."""
        match event:
            case Claimed():
                lending.claimed(self, event, now)
            case Told(peer, Validate() as asked):
                lending.validate(self, peer, asked)
            case Told(peer, Ruling() as ruling):
                ending.ruled(self, peer, ruling)
            case Told(_, Withdraw()):
                pass  # Its release follows, and is what ends the loan.
            case Told(peer, Release() as release):
                ending.released(self, peer, release, now)
            case Told(peer, Cancel(name)):
                ending.cancelled(self, peer, name, now)
            case GuardsChanged(guards):
                self.books.set_guards(guards)
            case PeerUp(peer):
                self.books.record_peer("peer_up", peer)
            case PeerLost(peer):
                # It may still read: only its process's end or time can end a loan now.
                self.books.record_peer("peer_lost", peer)
            case PeerGone(peer):
                ending.peer_gone(self, peer, now)
            case _:
                self.books.record_ignored(None, type(event).__name__, "not for a lender")

    def _settle(self, now: Instant) -> None:
        self.books.drain.turn(now)
        self.settle()
        sharing.make_way(self, now)
        filling.pump(self, now)
