"""What a drill may say: its names exist, its guards can be missed, its limits cover what it does.

A drill is refused as a whole before anything is started. What only the running stack knows, the
length of a prompt that fills its promise, is held against the limits when it is asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from kvairlock.core.errors import KvairlockError
from kvairlock.core.evidence import EVENTS
from kvairlock.core.terms import Role
from kvairlock.drills.canaries import FRAME_CHARACTERS
from kvairlock.drills.library.drill import ANY, EVERY, Drill, Expectation, Sighting, Trace
from kvairlock.drills.library.sights import Sight
from kvairlock.drills.library.steps import (
    PROMPT_CHARACTERS,
    AnyStep,
    Arm,
    Ask,
    Crowd,
    Fills,
    Held,
    Recorded,
    Release,
    Resume,
    Stop,
    asks_of,
    named,
)
from kvairlock.drills.library.topology import Topology
from kvairlock.runtime.failpoints import FailpointError, point_named

ANYBODY_FILLS = (Fills.PREFILL, Fills.DECODE)
"""What can only be filled on a route that is named."""


class DrillWrong(KvairlockError):
    """A drill that cannot be carried out as it is written; the message says where and why."""

    code = "drill_wrong"

    def __init__(self, drill: str, message: str) -> None:
        super().__init__(f"{drill}: {message}")


def check(drill: Drill) -> None:
    """Refuse a drill that contradicts itself, or names what is not there.

    Raises:
        DrillWrong: The message names the drill, and the step if it is one.
    """
    for trouble in _troubles(drill):
        raise DrillWrong(drill.name, trouble)


def _troubles(drill: Drill) -> Iterator[str]:
    yield from _guards(drill)
    asked: list[str] = []
    for number, step in enumerate(drill.steps, start=1):
        for trouble in _step(step, drill.stack, asked):
            yield f"step {number}: {trouble}"
        asked += _introduced(step)
    yield from _pairs(drill.steps)
    for expectation in drill.holds:
        yield from _expectation(expectation, drill.stack, asked)
    for sighting in drill.shows:
        yield from _known("request", [sighting.request], [*asked, EVERY, ANY])
    yield from _limits(drill)


# Guards


def _guards(drill: Drill) -> Iterator[str]:
    both = sorted(drill.about & set(drill.shadows))
    if both:
        yield f"{both[0]} cannot be its own shadow"
    if bool(drill.shows) is not bool(drill.about):
        yield "`shows` says what is seen without its guards: it is there exactly if it has some"
    if drill.shows and all(map(partial(_is_held, drill.holds), drill.shows)):
        yield "what must be seen without its guards is what must be seen with them"


def _is_held(holds: Iterable[Expectation], sighting: Sighting) -> bool:
    of = [wanted for wanted in holds if wanted.request in (sighting.request, EVERY)]
    return any(wanted.sight is sighting.sight for wanted in of)


# Steps


def _step(step: AnyStep, stack: Topology, asked: Sequence[str]) -> Iterator[str]:
    yield from _known("node", named(step, "node"), _writers(step, stack))
    yield from _known("route", named(step, "route"), stack.routes)
    match step:
        case Ask() | Crowd():
            yield from _asking(step, asked)
        case Arm(_, point) | Release(_, point) | Held(_, point):
            yield from _point(point)
        case Recorded():
            yield from _known("event", step.events, EVENTS)
        case _:
            yield from _known("request asked before", named(step, "request", "other"), asked)


def _writers(step: AnyStep, stack: Topology) -> Iterable[str]:
    """Any process records, but only nodes can be held and stopped."""
    return (*stack.nodes, Role.GATEWAY) if isinstance(step, Recorded) else stack.nodes


def _asking(step: Ask | Crowd, asked: Sequence[str]) -> Iterator[str]:
    if step.request in (EVERY, ANY) or step.request in asked:
        yield f"a request cannot be called {step.request} here"
    yield from _known("request asked before", named(step, "same_as", "ticket_of"), asked)
    for ask in asks_of((step,)):
        yield from _length(ask)


def _length(ask: Ask) -> Iterator[str]:
    if sum((ask.characters is not None, ask.fills is not None, bool(ask.same_as))) > 1:
        yield "the length of a prompt is said once: `characters`, `fills` or `same_as`"
    if ask.over and ask.fills is None:
        yield "`over` goes with `fills`"
    if ask.fills in ANYBODY_FILLS and not ask.route:
        yield f"`fills = {ask.fills}` needs a `route`"
    if characters_of(ask) < FRAME_CHARACTERS + ask.alike:
        yield f"a prompt takes {FRAME_CHARACTERS} characters for its canary, and `alike`"


def characters_of(ask: Ask) -> int:
    """Return how long a prompt is as it is written; one that fills something is as long as that."""
    if ask.fills is not None:
        return FRAME_CHARACTERS + ask.alike
    return PROMPT_CHARACTERS if ask.characters is None else ask.characters


def _point(name: str) -> Iterator[str]:
    try:
        point_named(name)
    except FailpointError as error:
        yield str(error)


def _introduced(step: AnyStep) -> list[str]:
    """Return the names that can be used from here on."""
    crowd = [step.request] if isinstance(step, Crowd) else []
    return crowd + [ask.request for ask in asks_of((step,))]


def _pairs(steps: Iterable[AnyStep]) -> Iterator[str]:
    """What is armed is released, and what is stopped goes on: stacks serve more than one drill."""
    left: dict[str, str] = {}
    for step in steps:
        match step:
            case Arm(node, point):
                left[f"{node} {point}"] = f"{point} of {node} is armed and never released"
            case Release(node, point):
                left.pop(f"{node} {point}", None)
            case Stop(node):
                left[node] = f"{node} is stopped and never goes on"
            case Resume(node):
                left.pop(node, None)
            case _:
                pass
    yield from left.values()


# What must hold


def _expectation(wanted: Expectation, stack: Topology, requests: Sequence[str]) -> Iterator[str]:
    yield from _known("request", [wanted.request], [*requests, EVERY])
    if (wanted.reason is not None) is not (wanted.sight is Sight.REFUSED):
        yield f"{wanted.request}: a refusal has a `reason`, and nothing else has one"
    if wanted.stage is not None and wanted.reason is None:
        yield f"{wanted.request}: a `stage` goes with a `reason`"
    if wanted.recorded is not None:
        yield from _trace(wanted.recorded, stack, requests)


def _trace(trace: Trace, stack: Topology, requests: Sequence[str]) -> Iterator[str]:
    yield from _known("node", [trace.node], (*stack.nodes, Role.GATEWAY))
    yield from _known("event", [trace.event], EVENTS)
    row = EVENTS.get(trace.event, {})
    yield from _known(f"field of {trace.event}", trace.fields, row)
    if ("request" in row) is not bool(trace.request):
        yield f"{trace.event}: it names a request exactly if the event is about one"
    yield from _known("request", filter(None, [trace.request]), requests)


# Limits


def _limits(drill: Drill) -> Iterator[str]:
    limits, asks = drill.limits, drill.asks
    yield from _over("tenants", len(drill.tenants), limits.tenants_max)
    yield from _over("requests", len(asks), limits.requests_max)
    least, most = limits.prompt_tokens
    if least > most:
        yield f"limits: prompt_tokens from {least} to {most}"
    for ask in asks:
        if ask.fills is None and not least <= characters_of(ask) <= most:
            yield (
                f"{ask.request}: a prompt of {characters_of(ask)} tokens is beyond "
                f"limits.prompt_tokens, {least} to {most}"
            )


def _over(what: str, count: int, most: int) -> Iterator[str]:
    if count > most:
        yield f"{count} {what} are beyond limits.{what}_max, {most}"


def _known(what: str, names: Iterable[str], known: Iterable[str]) -> Iterator[str]:
    there = list(known)
    for name in names:
        if name not in there:
            yield f"no {what} is called {name}; there are: {', '.join(there) or 'none'}"
