"""When a route's breaker opens: conditions that are written down before anything fails.

    an end, as a node stated it ---> weigh: nothing | failure | violation | broken ---> condition

Only what nodes did weighs anything: whose fault a refusal is stands in its reason. What a client or
the load causes weighs nothing. Whether it was the client is not for a node to say: the gateway
knows what it has signed and what the nodes report, and takes a refusal that fits neither for
`peer_rejected` before it is weighed.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from kvairlock.core.errors import REASONS, Fault, Reason, Refusal, Stage
from kvairlock.core.protocol.ledger import VIOLATIONS


class Condition(StrEnum):
    """Why a breaker opens."""

    FAILURES = "failures"
    VIOLATIONS = "violations"
    INVARIANT = "invariant"
    TRIAL = "trial"
    OPERATOR = "operator"
    STATE_FILE = "state_file"


CONDITIONS: dict[Condition, str] = {
    Condition.FAILURES: "requests failed by its nodes' doing as often as `breaker.failures` says, "
    "within `breaker.within_s`",
    Condition.VIOLATIONS: "as many of these failures as `breaker.violations` says were violations: "
    "what was handed over is not what anybody vouched for",
    Condition.INVARIANT: "an invariant broke on one of its nodes, once",
    Condition.TRIAL: "while it was half-open a request failed by its nodes' doing, or they did not "
    "refuse what they cannot hold",
    Condition.OPERATOR: "an operator opened it by hand",
    Condition.STATE_FILE: "what was kept of it cannot be read, or cannot be kept any more",
}
"""Each condition in words."""

BREACHES = VIOLATIONS - {Reason.MISSING_EVIDENCE, Reason.INVARIANT}
"""Violations as a breaker counts them: missing evidence is less, a broken invariant is more."""

ATTRIBUTABLE = tuple(r for r, row in REASONS.items() if row.fault in (Fault.PEER, Fault.OURS))
"""Reasons that say something against a node. Nothing else can ever count."""

COUNTED = tuple(reason for reason in ATTRIBUTABLE if reason is not Reason.PEER_LOST)
"""What counts unless settings say otherwise. The routes of a lost node are closed while it is lost,
and one crash ends many requests at once: that alone is nothing that an operator has to look at."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """The figures of the conditions.

    Args:
        failures: Failures that open a breaker, violations among them.
        violations: Violations that open it; 0 counts them like all failures.
        within_ms: The time within which they count together.
        reasons: Reasons that count at all.
    """

    failures: int
    violations: int
    within_ms: int
    reasons: frozenset[Reason] = frozenset(COUNTED)


class Weight(StrEnum):
    """What one end says against a route."""

    NOTHING = "nothing"
    FAILURE = "failure"
    VIOLATION = "violation"
    BROKEN = "broken"


def weigh(refusal: Refusal, reasons: frozenset[Reason]) -> Weight:
    """Say what an end that a node stated says against its route.

    Args:
        refusal: Why the request did not complete, attributed by the gateway.
        reasons: Reasons that count at all; a broken invariant always does.
    """
    if refusal.reason is Reason.INVARIANT:
        return Weight.BROKEN
    if refusal.reason not in reasons or refusal.reason not in ATTRIBUTABLE:
        return Weight.NOTHING
    return Weight.VIOLATION if refusal.reason in BREACHES else Weight.FAILURE


@dataclass(frozen=True, slots=True)
class Opening:
    """Why and when a breaker opened.

    Args:
        condition: The condition that was met.
        at_unix_s: When, by the wall clock.
        count: How many failures counted.
        limit: How many open it.
        reason: Reason of the last of them, or None if no request has failed.
        stage: Where that was decided, or None.
        detail: What else there is to say, for people; holds no tenant's name.
    """

    condition: Condition
    at_unix_s: int
    count: int = 1
    limit: int = 1
    reason: Reason | None = None
    stage: Stage | None = None
    detail: str = ""
