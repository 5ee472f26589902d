"""What nodes say of themselves, and how much of it is believed.

    another life than before         what the former one said is void
    an earlier epoch than before     stale: not believed, and nothing is overwritten
    the same epoch, other figures    the node contradicts itself: neither is believed, it is dropped
    else                             believed, until it is `lost_ms` old

A node that gives signs of life and no longer reports is *stale*: nobody knows what it holds now.
The age is looked at whenever a report is used, so that a process that was suspended cannot use an
old one first. The last report of a node that is stale or lost is shown, and used for nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from kvairlock.core.errors import PeerMisbehaved, Reason
from kvairlock.core.messages import NodeStatus
from kvairlock.core.promise.capacity import CapacityReport
from kvairlock.core.terms import NS_PER_MS, Incarnation, Instant, NodeName, Role
from kvairlock.runtime import clock
from kvairlock.runtime.settings import LimitSettings
from kvairlock.wire.versions import UNSTATED, Versions

LOST_MS = LimitSettings().lost_ms


class NodeState(StrEnum):
    """What the gateway knows of a node."""

    UNSEEN = "unseen"
    """It has not reported in this life."""
    UP = "up"
    STALE = "stale"
    """It is heard, and its last report is too old to be believed."""
    LOST = "lost"
    INCOMPATIBLE = "incompatible"
    """The gateway and it speak no version in common."""


class Belief(StrEnum):
    """What became of a report."""

    NEW = "new"
    """It is the first of a life, or has other figures than the one before."""
    SAME = "same"
    EARLIER = "earlier"
    """A later one was believed before: this one is not."""


@dataclass(frozen=True, slots=True)
class NodeView:
    """One node as it last reported.

    Args:
        role: Prefill or decode.
        state: Whether what it reported is believed.
        status: Its last report, kept after it was lost, or None.
        reported_at: When that came, or None.
        speaks: The versions of the messages that it speaks, by its hello.
        why: Why it is incompatible; empty if it is not.
    """

    role: Role
    state: NodeState = NodeState.UNSEEN
    status: NodeStatus | None = None
    reported_at: Instant | None = None
    speaks: Versions = UNSTATED
    why: str = ""

    @property
    def believed(self) -> NodeStatus | None:
        """What the node reports, or None if there is nothing to be believed."""
        return self.status if self.state is NodeState.UP else None


class Reports:
    """The last report of each node.

    Args:
        roles: All nodes of the stack, by name.
        lost_ms: Age at which a report is no longer believed.
        now: Tells the time.
    """

    def __init__(
        self,
        roles: Mapping[NodeName, Role],
        lost_ms: int = LOST_MS,
        now: Callable[[], Instant] = clock.now,
    ) -> None:
        self._views = {name: NodeView(role) for name, role in roles.items()}
        self.losses: Counter[NodeName] = Counter()
        """How often each node was lost since the gateway started."""
        self._lost_ns, self._now = lost_ms * NS_PER_MS, now

    @property
    def views(self) -> Mapping[NodeName, NodeView]:
        """All nodes by name, as of now."""
        now = self._now()
        return {name: self._aged(view, now) for name, view in self._views.items()}

    def connected(self, name: NodeName, incarnation: Incarnation, speaks: Versions) -> None:
        """A channel leads to this life of a node: figures of another one are void."""
        view = self._views[name]
        if view.status is not None and view.status.report.incarnation == incarnation:
            self._views[name] = replace(view, speaks=speaks)
        else:
            self._views[name] = NodeView(view.role, speaks=speaks)

    def incompatible(self, name: NodeName, why: str) -> None:
        """No channel can lead to the node as it is now."""
        self._views[name] = replace(self._views[name], state=NodeState.INCOMPATIBLE, why=why)

    def heard(self, name: NodeName, status: NodeStatus, at: Instant) -> Belief:
        """Take a report.

        Args:
            name: The node whose channel it came on; the report is about no other.
            status: What it says.
            at: When it came.

        Raises:
            PeerMisbehaved: It contradicts the report of the same epoch.
        """
        view = self._views[name]
        belief = _judge(view.status, status.report)
        if belief is not Belief.EARLIER:
            self._views[name] = replace(
                view, state=NodeState.UP, status=status, reported_at=at, why=""
            )
        return belief

    def lost(self, name: NodeName) -> None:
        """Take note that a node is no longer heard."""
        self.losses[name] += 1
        self._views[name] = replace(self._views[name], state=NodeState.LOST)

    def _aged(self, view: NodeView, now: Instant) -> NodeView:
        if view.state is not NodeState.UP or view.reported_at is None:
            return view
        fresh = now - view.reported_at < self._lost_ns
        return view if fresh else replace(view, state=NodeState.STALE)


def _judge(last: NodeStatus | None, report: CapacityReport) -> Belief:
    if last is None or last.report.incarnation != report.incarnation:
        return Belief.NEW
    if report.epoch < last.report.epoch:
        return Belief.EARLIER
    if report.epoch > last.report.epoch:
        return Belief.NEW
    if report != last.report:
        raise PeerMisbehaved(Reason.MALFORMED, f"two different reports of epoch {report.epoch}")
    return Belief.SAME
