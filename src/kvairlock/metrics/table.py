"""Every metric there is, as one literal table: code, pages, rules and tests read it.

Names follow the conventions of Prometheus: a prefix, the unit at the end, `_total` for what only
rises (added where it is shown). A label is one of the closed list below. None of them names a
tenant, a key or a request, so no series can: what is about one client is evidence, not a metric.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

PATH = "/metrics"
"""Where every process shows them."""

PREFIX = "kvairlock_"


class Kind(StrEnum):
    """The types of Prometheus."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    INFO = "info"


class Shown(StrEnum):
    """Who shows a metric."""

    GATEWAY = "gateway"
    """The gateway, about itself and its routes."""
    EVERYBODY = "everybody"
    """Each node about itself, and the gateway about all nodes, by what they reported last."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One row.

    Args:
        kind: Its type.
        help: What it says.
        labels: By what it is told apart.
        shown: Who shows it.
        unit: Its unit, with which its name ends; empty if it counts things.
    """

    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    shown: Shown = Shown.EVERYBODY
    unit: str = ""


LABELS: dict[str, str] = {
    "node": "the process: a node's name, or `gateway`",
    "role": "`gateway`, `prefill` or `decode`",
    "route": "PREFILL/DECODE",
    "model": "the model served",
    "version": "the release that runs",
    "revision": "of the model, as nodes state it; empty for the gateway",
    "length": "the prompt's length: at most so many tokens, `more`, or `other` if there is none",
    "stage": "a stage: of a page, of a hand-over, or where a refusal was decided",
    "reason": "why, of the closed list of reasons",
    "outcome": "how it came out",
    "end": "how a request ended",
    "state": "which of the states",
    "cause": "why a drain began",
    "fence": "the evidence on which memory was let go",
    "memory": "what was let go: the pages of a `lease`, or the landing memory of a `window`",
    "check": "what vouched for a page while it was read",
    "guard": "which guard",
    "mode": "how it is set",
    "checks": "which landed pages are digested",
    "waiver": "which waiver allows it",
    "name": "which counter",
}
"""Every label, and what its values are."""

NODE = ("node", "role")
_C, _G, _H, _I = Kind.COUNTER, Kind.GAUGE, Kind.HISTOGRAM, Kind.INFO
_FRONT = Shown.GATEWAY

METRICS: dict[str, Metric] = {
    "build": Metric(_I, "What runs: release and model", (*NODE, "version", "model", "revision")),
    # Requests, as the gateway sees them
    "requests": Metric(
        _C, "Requests by end", ("outcome", "model", "length", "version"), shown=_FRONT
    ),
    "refusals": Metric(
        _C,
        "Refusals that clients were told, by reason and by the stage that decided",
        ("reason", "stage", "model", "length", "version"),
        shown=_FRONT,
    ),
    "would_refuse": Metric(
        _C, "What guards of the gateway found that only observe", ("guard", "reason"), shown=_FRONT
    ),
    "parameters_stripped": Metric(
        _C, "Requests that carried transfer parameters of their own", shown=_FRONT
    ),
    "requests_in_flight": Metric(_G, "Requests that have not ended", shown=_FRONT),
    "retries": Metric(
        _C,
        "Second attempts of the gateway by the reason of the first one's end",
        ("reason",),
        shown=_FRONT,
    ),
    "retry_budget": Metric(
        _G, "Second attempts that the gateway could make now; left out if none ever", shown=_FRONT
    ),
    # What is promised, and what holds it
    "context_tokens": Metric(
        _G, "Context window that is advertised now", shown=_FRONT, unit="tokens"
    ),
    "commitment_tokens": Metric(
        _G,
        "Context window as configured; 0 promises what is measured",
        shown=_FRONT,
        unit="tokens",
    ),
    "commitment_violations": Metric(
        _G, "Ways in which the promise is not held; left out if nothing is promised", shown=_FRONT
    ),
    "route_tokens": Metric(
        _G,
        "Longest request that a route's nodes report to hold; 0 while one is silent",
        ("route",),
        shown=_FRONT,
        unit="tokens",
    ),
    "routes_up": Metric(_G, "Routes that take requests", shown=_FRONT),
    "breaker": Metric(
        _G,
        "State of a route's breaker: 1 for that one, 0 for the others",
        ("route", "state"),
        shown=_FRONT,
    ),
    "node_up": Metric(_G, "Whether the gateway hears a node", NODE, shown=_FRONT),
    "node_losses": Metric(
        _C, "How often the gateway lost a node that it had a channel to", NODE, shown=_FRONT
    ),
    "capacity_tokens": Metric(_G, "Token slots that requests may have", NODE, unit="tokens"),
    # Guards
    "page_reads": Metric(
        _C, "Prompt pages that steps have read, by what vouched for them", (*NODE, "check")
    ),
    "relaxed": Metric(
        _G,
        "What does not enforce or is checked in part, by who states it",
        ("route", "node", "guard", "mode", "checks", "waiver"),
        shown=_FRONT,
    ),
    "guards_unstated": Metric(
        _G,
        "Nodes of a route that do not state how their guards are set",
        ("route",),
        shown=_FRONT,
    ),
    "waiver_expiry_timestamp_seconds": Metric(
        _G, "When a waiver that is in force ends", ("waiver",), shown=_FRONT, unit="seconds"
    ),
    # Memory, and what safety costs of it
    "pages": Metric(_G, "Pages by stage", (*NODE, "stage")),
    "windows": Metric(
        _G, "Windows not yet fenced, by whether their request goes on", (*NODE, "state")
    ),
    "fences": Metric(
        _C, "Releases of memory by the evidence they rest on", (*NODE, "memory", "fence")
    ),
    "drain_wait_seconds": Metric(
        _H,
        "How long pages of ended leases waited for everybody who could reach them",
        (*NODE, "length", "cause", "fence"),
        unit="seconds",
    ),
    "window_wait_seconds": Metric(
        _H,
        "How long landing memory waited, after its request's end, for evidence on its writer",
        (*NODE, "length", "fence"),
        unit="seconds",
    ),
    "queue_wait_seconds": Metric(
        _H,
        "How long requests waited for pages",
        (*NODE, "length", "outcome"),
        unit="seconds",
    ),
    "handover_seconds": Metric(
        _H,
        "From pages to the verdict (decode), or to the receipt (prefill)",
        (*NODE, "length", "outcome"),
        unit="seconds",
    ),
    # What each node did
    "node_requests": Metric(_G, "Requests by stage of the hand-over", (*NODE, "stage")),
    "node_refusals": Metric(
        _C, "Refusals that a node decided, by reason and stage", (*NODE, "reason", "stage")
    ),
    "node_would_refuse": Metric(
        _C, "What guards of a node found that only observe", (*NODE, "guard", "reason")
    ),
    "node_ends": Metric(_C, "Requests that ended on a node", (*NODE, "end")),
    "verdicts": Metric(_C, "Verdicts of decode, admitted or the reason", (*NODE, "outcome")),
    "invariants_broken": Metric(_C, "Turns in which a node's books did not add up", NODE),
    "node_events": Metric(_C, "A node's other counters", (*NODE, "name")),
    "evidence_records": Metric(_C, "Records of evidence that were numbered", NODE),
    "evidence_lost": Metric(_C, "Records of evidence that could not be written", NODE),
    "trace_spans_dropped": Metric(_C, "Spans of traces that could not be sent", NODE),
}
"""By name, without prefix and without `_total`."""


def exposed(name: str) -> str:
    """Return the name under which a metric is written in rules and queries.

    Args:
        name: Its row. Of a histogram it is the stem of its three series.
    """
    endings = {Kind.COUNTER: "_total", Kind.INFO: "_info"}
    return f"{PREFIX}{name}{endings.get(METRICS[name].kind, '')}"


def series() -> dict[str, str]:
    """Return every name that a series can have, with its row."""
    found: dict[str, str] = {}
    for name, row in METRICS.items():
        endings = ("_bucket", "_sum", "_count") if row.kind is Kind.HISTOGRAM else ("",)
        found |= {f"{exposed(name)}{ending}": name for ending in endings}
    return found
