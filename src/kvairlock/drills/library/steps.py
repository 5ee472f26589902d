"""The steps of a drill as data: who asks, who is held where, what is waited for.

They are read from TOML, one table each, told apart by `do`, and carried out in order, from outside:
over HTTP, by signals and failpoints, watching the evidence. No step sleeps to synchronise; only
`pass` lets time go by, where a deadline is meant to.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import msgspec
from msgspec import Meta

CANARY_TOKENS = 17
"""A canary and its end."""

PROMPT_CHARACTERS = 120
"""Length of a prompt whose length does not matter."""

Name = Annotated[str, Meta(pattern="^[a-z][a-z0-9_-]{0,31}$")]
Count = Annotated[int, Meta(ge=0)]
Size = Annotated[int, Meta(ge=1)]


class Fills(StrEnum):
    """What a prompt fills to the last token: figures that the running stack states of itself."""

    PROMISE = "promise"
    """The context window that the gateway publishes, together with `max_tokens`."""
    PREFILL = "prefill"
    """The pool of the route's prefill node."""
    DECODE = "decode"
    """The pool of the route's decode node, together with `max_tokens`."""


class Step(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="do", tag=str.lower):
    """One thing to do, or to wait for."""


class Arm(Step, frozen=True):
    """Arm a failpoint or flaw of a node.

    Args:
        node: Which node.
        point: Which point.
        after: How many arrivals pass first.
    """

    node: Name
    point: str
    after: Count = 0


class Release(Step, frozen=True):
    """Disarm it, and let go whoever is held there."""

    node: Name
    point: str


class Held(Step, frozen=True):
    """Wait until somebody is held there."""

    node: Name
    point: str


class Ask(Step, frozen=True):
    """Ask, and go on at once.

    Args:
        request: Its name in the drill.
        tenant: Whose key is used.
        route: `PREFILL/DECODE` to take; the gateway's choice if left out.
        characters: Length of the prompt; 120 where nothing else says it.
        fills: What the prompt fills: `promise`, or `prefill` or `decode`, the pools of the route.
        over: Tokens by which it goes over what it fills.
        alike: Characters at its beginning that all prompts with it have in common.
        max_tokens: Tokens to generate.
        same_as: A request whose prompt is asked again.
        ticket_of: A request whose ticket is presented, as a client must not.
    """

    request: Name
    tenant: Name
    route: str = ""
    characters: Size | None = None
    fills: Fills | None = None
    over: Count = 0
    alike: Count = 0
    max_tokens: Size = CANARY_TOKENS
    same_as: str = ""
    ticket_of: str = ""


class Crowd(Step, frozen=True):
    """Several tenants ask at the same time; their requests are NAME-1, NAME-2 and so on.

    Args:
        request: NAME.
        tenants: Who asks.
        each: Requests of each.
        route: As for one request.
        characters: As for one request.
        fills: As for one request.
    """

    request: Name
    tenants: Annotated[tuple[Name, ...], Meta(min_length=1)]
    each: Size
    route: str = ""
    characters: Size | None = None
    fills: Fills | None = None

    @property
    def asks(self) -> tuple[Ask, ...]:
        """The single requests; those who ask take turns."""
        return tuple(
            Ask(f"{self.request}-{number}", tenant, self.route, self.characters, self.fills)
            for number, tenant in enumerate(self.tenants * self.each, start=1)
        )


class Answered(Step, frozen=True):
    """Wait for the end of a request, or of all requests of a crowd."""

    request: Name


class Leave(Step, frozen=True):
    """The client of a request goes away."""

    request: Name


class Recorded(Step, frozen=True):
    """Wait for evidence since the last request was asked.

    Args:
        events: Any of these will do.
        tenant: Whose record it must be; empty for anybody's.
        node: Who must have written it; empty for any process.
    """

    events: Annotated[tuple[str, ...], Meta(min_length=1)]
    tenant: str = ""
    node: str = ""


class Stop(Step, frozen=True):
    """Stop a process where it is."""

    node: Name


class Resume(Step, frozen=True):
    """Let it go on."""

    node: Name


class Pass(Step, frozen=True):
    """Let time pass: a deadline is to be over."""

    ms: Size


class Idle(Step, frozen=True):
    """Wait until nothing is open, and all pages are free or kept as prefixes."""


class Look(Step, frozen=True):
    """Look at the slots behind a prompt in a node's pool, which is a shared file (policy direct).

    Args:
        request: Whose prompt.
        other: Who may have left something there.
        node: Whose pool.
    """

    request: Name
    other: Name
    node: Name


AnyStep = (
    Arm
    | Release
    | Held
    | Ask
    | Crowd
    | Answered
    | Leave
    | Recorded
    | Stop
    | Resume
    | Pass
    | Idle
    | Look
)
"""What a line of `steps` may be."""


def asks_of(steps: tuple[AnyStep, ...]) -> tuple[Ask, ...]:
    """Return all requests that steps make, in order."""
    found: list[Ask] = []
    for step in steps:
        match step:
            case Ask():
                found.append(step)
            case Crowd():
                found += step.asks
            case _:
                pass
    return tuple(found)


def named(step: AnyStep, *fields: str) -> tuple[str, ...]:
    """Return what a step says in fields of these names, as far as it has them and says anything."""
    values: list[Any] = [getattr(step, field, "") for field in fields]
    return tuple(value for value in values if value)
