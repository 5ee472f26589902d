"""What the gateway shows to Prometheus: figures by node, stage, reason and length, never by tenant.

Counters are the gateway's own; the figures of the nodes are read from their last reports when they
are asked for. Requests are counted by prompt length, so that trouble of the long ones does not hide
in an average.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, Counter, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kvairlock.core.ends import End
from kvairlock.core.errors import Refusal
from kvairlock.core.guards import Guard
from kvairlock.core.messages import NodeStatus
from kvairlock.core.promise.breaker import BreakerState
from kvairlock.core.promise.violations import judge
from kvairlock.core.terms import NodeName, Role
from kvairlock.gateway.breakers import Breakers
from kvairlock.gateway.coverage import CoverageFigures
from kvairlock.gateway.reports import NodeState
from kvairlock.gateway.routes import Routes
from kvairlock.runtime.guarding import Guarding
from kvairlock.runtime.settings import Settings

LENGTHS = (256, 1024, 4096, 16384)
INVALID = "invalid"
"""The outcome of what was never a request: no key, no JSON, a wrong parameter."""


def length_bucket(prompt_tokens: int) -> str:
    """Return the name of the length class of a prompt."""
    return next((str(most) for most in LENGTHS if prompt_tokens <= most), "more")


class Meter:
    """The gateway's metrics, in a registry of its own.

    Args:
        model: The model served.
        routes: The nodes' reports.
        in_flight: Returns how many requests have not ended.
        breakers: What is known against routes, or None where there are no breakers.
        guarding: How guards are set; None if all enforce, whatever the time is.
    """

    def __init__(
        self,
        model: str,
        routes: Routes,
        in_flight: Callable[[], int],
        breakers: Breakers | None = None,
        guarding: Guarding | None = None,
    ) -> None:
        self._model = model
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "kvairlock_requests",
            "Requests by outcome; length is the most prompt tokens of the class",
            ("outcome", "model", "length"),
            registry=self._registry,
        )
        self._refusals = Counter(
            "kvairlock_refusals",
            "Refusals by reason and by the stage that decided",
            ("reason", "stage"),
            registry=self._registry,
        )
        self._observed = Counter(
            "kvairlock_would_refuse",
            "What guards of the gateway found that only observe",
            ("guard", "reason"),
            registry=self._registry,
        )
        self._stripped = Counter(
            "kvairlock_parameters_stripped",
            "Requests that carried transfer parameters of their own",
            registry=self._registry,
        )
        self._retries = Counter(
            "kvairlock_retries",
            "Second attempts of the gateway by the reason of the first one's end",
            ("reason",),
            registry=self._registry,
        )
        self._registry.register(_NodeFigures(routes, in_flight))
        self._registry.register(_BreakerStates(breakers))
        guards = guarding or Guarding(Settings(), 0)
        self._registry.register(CoverageFigures(routes, guards))

    def ended(self, end: End, prompt_tokens: int) -> None:
        """Count a request by its end."""
        self._requests.labels(end.value, self._model, length_bucket(prompt_tokens)).inc()

    def invalid(self) -> None:
        """Count what was never a request."""
        self._requests.labels(INVALID, self._model, "unknown").inc()

    def refused(self, refusal: Refusal) -> None:
        """Count a refusal, whoever decided it."""
        self._refusals.labels(refusal.reason.value, refusal.stage.value).inc()

    def would_refuse(self, guard: Guard, refusal: Refusal) -> None:
        """Count what a guard found that only observes."""
        self._observed.labels(guard.value, refusal.reason.value).inc()

    def retried(self, refusal: Refusal) -> None:
        """Count a second attempt, by why it was needed."""
        self._retries.labels(refusal.reason.value).inc()

    def stripped(self) -> None:
        """Count a request whose transfer parameters were taken out."""
        self._stripped.inc()

    def exposition(self) -> bytes:
        """Return all metrics as Prometheus reads them."""
        return generate_latest(self._registry)


class _NodeFigures(Collector):
    """The nodes' last reports, and what follows from them."""

    def __init__(self, routes: Routes, in_flight: Callable[[], int]) -> None:
        self._routes = routes
        self._in_flight = in_flight

    def collect(self) -> Iterable[Metric]:
        """Return the families as of now."""
        yield _gauge("context_tokens", "Context window that is promised", self._routes.promise())
        violated = len(judge(self._routes.commitment, self._routes.reports()))
        yield _gauge("commitment_violations", "Ways in which the promise is not held", violated)
        yield _gauge("routes_up", "Routes that can take requests", len(self._routes.up()))
        yield _gauge("requests_in_flight", "Requests that have not ended", self._in_flight())
        yield self._up()
        reports = [(n, v.role, v.status) for n, v in self._routes.nodes.items() if v.status]
        yield from _node_families(reports)

    def _up(self) -> Metric:
        family = GaugeMetricFamily(
            "kvairlock_node_up", "Whether a node is heard", labels=["node", "role"]
        )
        for name, view in self._routes.nodes.items():
            family.add_metric([name, view.role], float(view.state is NodeState.UP))
        return family


class _BreakerStates(Collector):
    """In which state each breaker is: 1 for that one, 0 for the others."""

    def __init__(self, breakers: Breakers | None) -> None:
        self._breakers = breakers

    def collect(self) -> Iterable[Metric]:
        """Return the family as of now."""
        family = GaugeMetricFamily(
            "kvairlock_breaker", "State of a route's breaker", labels=["route", "state"]
        )
        for route, kept in self._breakers.all.items() if self._breakers else ():
            for state in BreakerState:
                family.add_metric([str(route), state.value], float(kept.state is state))
        yield family


def _gauge(name: str, text: str, value: int) -> Metric:
    return GaugeMetricFamily(f"kvairlock_{name}", text, value=value)


def _node_families(reports: list[tuple[NodeName, Role, NodeStatus]]) -> Iterator[Metric]:
    pages = GaugeMetricFamily("kvairlock_pages", "Pages by stage", labels=["node", "role", "stage"])
    requests = GaugeMetricFamily(
        "kvairlock_node_requests", "Requests by stage", labels=["node", "role", "stage"]
    )
    windows = GaugeMetricFamily(
        "kvairlock_windows",
        "Windows not yet fenced, by whether their request goes on",
        labels=["node", "role", "state"],
    )
    fences = CounterMetricFamily(
        "kvairlock_fences",
        "Releases of memory by the evidence they rest on",
        labels=["node", "role", "fence"],
    )
    counters = CounterMetricFamily(
        "kvairlock_node_events", "A node's own counters", labels=["node", "role", "name"]
    )
    for node, role, status in reports:
        _fill(pages, (node, role), status.pages)
        _fill(requests, (node, role), status.requests)
        draining = status.windows_draining
        _fill(windows, (node, role), {"open": status.windows - draining, "draining": draining})
        _fill(fences, (node, role), status.fences)
        _fill(counters, (node, role), status.counters)
    yield from (pages, requests, windows, fences, counters)


def _fill(
    family: GaugeMetricFamily | CounterMetricFamily,
    node: tuple[NodeName, Role],
    figures: dict[str, int],
) -> None:
    for name, value in figures.items():
        family.add_metric([*node, name], value)
