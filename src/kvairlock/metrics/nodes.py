"""A node's figures as metrics, read from its status.

A node shows its status as of now, and the gateway shows what each node reported last.

Counters of nodes are named `WHAT.DETAIL` (`refused.prefill.context_length`). Those with a row of
their own are shown there, all others as `node_events`, under their name. Every name is one of a
closed list, since it becomes a label: one that this release does not know is not shown.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Mapping

from kvairlock.core.checks import Cover
from kvairlock.core.ends import End
from kvairlock.core.errors import Reason, Stage
from kvairlock.core.guards import Guard
from kvairlock.core.memory.page import PageStage
from kvairlock.core.messages import NodeStatus
from kvairlock.core.protocol.handoff import HandoffStage
from kvairlock.core.protocol.ledger import VIOLATIONS
from kvairlock.core.terms import Fence, NodeName, Role
from kvairlock.core.waits import ADMITTED, Wait, Waited
from kvairlock.metrics.families import Gathering

RECORDS, LOST, DROPPED = "evidence_records", "evidence_lost", "trace_spans_dropped"
"""Counters in which a node states how its evidence and its traces go."""

DETAILS: Mapping[str, Container[str]] = {
    "stage": frozenset(map(str, Stage)),
    "reason": frozenset(map(str, Reason)),
    "guard": frozenset(map(str, Guard)),
    "outcome": frozenset((ADMITTED, *map(str, Reason))),
    "end": frozenset(map(str, End)),
}
"""What each label can say that is a part of a counter's name."""

DETAILED: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "refused": ("node_refusals", ("stage", "reason")),
    "would_refuse": ("node_would_refuse", ("guard", "reason")),
    "verdict": ("verdicts", ("outcome",)),
    "ended": ("node_ends", ("end",)),
}
"""What begins a counter's name, the row that it is shown in, and the labels that the rest gives."""

PLAIN: Mapping[str, str] = {
    "invariant_broken": "invariants_broken",
    RECORDS: RECORDS,
    LOST: LOST,
    DROPPED: DROPPED,
}
"""Counters that are a row by themselves."""

EVENTS = frozenset(
    ("admitted", "ignored", "pages_scrubbed", "pushed_out", "recomputed", "rehearsed")
)
"""Counters that are shown by their name alone."""

PAGE_STAGES = frozenset(stage.name.lower() for stage in PageStage)
REQUEST_STAGES = frozenset(map(str, HandoffStage))

NONE_BROKEN = {"invariant_broken": 0}
NO_BREACHES = {f"verdict.{reason}": 0 for reason in sorted(VIOLATIONS - {Reason.INVARIANT})}
"""What alerts wait for and every node counts: a rise can only be seen of what was shown before."""

WAITS: Mapping[Wait, tuple[str, tuple[str, ...]]] = {
    Wait.QUEUE: ("queue_wait_seconds", ("length", "outcome")),
    Wait.HANDOVER: ("handover_seconds", ("length", "outcome")),
    Wait.DRAIN: ("drain_wait_seconds", ("length", "cause", "fence")),
    Wait.WINDOW: ("window_wait_seconds", ("length", "fence")),
}
"""The row of each wait, and its labels beside the node's."""


def show(name: NodeName, role: Role, status: NodeStatus, into: Gathering) -> None:
    """Add a node's figures to an answer.

    Args:
        name: The node.
        role: What it is.
        status: Its figures.
        into: Where they go.
    """
    node = {"node": str(name), "role": role.value}
    _show_build(status, node, into)
    into.add("capacity_tokens", status.report.tokens, **node)
    for stage in sorted(status.pages.keys() & PAGE_STAGES):
        into.add("pages", status.pages[stage], stage=stage, **node)
    for stage in sorted(status.requests.keys() & REQUEST_STAGES):
        into.add("node_requests", status.requests[stage], stage=stage, **node)
    open_windows = status.windows - status.windows_draining
    into.add("windows", open_windows, state="open", **node)
    into.add("windows", status.windows_draining, state="draining", **node)
    _show_fences("lease", status.fences, node, into)
    if status.window_fences is not None:
        _show_fences("window", status.window_fences, node, into)
    _show_reads(status, node, into)
    expected = NONE_BROKEN | (NO_BREACHES if role is Role.DECODE else {})
    _show_counters(expected | status.counters, node, into)
    show_waits(status.waits or (), node, into)


def show_waits(waits: Iterable[Waited], node: Mapping[str, str], into: Gathering) -> None:
    """Add histograms: one for each set of labels that a row has."""
    same: defaultdict[tuple[str, tuple[tuple[str, str], ...]], list[Waited]] = defaultdict(list)
    for each in waits:
        name, labels = WAITS[each.wait]
        told = {
            "length": each.length,
            "cause": each.cause,
            "outcome": each.cause,
            "fence": each.fence.value if each.fence else "",
        }
        same[name, tuple((label, told[label]) for label in labels)].append(each)
    for (name, told_apart), together in same.items():
        into.add_waits(name, together, **node, **dict(told_apart))


def _show_build(status: NodeStatus, node: Mapping[str, str], into: Gathering) -> None:
    """A node of version 1 does not say what it is built from: it has no version here."""
    basis = status.report.basis
    version, named = (basis.build, basis.model) if basis else ("", "")
    model, _, revision = named.partition("@")
    into.add("build", 1, version=version, model=model, revision=revision, **node)


def _show_fences(
    memory: str, fences: Mapping[str, int], node: Mapping[str, str], into: Gathering
) -> None:
    for fence in Fence:
        into.add("fences", fences.get(fence, 0), memory=memory, fence=fence.value, **node)


def _show_reads(status: NodeStatus, node: Mapping[str, str], into: Gathering) -> None:
    for cover in Cover if status.coverage else ():
        total = sum(one.by_cover[cover] for one in status.coverage or ())
        into.add("page_reads", total, check=cover.value, **node)


def _show_counters(counters: Mapping[str, int], node: Mapping[str, str], into: Gathering) -> None:
    for name, value in counters.items():
        kind, *rest = name.split(".")
        row, labels = DETAILED.get(kind, ("", ()))
        if name in PLAIN:
            into.add(PLAIN[name], value, **node)
        elif name in EVENTS:
            into.add("node_events", value, name=name, **node)
        elif row and len(labels) == len(rest) and _are_known(labels, rest):
            into.add(row, value, **node, **dict(zip(labels, rest, strict=True)))


def _are_known(labels: Iterable[str], values: Iterable[str]) -> bool:
    return all(v in DETAILS[label] for label, v in zip(labels, values, strict=True))
