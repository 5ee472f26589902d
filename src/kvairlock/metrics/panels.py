"""The dashboard's panels as one literal table: what an operator sees, in the order of looking.

Safety and what it costs of capacity stand first, on one view. A figure comes from the node and from
the gateway that passes it on: `max by` takes it once, and `avg by` takes pages, whose stages have
to add up to all of them. `$node` is what the viewer has chosen.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Look(StrEnum):
    """How a panel is drawn, by Grafana's own names."""

    FIGURE = "stat"
    CURVES = "timeseries"
    STATES = "state-timeline"
    TABLE = "table"


@dataclass(frozen=True, slots=True)
class Query:
    """One query of a panel.

    Args:
        text: What Prometheus is asked.
        legend: What each series is called.
    """

    text: str
    legend: str = ""


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel.

    Args:
        title: What it shows.
        about: How to read it.
        look: How it is drawn.
        queries: What is asked.
        unit: Grafana's name of the unit.
        width: Of 24 columns.
        bad: From which value on a figure is red; None if no value is bad by itself.
    """

    title: str
    about: str
    look: Look
    queries: tuple[Query, ...]
    unit: str = "short"
    width: int = 12
    bad: float | None = None


def _figure(title: str, about: str, text: str, bad: float | None = 1) -> Panel:
    return Panel(title, about, Look.FIGURE, (Query(text),), width=4, bad=bad)


def _curves(title: str, about: str, *queries: Query, unit: str = "short", width: int = 12) -> Panel:
    return Panel(title, about, Look.CURVES, queries, unit, width)


NODE = 'node=~"$node"'
COVERED = ', check!~"observed|uncovered"'
HELD_BACK, IN_USE = ', stage=~"draining|quarantined|fenced|scrubbed"', ', stage!="withdrawn"'


def _pages(more: str = "") -> str:
    return f"avg by (node, role, stage) (kvairlock_pages{{{NODE}{more}}})"


def _reads(more: str = "") -> str:
    name = f"kvairlock_page_reads_total{{{NODE}{more}}}"
    return f"max by (node, role, check) (rate({name}[$__rate_interval]))"


def _quantile(share: float, name: str, by: str, labels: str) -> str:
    once = f"max by (node, role, {labels}, le) (rate({name}_bucket{{{NODE}}}[$__rate_interval]))"
    return f"histogram_quantile({share}, sum by ({by}, le) ({once}))"


DRAIN, WINDOW = "kvairlock_drain_wait_seconds", "kvairlock_window_wait_seconds"
QUEUE, HANDOVER = "kvairlock_queue_wait_seconds", "kvairlock_handover_seconds"
DRAINS = (
    f"max by (node, role, length, cause, fence) (rate({DRAIN}_count{{{NODE}}}[$__rate_interval]))"
)

FENCES = f"kvairlock_fences_total{{{NODE}}}"
RELEASES = f"max by (node, role, memory, fence) (rate({FENCES}[$__rate_interval]))"
VERSIONS = "max by (node, role, version) (kvairlock_build_info)"


def _by_version(share: float, name: str, labels: str) -> str:
    once = f"max by (node, role, {labels}, le) (rate({name}_bucket{{{NODE}}}[$__rate_interval]))"
    joined = f"{once} * on (node, role) group_left (version) {VERSIONS}"
    return f"histogram_quantile({share}, sum by (version, le) ({joined}))"


SECTIONS: dict[str, tuple[Panel, ...]] = {
    "Safety, and what it costs": (
        Panel(
            "Page reads that a check covers",
            "Under 100 %, pages were read for answers while a guard only observed or was off.",
            Look.FIGURE,
            (Query(f"sum({_reads(COVERED)}) / sum({_reads()})"),),
            unit="percentunit",
            width=4,
        ),
        _figure(
            "Guards that do not enforce",
            "By all that processes state of themselves. Waivers name who answers for it.",
            'count(max by (route, node, guard) (kvairlock_relaxed{mode!="enforcing"}))'
            " or vector(0)",
        ),
        _figure(
            "Hand-overs refused in an hour",
            "What prefill handed over was not what decode expected. Nobody was answered from it.",
            "sum(max by (node, role, outcome) (increase(kvairlock_verdicts_total"
            '{outcome!~"admitted|peer_rejected|cancelled|timeout|peer_lost"}[1h])))',
        ),
        _figure(
            "Ways in which the promise is not held",
            "`kvairlock check` and `/status` name them.",
            "max(kvairlock_commitment_violations)",
        ),
        _figure(
            "Books that did not add up, in a day",
            "Turns in which an invariant was broken.",
            "sum(max by (node, role) (increase(kvairlock_invariants_broken_total[1d])))",
        ),
        _figure(
            "Evidence lost in a day",
            "Records that could not be written: what was served then cannot be excluded later.",
            "sum(max by (node, role) (increase(kvairlock_evidence_lost_total[1d])))",
        ),
        _curves(
            "Share of the pages that wait to be free",
            "What safety costs of capacity: pages of ended requests, those in quarantine included.",
            Query(
                f"sum by (node) ({_pages(HELD_BACK)}) / sum by (node) ({_pages(IN_USE)})",
                "{{node}}",
            ),
            unit="percentunit",
            width=8,
        ),
        _curves(
            "Share of the releases, by evidence",
            "What memory was let go on: leases and windows. `unproven` happens in drills only.",
            Query(
                f"sum by (fence) ({RELEASES}) / ignoring (fence) group_left sum ({RELEASES})",
                "{{fence}}",
            ),
            unit="percentunit",
            width=8,
        ),
        _curves(
            "How long they wait",
            "Drains of pages, by why they began: one of two, and one of a hundred.",
            Query(_quantile(0.5, DRAIN, "cause", "length, cause, fence"), "{{cause}} half"),
            Query(_quantile(0.99, DRAIN, "cause", "length, cause, fence"), "{{cause}} 99 %"),
            unit="s",
            width=8,
        ),
    ),
    "Refusals": (
        _curves(
            "Refusals by reason",
            "What clients were told.",
            Query(
                "sum by (reason) (rate(kvairlock_refusals_total[$__rate_interval]))", "{{reason}}"
            ),
            unit="reqps",
        ),
        _curves(
            "Share refused, by length of the prompt",
            "A rare class does not hide in the average of all. `other` has no length.",
            Query(
                "sum by (length) (rate(kvairlock_refusals_total[$__rate_interval]))"
                " / sum by (length) (rate(kvairlock_requests_total[$__rate_interval]))",
                "{{length}}",
            ),
            unit="percentunit",
        ),
        _curves(
            "Refused by nodes, by stage",
            "Nodes judge for themselves, whatever the gateway lets through.",
            Query(
                "sum by (node, stage, reason) (max by (node, role, stage, reason)"
                f" (rate(kvairlock_node_refusals_total{{{NODE}}}[$__rate_interval])))",
                "{{node}} {{stage}} {{reason}}",
            ),
            unit="reqps",
        ),
        _curves(
            "Would have been refused",
            "What guards found that only observe.",
            Query(
                "sum by (guard, reason) (rate(kvairlock_would_refuse_total[$__rate_interval]))",
                "gateway {{guard}} {{reason}}",
            ),
            Query(
                "sum by (guard, reason) (max by (node, role, guard, reason)"
                f" (rate(kvairlock_node_would_refuse_total{{{NODE}}}[$__rate_interval])))",
                "nodes {{guard}} {{reason}}",
            ),
            unit="reqps",
        ),
    ),
    "Drains and windows": (
        _curves(
            "Drains by cause",
            "Why leases ended.",
            Query(f"sum by (cause) ({DRAINS})", "{{cause}}"),
            unit="ops",
        ),
        _curves(
            "Releases by evidence",
            "Leases and windows that were let go; a hand-over has one of each on decode.",
            Query(f"sum by (memory, fence) ({RELEASES})", "{{memory}} {{fence}}"),
            unit="ops",
        ),
        _curves(
            "Windows",
            "Memory that others may write into; `draining` ones are of ended requests.",
            Query(
                f"sum by (node, state) (max by (node, role, state) (kvairlock_windows{{{NODE}}}))",
                "{{node}} {{state}}",
            ),
        ),
        _curves(
            "How long windows wait",
            "After the request's end, for evidence that nobody can write any more.",
            Query(_quantile(0.99, WINDOW, "node", "length, fence"), "{{node}} 99 %"),
            unit="s",
        ),
    ),
    "Coverage": (
        _curves(
            "Page reads by check",
            "What vouched for the pages while they were read.",
            Query(f"sum by (check) ({_reads()})", "{{check}}"),
            unit="ops",
        ),
        Panel(
            "What does not enforce, or is checked in part",
            "As each process states it, with the waiver that allows it; none in drills.",
            Look.TABLE,
            (Query("max by (route, node, guard, mode, checks, waiver) (kvairlock_relaxed)"),),
            width=6,
        ),
        Panel(
            "Time left of waivers",
            "Then their guards enforce again, by themselves.",
            Look.TABLE,
            (Query("min by (waiver) (kvairlock_waiver_expiry_timestamp_seconds) - time()"),),
            unit="s",
            width=6,
        ),
    ),
    "Capacity and promise": (
        _curves(
            "Promised, advertised, held",
            "In tokens of one request: as configured, as advertised now, and as each route holds.",
            Query("max(kvairlock_commitment_tokens)", "promised"),
            Query("max(kvairlock_context_tokens)", "advertised"),
            Query("min by (route) (kvairlock_route_tokens)", "held by {{route}}"),
        ),
        _curves(
            "Pages by stage",
            "Of the nodes that are chosen.",
            Query(f"sum by (stage) ({_pages()})", "{{stage}}"),
        ),
        _curves(
            "Waiting for pages",
            "One of twenty requests waits so long, by length of the prompt.",
            Query(_quantile(0.95, QUEUE, "role, length", "length, outcome"), "{{role}} {{length}}"),
            unit="s",
        ),
        _curves(
            "Hand-over",
            "From pages to the verdict (decode), or to the receipt (prefill), one of twenty.",
            Query(
                _quantile(0.95, HANDOVER, "role, length", "length, outcome"), "{{role}} {{length}}"
            ),
            unit="s",
        ),
    ),
    "Routes and nodes": (
        Panel(
            "Breakers",
            "Which routes take no requests.",
            Look.STATES,
            (Query('max by (route) (kvairlock_breaker{state="open"})', "{{route}} open"),),
        ),
        Panel(
            "Nodes that are heard",
            "By any gateway.",
            Look.STATES,
            (Query(f"max by (node) (kvairlock_node_up{{{NODE}}})", "{{node}}"),),
        ),
        _curves(
            "Requests by end",
            "All that came, also what was never a request (`invalid`).",
            Query(
                "sum by (outcome) (rate(kvairlock_requests_total[$__rate_interval]))", "{{outcome}}"
            ),
            Query("sum(kvairlock_requests_in_flight)", "in flight"),
        ),
        _curves(
            "Second attempts",
            "By why the first one came to nothing, and how many could be made now.",
            Query(
                "sum by (reason) (rate(kvairlock_retries_total[$__rate_interval]))", "{{reason}}"
            ),
            Query("sum(kvairlock_retry_budget)", "left"),
        ),
        _curves(
            "Evidence",
            "Records a second; a process that is up and records nothing is worth a look.",
            Query(
                "sum by (node) (max by (node, role)"
                f" (rate(kvairlock_evidence_records_total{{{NODE}}}[$__rate_interval])))",
                "{{node}}",
            ),
            unit="ops",
        ),
        _curves(
            "Hand-over by release",
            "One of twenty, on all nodes that run a release: is the new one slower?",
            Query(_by_version(0.95, HANDOVER, "length, outcome"), "{{version}}"),
            unit="s",
        ),
        _curves(
            "Share refused by release",
            "Of the gateways that run a release.",
            Query(
                "sum by (version) (rate(kvairlock_refusals_total[$__rate_interval]))"
                " / sum by (version) (rate(kvairlock_requests_total[$__rate_interval]))",
                "{{version}}",
            ),
            unit="percentunit",
        ),
        Panel(
            "What runs",
            "Releases and models; more than one release is an upgrade under way.",
            Look.TABLE,
            (Query("max by (node, role, version, model, revision) (kvairlock_build_info)"),),
        ),
    ),
}
"""The panels, by section."""
