"""Requests that are one token over what a route's nodes hold, and how the nodes must refuse them.

    decode-0 holds 512 tokens, prefill-0 holds 256, both can land

    prompt 1, max_tokens 512    decode-0 must refuse: 513 tokens, its limit is 512
    prompt 257, max_tokens 1    decode-0 holds it and grants; prefill-0 must refuse: 257, 256

A limit can only be tried if nothing in front of it refuses first. Whoever sends these requests goes
past the gateway's own check, as if the promise were larger than the pools again.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable
from dataclasses import dataclass

from kvairlock.core.errors import Refusal
from kvairlock.core.promise.admission import judge_decode, judge_prefill
from kvairlock.core.promise.capacity import CapacityReport, Demand
from kvairlock.core.terms import NodeName


@dataclass(frozen=True, slots=True)
class Boundary:
    """One limit of one node, and the smallest request that is over it.

    Args:
        node: The node that must refuse.
        demand: The request: with one token less the node would take it.
        refusal: What the node must answer, with the figures of its own report.
    """

    node: NodeName
    demand: Demand
    refusal: Refusal


def boundaries(prefill: CapacityReport, decode: CapacityReport) -> tuple[Boundary, ...]:
    """Return the limits of a route's nodes that a request can meet, decode's first.

    Args:
        prefill: The prefill node's report.
        decode: The decode node's report.
    """
    found: dict[tuple[NodeName, str | None], Boundary] = {}
    for each in (_of_context(decode), _of_prompt(decode), _of_prefill(prefill, decode)):
        if each is not None:
            found.setdefault((each.node, each.refusal.limit_name), each)
    return tuple(found.values())


def _of_context(decode: CapacityReport) -> Boundary | None:
    """The shortest prompt, with as long an answer as decode does not hold."""
    return _first(decode, lambda tokens: Demand(1, tokens), judge_decode, decode.tokens)


def _of_prompt(decode: CapacityReport) -> Boundary | None:
    """The shortest answer, after as long a prompt as decode does not hold, or cannot land."""
    return _first(decode, lambda tokens: Demand(tokens, 1), judge_decode, decode.tokens)


def _of_prefill(prefill: CapacityReport, decode: CapacityReport) -> Boundary | None:
    most = prefill.tokens + 1
    found = _first(prefill, lambda tokens: Demand(tokens, 1), judge_prefill, most)
    if found is None or judge_decode(decode, found.demand) is not None:
        return None
    return found


def _first(
    report: CapacityReport,
    ask: Callable[[int], Demand],
    judge: Callable[[CapacityReport, Demand], Refusal | None],
    most: int,
) -> Boundary | None:
    """Return the first request that a node refuses: what is longer than it is refused too."""

    def refused(tokens: int) -> bool:
        return judge(report, ask(tokens)) is not None

    demand = ask(1 + bisect(range(1, most + 1), False, key=refused))
    refusal = judge(report, demand)
    return None if refusal is None else Boundary(report.node, demand, refusal)
