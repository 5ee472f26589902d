"""The deployment gate: what is promised against what the nodes report, whenever that changes.

    start, scale-out, upgrade, resize, loss ---> reports changed? --no--> nothing
                                                     | yes
                                                     v
                        judged: violations, what may be published ---> evidence, log, /status

The gate does not stand in the way of requests: `Routes` asks the same pure functions for each of
them, so nothing is ever admitted by an outdated judgement. What it adds is memory: every change of
the outcome is recorded, with figures, before anybody has to ask.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import anyio
import structlog

from kvairlock.core.promise.commitment import Commitment, RouteReports
from kvairlock.core.promise.violations import Violation, judge
from kvairlock.gateway.routes import Routes
from kvairlock.runtime.recording import Sink, Value

log = structlog.get_logger("kvairlock.gateway")


class Outcome(StrEnum):
    """What comes of comparing a commitment with reports."""

    KEPT = "kept"
    VIOLATED = "violated"


@dataclass(frozen=True, slots=True)
class Judged:
    """One judgement.

    Args:
        violations: Where the commitment is not kept.
        published_tokens: The context window that is advertised, in tokens.
        published_output_tokens: The `max_tokens` that is advertised; 0 if none is.
    """

    violations: tuple[Violation, ...]
    published_tokens: int
    published_output_tokens: int

    @property
    def outcome(self) -> Outcome:
        """Whether the commitment is kept."""
        return Outcome.VIOLATED if self.violations else Outcome.KEPT


class Gate:
    """Judges whenever a report changes, and remembers the outcome.

    Args:
        routes: What is promised, and what the nodes report.
        evidence: Records each outcome that differs from the one before.
    """

    def __init__(self, routes: Routes, evidence: Sink) -> None:
        self._routes = routes
        self._evidence = evidence
        self._seen: tuple[RouteReports, ...] | None = None
        self._judged: Judged | None = None

    def look(self) -> Judged:
        """Return the judgement over what is reported now."""
        reports = self._routes.reports()
        if self._judged is None or reports != self._seen:
            self._seen = reports
            self._judged = self._noted(self._judge(reports))
        return self._judged

    async def watch(self, look_ms: int) -> None:
        """Look again and again, until cancelled.

        Args:
            look_ms: Time between two looks. A report that has gone stale changes nothing but
                the time, so nobody would tell.
        """
        while True:
            self.look()
            await anyio.sleep(look_ms / 1000)

    def _judge(self, reports: tuple[RouteReports, ...]) -> Judged:
        violations = judge(self._routes.commitment, reports)
        return Judged(violations, self._routes.promise(), self._routes.promised_output())

    def _noted(self, judged: Judged) -> Judged:
        """Record and log what is new in a judgement."""
        before = self._judged
        if judged != before:
            fields = _record(self._routes.commitment, judged)
            self._evidence.record("commitment_checked", None, fields)
        for violation in judged.violations:
            if before is None or violation not in before.violations:
                log.warning("commitment violated", kind=violation.kind, why=violation.message)
        return judged


def _record(commitment: Commitment, judged: Judged) -> dict[str, Value]:
    return {
        "outcome": judged.outcome,
        "violations": tuple(f"{v.kind}: {v.message}" for v in judged.violations),
        "promised_tokens": commitment.context_tokens,
        "published_tokens": judged.published_tokens,
        "published_output_tokens": judged.published_output_tokens,
    }
