"""What was found when one node was asked what it holds, whatever kind of server it is.

An engine that is no node of ours is read into the same `CapacityReport`. What that has a field for
and the engine does not say is `UNSTATED` or 0, and where something rests on it, a warning says so.
What the report needs and the engine does not say is no report.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from kvairlock.core.promise.capacity import CapacityReport
from kvairlock.core.promise.commitment import Limit, Silence, Stated, limits_of
from kvairlock.core.promise.violations import Violation, ViolationKind
from kvairlock.core.terms import Incarnation, NodeName, Role

UNSTATED = "unstated"


class NodeKind(StrEnum):
    """Which server a node is."""

    KVAIRLOCK = "kvairlock"
    VLLM = "vllm"
    SGLANG = "sglang"


@dataclass(frozen=True, slots=True)
class Reading:
    """One node, as it was found.

    Args:
        node: What it is called.
        role: Prefill or decode, as the deployment has it.
        kind: Which server it is.
        said: Its report, or why there is none.
        advertised_tokens: The context that it advertises itself; None if it advertises none.
        admitted_tokens: The longest prompt that it admits itself; None if it does not say.
        scheduled_tokens: The longest prompt that it ever schedules; None if that is its limit.
        violations: What was found in it alone.
        warnings: What it does not say, and what is uncertain for that.
    """

    node: NodeName
    role: Role
    kind: NodeKind
    said: CapacityReport | Silence
    advertised_tokens: int | None = None
    admitted_tokens: int | None = None
    scheduled_tokens: int | None = None
    violations: tuple[Violation, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def stated(self) -> Stated:
        """It as one half of a route."""
        return Stated(self.node, self.said)

    @property
    def limit(self) -> Limit | None:
        """Its smallest limit, or None if it does not report."""
        if isinstance(self.said, Silence):
            return None
        return min(limits_of(self.said), key=lambda limit: limit.tokens)


def unreported(node: NodeName, role: Role, kind: NodeKind, why: str) -> Reading:
    """Return the reading of a node that does not say what it holds.

    Args:
        node: What it is called.
        role: Its role.
        kind: Which server it is.
        why: What is missing.
    """
    violation = Violation(ViolationKind.UNREPORTED, f"{node}: {why}", node=node)
    return Reading(node, role, kind, Silence.UNREPORTED, violations=(violation,))


def over_held(reading: Reading) -> Iterator[Violation]:
    """Yield in which ways an engine says more of itself than it holds.

    Args:
        reading: The engine; nothing is found in one that does not report.
    """
    limit = reading.limit
    if limit is None:
        return
    said = f"{limit.node} advertises {reading.advertised_tokens} tokens and holds {limit.tokens} "
    said += f"({limit.name} of {limit.node})"
    yield from _over(ViolationKind.ADVERTISED_OVER_HELD, said, reading.advertised_tokens, limit)
    scheduled = reading.scheduled_tokens
    if scheduled is not None:
        said = f"{limit.node} admits prompts of up to {reading.admitted_tokens} tokens and never "
        said += f"schedules any of more than {scheduled}"
        bound = Limit(limit.node, "scheduled_tokens", scheduled)
        yield from _over(ViolationKind.ADMITTED_OVER_HELD, said, reading.admitted_tokens, bound)


def _over(
    kind: ViolationKind, message: str, said_tokens: int | None, limit: Limit
) -> Iterator[Violation]:
    if said_tokens is not None and said_tokens > limit.tokens:
        figures = (said_tokens, limit.tokens, limit.name)
        yield Violation(kind, message, None, limit.node, None, *figures)


def incarnation_of(started_s: float | None) -> Incarnation:
    """Return a name for one life of an engine.

    Args:
        started_s: When its process started, in seconds since 1970; None if it does not say.
    """
    return Incarnation(UNSTATED if started_s is None else f"started-{started_s:.2f}")


def fingerprint_of(*parts: str | int) -> str:
    """Return a digest of what an engine says that its figures depend on."""
    text = "\n".join(map(str, parts))
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
