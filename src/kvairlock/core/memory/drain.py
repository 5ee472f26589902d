"""The time between a lease's end and its pages' return to the free list.

    end --> wait for every hold --> fence --> scrub --> free

Nothing here has a bound in time: no transport in use declares one, so a hold goes only by evidence.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from kvairlock.core.effects import Effect, Record, Scrub, Value
from kvairlock.core.guards import Guard, GuardSet
from kvairlock.core.memory.page import Verb
from kvairlock.core.memory.pool import Fenced, Lease, Pool
from kvairlock.core.terms import NS_PER_MS, Fence, Instant, LeaseId


@dataclass(frozen=True, slots=True)
class Waiting:
    """An ended lease whose pages are not free yet."""

    lease: Lease
    since: Instant


class Drain:
    """Brings the pages of ended leases back, in order and on evidence.

    Args:
        pool: The pool that the leases belong to.
        guards: `drain` and `scrub` may be off in drills.
        out: Where effects go.
    """

    def __init__(self, pool: Pool, guards: GuardSet, out: list[Effect]) -> None:
        self._pool, self._guards, self._out = pool, guards, out
        self.waiting: dict[LeaseId, Waiting] = {}
        self.fences: Counter[Fence] = Counter()
        """Leases that were let go, by the evidence they rest on."""
        self.window_fences: Counter[Fence] = Counter()
        """The same of windows."""

    def begin(self, lease: Lease, verb: Verb, cause: str, now: Instant) -> None:
        """End a lease and free its pages as soon as nobody can reach them.

        Args:
            lease: A live lease.
            verb: RETIRE, or QUARANTINE after a violation.
            cause: Why it ends, in one word, for the evidence.
            now: When it ended.
        """
        self._pool.end(lease, verb)
        self.waiting[lease.id] = Waiting(lease, now)
        pages = tuple(lease.pages.tolist())
        fields: dict[str, Value] = {"lease": lease.id, "pages": pages, "cause": cause}
        self._out.append(Record("drain_began", lease.owner, fields))
        self.turn(now)

    def turn(self, now: Instant) -> None:
        """Fence and scrub every ended lease that has no hold left."""
        ready = [w for w in self.waiting.values() if self._may_go(w.lease)]
        for waiting in ready:
            self._release(waiting, now)

    def scrubbed(self, fenced: Fenced) -> None:
        """Free pages that the host has zeroed."""
        self._pool.free(self._pool.scrub(fenced))

    def pages_of(self, tenant: str | None = None) -> int:
        """How many pages are draining, of one tenant or of all."""
        leases = [w.lease for w in self.waiting.values()]
        return sum(len(lease.pages) for lease in leases if tenant in (None, lease.owner.tenant))

    def _may_go(self, lease: Lease) -> bool:
        return not lease.holds or not self._guards.on(Guard.DRAIN)

    def _release(self, waiting: Waiting, now: Instant) -> None:
        lease = waiting.lease
        del self.waiting[lease.id]
        evidence = lease.fence if not lease.holds else Fence.UNPROVEN
        self.fences[evidence] += 1
        fields: dict[str, Value] = {
            "lease": lease.id,
            "pages": tuple(lease.pages.tolist()),
            "fence": evidence,
            "wait_ms": (now - waiting.since) // NS_PER_MS,
        }
        self._out.append(Record("drain_ended", lease.owner, fields))
        fenced = self._pool.fence(lease, evidence)
        if self._guards.on(Guard.SCRUB) and len(fenced.pages):
            self._out.append(Scrub(fenced))
        else:
            self.scrubbed(fenced)
