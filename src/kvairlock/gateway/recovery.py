"""What has to be shown before a route takes requests again: three records, looked for one by one.

    corrected    the commitment over what the nodes report; what was sent since the breaker opened
    refuses      the boundary, replayed (`replay`)
    in effect    what both nodes state when they are asked now

A look that finds nothing against it is put on record. The trial is bound to the moment in which it
began, and ends when a node is another one, or fails. Only with all three on record, about the
moment that the route is in, its breaker is closed.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import anyio

from kvairlock.core.errors import Misuse
from kvairlock.core.guards import Guard, GuardMode
from kvairlock.core.messages import Inspect, NodeStatus
from kvairlock.core.promise.boundary import Boundary, boundaries
from kvairlock.core.promise.breaker import BreakerState
from kvairlock.core.promise.commitment import RouteReports, published_tokens
from kvairlock.core.promise.conditions import Condition
from kvairlock.core.promise.trial import NodeMoment, RecordKind, RecoveryRecord, RouteMoment
from kvairlock.core.promise.violations import Violation, ViolationKind, judge
from kvairlock.core.terms import Instant, NodeName, Route
from kvairlock.gateway.nodes import NodeDown
from kvairlock.gateway.parameters import PROMPT_TOKENS_MAX
from kvairlock.gateway.parts import Parts
from kvairlock.gateway.replay import SAYS_NOTHING, Answer, replay
from kvairlock.runtime import clock
from kvairlock.runtime.settings import GATEWAY_NAME

LOOK_S = 0.01
NOTHING = "its breaker is closed, there is nothing to recover"
SILENT = "a node of the route does not report"
NOT_REPLAYED = "the boundary is not replayed yet"
TRIAL_ENDED = "the trial has ended, so nothing more is put on record"

OF_THE_PROMISE = frozenset(
    {
        ViolationKind.NO_ROUTE,
        ViolationKind.CONTEXT_OVER_ROUTE,
        ViolationKind.OUTPUT_OVER_CONTEXT,
        ViolationKind.CLASS_OVER_CONTEXT,
        ViolationKind.CLASS_OVER_ROUTES,
    }
)
"""Violations that stand against every route, whichever they name: requests are routed by length, so
one that no route holds is said of the longest alone."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What a look for one record has found.

    Args:
        kind: Which record.
        facts: What was seen, with the figures.
        lacks: What stands against it; empty if it is shown.
    """

    kind: RecordKind
    facts: tuple[str, ...]
    lacks: tuple[str, ...]


class Recovery:
    """One attempt to have a route trusted again.

    Args:
        parts: The gateway.
        route: The route.
        tenant: Whose requests the replays are: the operator's.
    """

    def __init__(self, parts: Parts, route: Route, tenant: str) -> None:
        self._parts, self._route, self._tenant = parts, route, tenant

    def begin(self) -> RouteMoment:
        """Begin a trial, or go on with one, and return the moment that it is about.

        Raises:
            Misuse: The breaker is closed, or a node does not report.
        """
        if self._parts.breakers[self._route].state is BreakerState.CLOSED:
            raise Misuse(NOTHING)
        moment = self._moment()
        self._parts.breakers.try_out(self._route, moment)
        return moment

    async def run(self) -> tuple[Finding, ...]:
        """Look for all records, and close the breaker if they are there.

        Raises:
            Misuse: The breaker is closed, a node does not report, or the closing cannot be kept.
        """
        moment = self.begin()
        found = (
            self._keep(self.corrected(), moment),
            self._keep(await self.refuses(), moment),
            self._keep(await self.in_effect(moment), moment),
        )
        if not any(finding.lacks for finding in found):
            self._parts.breakers.close(self._route, self._moment())
        return found

    async def show(self) -> tuple[Finding, ...]:
        """Look for what can be seen without a replay; nothing is put on record.

        Raises:
            Misuse: A node does not report.
        """
        moment = self._moment()
        return self.corrected(), self._replayed(), await self.in_effect(moment)

    def boundaries(self) -> tuple[Boundary, ...]:
        """Return what a replay asks for.

        Raises:
            Misuse: A node does not report.
        """
        reports = self._reports()
        if not reports.whole:
            raise Misuse(SILENT)
        prefill, decode = reports.reports
        return boundaries(prefill, decode, PROMPT_TOKENS_MAX)

    def corrected(self) -> Finding:
        """Look whether the commitment holds for the route, and the path is no longer entered."""
        parts, reports = self._parts, self._parts.routes.reports(trusted=self._route)
        commitment = parts.routes.commitment
        entered = parts.breakers[self._route].entered
        published = published_tokens(commitment, reports)
        facts = (
            f"a context of {commitment.context_tokens or published} tokens is promised, of "
            f"{published} published, with reach {commitment.reach}; the route holds "
            f"{self._reports().longest_tokens}",
            f"{entered} requests over its limits were sent to it since its breaker opened",
        )
        lacks = [v.message for v in judge(commitment, reports) if self._concerns(v)]
        contract = parts.guarding.guards.mode(Guard.CONTRACT, self._route)
        if contract is not GuardMode.ENFORCING:
            lacks.append(f"the guard `contract` is {contract}: longer requests would be sent")
        if entered:
            lacks.append("it was entered; open its breaker anew when that is corrected")
        return Finding(RecordKind.CORRECTED, facts, tuple(lacks))

    async def refuses(self) -> Finding:
        """Ask the nodes for more than they hold; what they do not refuse opens the breaker."""
        came = await replay(self._parts, self._route, self._tenant, self.boundaries())
        against = [r for r in came if r.answer is not Answer.REFUSED]
        failed = [str(r) for r in against if r.answer not in SAYS_NOTHING]
        if failed:
            self._parts.breakers.open(self._route, Condition.TRIAL, "; ".join(failed))
        asked = {r.boundary.node for r in came}
        nodes = (self._route.prefill, self._route.decode)
        unasked = (f"{node} was asked for nothing" for node in nodes if node not in asked)
        lacks = (*map(str, against), *unasked)
        return Finding(RecordKind.REFUSES, tuple(map(str, came)), lacks)

    async def in_effect(self, moment: RouteMoment) -> Finding:
        """Ask both nodes what is in effect on them now.

        Args:
            moment: The moment that the other records are about.
        """
        asked_at = clock.now()
        relaxed = self._parts.guarding.guards.not_enforcing((self._route,))
        facts, lacks = [], [f"{GATEWAY_NAME}: {one}" for one in relaxed]
        for part in (moment.prefill, moment.decode):
            status = await self._stated(part, asked_at)
            facts.append(_states(part.node, status))
            lacks += self._against(part, status)
        return Finding(RecordKind.IN_EFFECT, tuple(facts), tuple(lacks))

    def _replayed(self) -> Finding:
        """Return what is on record of a replay, or what it would ask for."""
        trial = self._parts.breakers[self._route].trial
        for record in trial.records if trial else ():
            if record.kind is RecordKind.REFUSES:
                return Finding(record.kind, record.facts, ())
        asked = tuple(_asks(boundary) for boundary in self.boundaries())
        return Finding(RecordKind.REFUSES, asked, (NOT_REPLAYED,))

    def _keep(self, finding: Finding, moment: RouteMoment) -> Finding:
        """Put a finding on record, if there is nothing against it."""
        trial = self._parts.breakers[self._route].trial
        if trial is None or trial.moment != moment:
            return replace(finding, lacks=(*finding.lacks, TRIAL_ENDED))
        if not finding.lacks:
            record = RecoveryRecord(finding.kind, moment, finding.facts, int(time.time()))
            self._parts.breakers.put_on_record(self._route, record)
        return finding

    def _moment(self) -> RouteMoment:
        moment = self._parts.routes.moment(self._route)
        if moment is None:
            raise Misuse(SILENT)
        return moment

    def _reports(self) -> RouteReports:
        trusting = self._parts.routes.reports(trusted=self._route)
        return next(reports for reports in trusting if reports.route == self._route)

    def _concerns(self, violation: Violation) -> bool:
        """Whether a violation says something against this route; too few routes are its cure."""
        if violation.kind is ViolationKind.CONCURRENCY_OVER_ROUTES:
            return False
        if violation.kind in OF_THE_PROMISE:
            return True
        of_route = violation.route in (None, str(self._route))
        return of_route and violation.node in (None, self._route.prefill, self._route.decode)

    async def _stated(self, part: NodeMoment, asked_at: Instant) -> NodeStatus | None:
        """Return what a node states after it was asked; None if it does not in time."""
        try:
            self._parts.nodes.post(part.node, Inspect())
        except NodeDown:
            return None
        with anyio.move_on_after(self._parts.settings.limits.lost_ms / 1000):
            while (view := self._parts.routes.nodes[part.node]).reported_at is None or (
                view.reported_at <= asked_at
            ):
                await anyio.sleep(LOOK_S)
            return view.believed
        return None

    def _against(self, part: NodeMoment, status: NodeStatus | None) -> list[str]:
        """Return what a node states that is not as the other records have it."""
        if status is None:
            return [f"{part.node} does not say what is in effect"]
        if status.relaxed is None:
            return [f"{part.node} does not say which of its guards enforce (message version 1)"]
        relaxed = (one for one in status.relaxed if one.route == self._route)
        lacks = [f"{part.node}: {one}" for one in relaxed]
        if NodeMoment.of(status.report) != part:
            lacks.append(f"{part.node}: its report is another one than in the trial")
        return lacks


def _asks(boundary: Boundary) -> str:
    demand, must = boundary.demand, boundary.refusal
    ways = " and ".join(boundary.ways)
    asked = f"prompt of {demand.prompt_tokens}, max_tokens {demand.max_tokens}, by {ways}"
    return (
        f"{asked}: {boundary.node} must refuse {must.asked} over {must.limit} ({must.limit_name})"
    )


def _states(node: NodeName, status: NodeStatus | None) -> str:
    if status is None:
        return f"{node} is silent"
    report = status.report
    life = f"life {report.incarnation}, report {report.epoch}, fingerprint {report.fingerprint}"
    return f"{node} states: {life}"
