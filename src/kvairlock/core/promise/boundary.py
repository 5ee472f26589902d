"""Requests that are one token over what a route's nodes hold, and how the nodes must refuse them.

    decode-0 holds 512 tokens, prefill-0 holds 256, both can land

    prompt 1, max_tokens 512    decode-0 must refuse: 513 tokens, its limit is 512
    prompt 257, max_tokens 1    decode-0 holds it and grants; prefill-0 must refuse: 257, 256

A request meets a limit only if nothing in front of it refuses first. Whoever sends these requests
goes past the gateway's own check, as if the promise were larger than the pools again. A limit that
no request meets is rehearsed: its node is asked what it would refuse. So each node is asked for one
token more than the tightest of its limits, whatever the other node holds.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum

from kvairlock.core.errors import Refusal
from kvairlock.core.promise.admission import judge_decode, judge_prefill
from kvairlock.core.promise.capacity import CapacityReport, Demand
from kvairlock.core.terms import NodeName


class Way(StrEnum):
    """How a node is asked for more than it holds."""

    REQUEST = "request"
    """By a request, on the way that all requests take."""
    REHEARSAL = "rehearsal"
    """By asking how it would judge one."""


@dataclass(frozen=True, slots=True)
class Boundary:
    """One limit of one node, and the smallest request that is over it.

    Args:
        node: The node that must refuse.
        demand: The request: with one token less the node would take it.
        refusal: What the node must answer, with the figures of its own report.
        ways: How the node can be asked.
    """

    node: NodeName
    demand: Demand
    refusal: Refusal
    ways: tuple[Way, ...]


def boundaries(
    prefill: CapacityReport, decode: CapacityReport, prompt_tokens_max: int
) -> tuple[Boundary, ...]:
    """Return the limits of a route's nodes that can be asked for, decode's first.

    Args:
        prefill: The prefill node's report.
        decode: The decode node's report.
        prompt_tokens_max: The longest prompt that can be sent.
    """
    found: dict[tuple[NodeName, str | None], Boundary] = {}
    for report, demand in _over(prefill, decode):
        judge = judge_decode if report is decode else judge_prefill
        if (refusal := judge(report, demand)) is None:
            continue
        met = report is decode or judge_decode(decode, demand) is None
        sent = met and demand.prompt_tokens <= prompt_tokens_max
        ways = (Way.REQUEST, Way.REHEARSAL) if sent else (Way.REHEARSAL,)
        name = report.node, refusal.limit_name
        found.setdefault(name, Boundary(report.node, demand, refusal, ways))
    return tuple(found.values())


def _over(
    prefill: CapacityReport, decode: CapacityReport
) -> Iterable[tuple[CapacityReport, Demand]]:
    """Return the smallest requests over a limit: by their answer, by their prompt."""
    yield decode, _first(decode, lambda tokens: Demand(1, tokens), judge_decode)
    yield decode, _first(decode, lambda tokens: Demand(tokens, 1), judge_decode)
    yield prefill, _first(prefill, lambda tokens: Demand(tokens, 1), judge_prefill)


def _first(
    report: CapacityReport,
    ask: Callable[[int], Demand],
    judge: Callable[[CapacityReport, Demand], Refusal | None],
) -> Demand:
    """Return the first request that a node refuses: what is longer than it is refused too."""

    def refused(tokens: int) -> bool:
        return judge(report, ask(tokens)) is not None

    # One more than the pool has slots for is always too much.
    return ask(1 + bisect(range(1, report.tokens + 1), False, key=refused))
