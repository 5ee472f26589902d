"""Asks the nodes of a route for one token more than they hold, past the gateway's own check.

    reports -> boundaries -+-> desk, as if the promise were larger than the pools again -> ends
                           +-> Rehearse: the node itself, also for what no request can meet

The prompts are drawn and mean nothing. What is looked at is the receiver's own refusal: it must
come from the node whose limit it is, with the figures of that node's report, and nothing may have
been computed. Anything else, an answer above all, shows that only the gateway was in the way.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import anyio
import numpy as np

from kvairlock.core.errors import Refusal
from kvairlock.core.messages import GREEDY, Chunk, Ended, Rehearse
from kvairlock.core.promise.boundary import Boundary, Way
from kvairlock.core.terms import Owner, Route
from kvairlock.gateway.asked import Asked
from kvairlock.gateway.attempts import record_admitted
from kvairlock.gateway.errors import refusal_of
from kvairlock.gateway.nodes import NodeDown
from kvairlock.gateway.parts import Parts
from kvairlock.runtime.recording import Value

ATTEMPT = 1
NOBODY = ""
"""Who may share the prefix pages of a replay."""

DRILL = "recovery"
"""Whose requests replays are, to an audit."""


class Answer(StrEnum):
    """What came of one replay."""

    REFUSED = "refused"
    """By the node whose limit it is, with its figures, and nothing was computed."""
    OTHERWISE = "otherwise"
    """It was refused, but not by that node, not for that, or not before something was computed."""
    ANSWERED = "answered"
    """It was served, or would have been."""
    SILENT = "silent"
    """Nothing came in time."""
    UNSENT = "unsent"
    """It did not get to the nodes: that says nothing about them."""
    NO_FORM = "no_form"
    """The node speaks a version that has no form for the question: that says nothing about it."""


SAYS_NOTHING = frozenset({Answer.UNSENT, Answer.NO_FORM})
"""Answers that are no evidence, neither for a node nor against it."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """One boundary and what came of it.

    Args:
        boundary: What was asked, and how it must be refused.
        way: How the node was asked.
        answer: What came of it.
        got: The refusal that came, if one did.
    """

    boundary: Boundary
    way: Way
    answer: Answer
    got: Refusal | None = None

    def __str__(self) -> str:
        """Return it as a sentence with its figures."""
        must, node = self.boundary.refusal, self.boundary.node
        limit = f"{must.limit_name} is {must.limit}"
        asked = f"by {self.way} asked for {must.asked} tokens ({limit}), {node}"
        if self.got is None:
            return f"{asked}: {self.answer}"
        got = self.got
        figures = f"{got.asked} over {got.limit} ({got.limit_name})"
        return f"{asked}: {self.answer}, {got.reason} at {got.stage}, {figures}"


async def replay(
    parts: Parts, route: Route, tenant: str, boundaries: Sequence[Boundary]
) -> tuple[Replayed, ...]:
    """Ask for each boundary in each of its ways, all at one time; return what came of them.

    Args:
        parts: The gateway.
        route: The route.
        tenant: Whose requests they are: the operator's.
        boundaries: What to ask for.
    """
    asked = [(boundary, way) for boundary in boundaries for way in boundary.ways]
    came: dict[tuple[Boundary, Way], Replayed] = {}

    async def ask(boundary: Boundary, way: Way) -> None:
        owner = Owner(tenant, f"replay-{secrets.token_hex(16)}", ATTEMPT)
        came[boundary, way] = await _WAYS[way](parts, route, owner, boundary)
        _record(parts, route, owner, came[boundary, way])

    async with anyio.create_task_group() as tasks:
        for boundary, way in asked:
            tasks.start_soon(ask, boundary, way)
    return tuple(came[each] for each in asked)


async def _by_request(parts: Parts, route: Route, owner: Owner, boundary: Boundary) -> Replayed:
    asked = _request(parts, boundary)
    sent = parts.desk.submit(owner, NOBODY, asked, route)
    if isinstance(sent, Refusal):
        return Replayed(boundary, Way.REQUEST, Answer.UNSENT, sent)
    parts.evidence.record("drill_requested", owner, {"drill": DRILL})
    record_admitted(parts, owner, asked)
    limits = parts.settings.limits
    try:
        # A refusal takes no longer than pages for the prompt may be waited for.
        with anyio.move_on_after((limits.queue_ms + limits.lost_ms) / 1000):
            return _ended(boundary, await sent.next())
        return Replayed(boundary, Way.REQUEST, Answer.SILENT)
    finally:
        parts.desk.leave(sent)


async def _by_rehearsal(parts: Parts, route: Route, owner: Owner, boundary: Boundary) -> Replayed:
    node, way = boundary.node, Way.REHEARSAL
    question = _question(route, owner, boundary)
    with parts.nodes.rehearsals.asking(node, question.name) as arrives:
        try:
            if not parts.nodes.can_say(node, Rehearse):
                return Replayed(boundary, way, Answer.NO_FORM)
            parts.nodes.post(node, question)
        except NodeDown:
            return Replayed(boundary, way, Answer.UNSENT)
        with anyio.move_on_after(parts.settings.limits.lost_ms / 1000):
            return _judged(boundary, way, (await arrives.get()).refusal)
        return Replayed(boundary, way, Answer.SILENT)


_WAYS = {Way.REQUEST: _by_request, Way.REHEARSAL: _by_rehearsal}


def _question(route: Route, owner: Owner, boundary: Boundary) -> Rehearse:
    demand = boundary.demand
    partner = route.decode if boundary.node == route.prefill else route.prefill
    return Rehearse(
        name=owner.transfer,
        partner=partner,
        prompt_tokens=demand.prompt_tokens,
        max_tokens=demand.max_tokens,
        choices=demand.choices,
    )


def _ended(boundary: Boundary, came: Chunk | Ended) -> Replayed:
    if isinstance(came, Chunk):
        return Replayed(boundary, Way.REQUEST, Answer.ANSWERED)
    judged = _judged(boundary, Way.REQUEST, refusal_of(came))
    idle = not came.computed_tokens and not came.generated_tokens
    if judged.answer is Answer.REFUSED and not idle:
        return replace(judged, answer=Answer.OTHERWISE)
    return judged


def _judged(boundary: Boundary, way: Way, got: Refusal | None) -> Replayed:
    if got is None:
        return Replayed(boundary, way, Answer.ANSWERED)
    same = _figures(got) == _figures(boundary.refusal)
    return Replayed(boundary, way, Answer.REFUSED if same else Answer.OTHERWISE, got)


def _figures(refusal: Refusal) -> tuple[object, ...]:
    return refusal.reason, refusal.stage, refusal.asked, refusal.limit, refusal.limit_name


def _request(parts: Parts, boundary: Boundary) -> Asked:
    demand, vocab_size = boundary.demand, parts.offer.tokenizer.vocab_size
    drawn = np.random.default_rng().integers(0, vocab_size, demand.prompt_tokens, dtype=np.int32)
    return Asked(
        model=parts.offer.model,
        prompt_tokens=drawn,
        max_tokens=demand.max_tokens,
        enough_tokens=demand.max_tokens,
        n=demand.choices,
        stop=(),
        sampling=GREEDY,
        alternatives=None,
        stream=False,
        include_usage=False,
        ignored=(),
    )


def _record(parts: Parts, route: Route, owner: Owner, came: Replayed) -> None:
    demand, got = came.boundary.demand, came.got
    fields: dict[str, Value] = {
        "route": str(route),
        "limit_of": came.boundary.node,
        "way": came.way.value,
        "prompt_tokens": demand.prompt_tokens,
        "max_tokens": demand.max_tokens,
        "answer": came.answer.value,
        "reason": got.reason.value if got else "",
        "stage": got.stage.value if got else "",
        "asked": got.asked if got else None,
        "limit": got.limit if got else None,
        "limit_name": got.limit_name if got else None,
    }
    parts.evidence.record("boundary_replayed", owner, fields)
