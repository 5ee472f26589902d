"""What the service promises, and how much of it may be published by what its nodes report.

    commitment     context window, output length, classes of requests, pinned fingerprints
       |
       v           +-- prefill-0/decode-0   report | report   up       holds 8,192
    published <----+-- prefill-1/decode-0   report | report   up       holds 2,048
                   +-- prefill-2/decode-0   report | silence  closed   holds nothing

A route is a pair of reports. Without both, with a fingerprint other than the pinned one, or with
two layouts, it serves nobody: nothing is published on its account. Which of the others bounds the
promise is the *reach*. Configuration lowers what was measured and never raises it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from kvairlock.core.promise.capacity import CapacityReport
from kvairlock.core.terms import NodeName, Role, Route


class Reach(StrEnum):
    """Which routes must hold what is promised."""

    TIERED = "tiered"
    """Requests are routed by length: one route that holds it is enough."""
    EVERY = "every"
    """Any route may be taken, so the smallest one limits the promise."""


class Silence(StrEnum):
    """Why there is no report of a node to judge by."""

    UNREPORTED = "unreported"
    """It is not heard, or does not say what it holds."""
    STALE = "stale"
    """What it said last is too old to be believed."""


class RouteState(StrEnum):
    """Whether a route takes requests."""

    UP = "up"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class LengthClass:
    """One class of requests by length.

    Args:
        name: Its name, unique within a commitment.
        context_tokens: Longest request of the class: prompt plus what is generated.
        concurrency: Requests of that length promised at one time, beside those of other classes.
    """

    name: str
    context_tokens: int
    concurrency: int


@dataclass(frozen=True, slots=True)
class Commitment:
    """What is promised.

    Args:
        context_tokens: Context window; 0 promises what was measured.
        output_tokens: Largest `max_tokens` of a request; 0 leaves it to the context.
        reach: Which routes must hold it.
        classes: Classes of requests with their concurrency.
        fingerprints: Fingerprint that each node named here must report.
    """

    context_tokens: int = 0
    output_tokens: int = 0
    reach: Reach = Reach.TIERED
    classes: tuple[LengthClass, ...] = ()
    fingerprints: Mapping[NodeName, str] = field(default_factory=dict)

    @property
    def promises(self) -> bool:
        """Whether anything is promised that the nodes may turn out not to hold."""
        promised = (self.context_tokens, self.output_tokens, self.classes, self.fingerprints)
        return any(map(bool, promised))


@dataclass(frozen=True, slots=True)
class Limit:
    """One limit of one node.

    Args:
        node: The node.
        name: Which limit it is, for example `prefill_pool_tokens`.
        tokens: The longest request that keeps to it.
    """

    node: NodeName
    name: str
    tokens: int


@dataclass(frozen=True, slots=True)
class Stated:
    """What one node says of itself now.

    Args:
        node: The node.
        said: Its report, or why there is none to judge by.
    """

    node: NodeName
    said: CapacityReport | Silence


@dataclass(frozen=True, slots=True)
class RouteReports:
    """A route as the reports of its two nodes.

    Args:
        prefill: What its prefill node says.
        decode: What its decode node says.
        state: Whether it takes requests, as far as is known from elsewhere: links, breaker.
    """

    prefill: Stated
    decode: Stated
    state: RouteState

    @property
    def route(self) -> Route:
        """Which route it is."""
        return Route(self.prefill.node, self.decode.node)

    @property
    def reports(self) -> tuple[CapacityReport, ...]:
        """The reports that there are, at most two."""
        both = (self.prefill.said, self.decode.said)
        return tuple(said for said in both if isinstance(said, CapacityReport))

    @property
    def whole(self) -> bool:
        """Whether both of its nodes report."""
        return len(self.reports) == 2

    @property
    def limit(self) -> Limit | None:
        """The smallest limit of its nodes, or None while one does not report."""
        if not self.whole:
            return None
        limits = (limit for report in self.reports for limit in limits_of(report))
        return min(limits, key=lambda limit: limit.tokens)

    @property
    def longest_tokens(self) -> int:
        """The longest single request that both nodes can hold; 0 while one does not report."""
        limit = self.limit
        return 0 if limit is None else limit.tokens

    def concurrency(self, tokens: int) -> int:
        """Return how many requests of a length both nodes hold at one time."""
        return min(r.concurrency(tokens) for r in self.reports) if self.whole else 0


def limits_of(report: CapacityReport) -> Iterator[Limit]:
    """Yield every limit of a node, by the names that refusals use; a group's has its name."""
    yield Limit(report.node, f"{report.role}_pool_tokens", report.tokens)
    yield Limit(report.node, "model_context_tokens", report.context_tokens)
    if report.role is Role.DECODE:
        landing_tokens = report.landing_pages * report.page_tokens
        yield Limit(report.node, "landing_tokens", landing_tokens)
    for group in report.groups:
        tokens = group.longest_tokens(report.context_tokens)
        yield Limit(report.node, f"{group.name}_tokens", tokens)


def differing_layout(route: RouteReports) -> tuple[str, str, str] | None:
    """Return what two nodes of a route lay out differently: its name, prefill's, decode's value.

    Pages of one are no pages of the other then. A node that does not state its model (messages of
    version 1) is compared by its page size alone; the hand-over compares digests of the rest.
    """
    if not route.whole:
        return None
    prefill, decode = route.reports
    pairs = [("page_tokens", str(prefill.page_tokens), str(decode.page_tokens))]
    if prefill.basis is not None and decode.basis is not None:
        pairs.append(("model", prefill.basis.model, decode.basis.model))
        pairs.append(("dtype", prefill.basis.dtype, decode.basis.dtype))
    return next((pair for pair in pairs if pair[1] != pair[2]), None)


def is_as_pinned(commitment: Commitment, report: CapacityReport) -> bool:
    """Return whether a node reports the fingerprint that the commitment names for it, if any."""
    return commitment.fingerprints.get(report.node, report.fingerprint) == report.fingerprint


def serves(commitment: Commitment, route: RouteReports) -> bool:
    """Return whether requests may be sent on a route, and promises rest on it."""
    if route.state is not RouteState.UP or not route.whole:
        return False
    unchanged = all(is_as_pinned(commitment, report) for report in route.reports)
    return unchanged and differing_layout(route) is None


def published_tokens(commitment: Commitment, routes: Iterable[RouteReports]) -> int:
    """Return the context window that may be advertised, in tokens; 0 while no route serves.

    Args:
        commitment: What is promised.
        routes: All routes that a request may take, as their nodes report now.
    """
    held = [route.longest_tokens for route in routes if serves(commitment, route)]
    bound = min if commitment.reach is Reach.EVERY else max
    measured = bound(held, default=0)
    return min(commitment.context_tokens, measured) if commitment.context_tokens else measured


def published_output_tokens(commitment: Commitment, context_tokens: int) -> int:
    """Return the `max_tokens` that may be advertised; 0 if the commitment sets no limit.

    Args:
        commitment: What is promised.
        context_tokens: The context window that is published; a prompt takes one token of it.
    """
    return min(commitment.output_tokens, max(0, context_tokens - 1))
