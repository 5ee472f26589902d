"""What a prefill node keeps, and what all its steps share."""

from __future__ import annotations

from kvairlock.core.effects import Effect, StopCompute
from kvairlock.core.guards import Guard, GuardSet
from kvairlock.core.memory.pool import Hold
from kvairlock.core.memory.prefixes import Entry, Prefixes
from kvairlock.core.promise.capacity import CapacityReport
from kvairlock.core.protocol.claims import Claims
from kvairlock.core.protocol.handoff import HandoffStage
from kvairlock.core.protocol.ledger import Ledger
from kvairlock.core.protocol.prefill.job import Job, PrefillLimits
from kvairlock.core.terms import Instant, TransferId


class PrefillState:
    """The books of one prefill node and everything that is under way on it.

    Args:
        report: What the node measured.
        guards: How all guards are set.
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
        self.claims = Claims()

    def on(self, guard: Guard) -> bool:
        """Whether a guard that acts is to do so."""
        return self.books.on(guard)

    def emit(self, effect: Effect) -> None:
        """Add an effect to those of this turn."""
        self.books.out.append(effect)

    def deadline(self) -> Instant | None:
        """Return when `tick` is due, if anything waits."""
        return min((job.deadline for job in self.jobs.values()), default=None)

    def known(self, name: TransferId) -> Job | None:
        """Return a job that is open, or closed with somebody still at its pages."""
        return self.jobs.get(name) or self.closing.get(name)

    def uses_window(self, job: Job) -> bool:
        """Whether a job's window is still to be written into, or is being written."""
        waits = job.name in self.jobs and job.stage is HandoffStage.GRANTED
        return waits or job.is_writing

    def hold(self, name: TransferId, kind: Hold) -> None:
        """Keep a job's pages while the host works on them."""
        job = self.known(name)
        if job is not None:
            job.own.hold(kind)

    def let_go(self, name: TransferId, kind: Hold) -> Job | None:
        """The host has ended its work on a job's pages; return the job if it is still open."""
        known = self.known(name)
        if known is not None:
            known.own.release(kind)
        return self.jobs.get(name)

    def compute_began(self, name: TransferId) -> None:
        """The engine begins a chunk: its pages stay, and if nobody wants it any more it stops."""
        self.hold(name, Hold.COMPUTE)
        if name not in self.jobs:
            self.emit(StopCompute(name))

    def settle(self) -> None:
        """Forget closed jobs whose last reader or writer has gone, and leave their prefixes."""
        for name, job in list(self.closing.items()):
            if job.lease is None or not job.lease.holds:
                del self.closing[name]
                leave(job.prefix.entries)


def leave(entries: tuple[Entry, ...]) -> None:
    """Let go of prefix entries."""
    for entry in entries:
        entry.users -= 1
