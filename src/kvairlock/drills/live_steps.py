"""A schedule for live processes as data: who asks, who is held where, what is waited for.

The steps are carried out in order, from outside: over HTTP, by signals and failpoints, watching the
evidence. No step sleeps to synchronise; only `Pass` lets time go by, where a deadline is meant to.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Arm:
    """Arm a failpoint or flaw of a node.

    Args:
        node: Which node.
        point: Which point.
        after: How many arrivals pass first.
    """

    node: str
    point: str
    after: int = 0


@dataclass(frozen=True, slots=True)
class Release:
    """Disarm it, and let go whoever is held there."""

    node: str
    point: str


@dataclass(frozen=True, slots=True)
class Hold:
    """Wait until somebody is held there."""

    node: str
    point: str


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask, and go on at once.

    Args:
        who: Name of the request in the schedule.
        tenant: Whose key is used.
        via: `PREFILL/DECODE` to take; empty for the gateway's choice.
        characters: Length of the prompt.
        beginning: How the prompt begins, for requests that share it.
        max_tokens: Tokens to generate; the default is a canary and its end.
        like: A request whose prompt is asked again; empty for one of its own.
        ticket: A request whose ticket is presented; empty for none.
        shows: Whether its own ticket is to be shown.
    """

    who: str
    tenant: str
    via: str = ""
    characters: int = 120
    beginning: str = ""
    max_tokens: int = 17
    like: str = ""
    ticket: str = ""
    shows: bool = False


@dataclass(frozen=True, slots=True)
class Answered:
    """Wait for the end of a request."""

    who: str


@dataclass(frozen=True, slots=True)
class Leave:
    """Its client goes away."""

    who: str


@dataclass(frozen=True, slots=True)
class Recorded:
    """Wait for evidence since the last request was asked.

    Args:
        events: Any of these will do.
        tenant: Whose record it must be; empty for anybody's.
        node: Who must have written it; empty for any node.
    """

    events: tuple[str, ...]
    tenant: str = ""
    node: str = ""


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop a process where it is."""

    node: str


@dataclass(frozen=True, slots=True)
class Resume:
    """Let it go on."""

    node: str


@dataclass(frozen=True, slots=True)
class Pass:
    """Let time pass: a deadline is to be over."""

    ms: int


@dataclass(frozen=True, slots=True)
class Idle:
    """Wait until nothing is open, and all pages are free or kept as prefixes."""


@dataclass(frozen=True, slots=True)
class Look:
    """Look at the slots behind a prompt in a node's pool, which is a shared file (policy direct).

    Args:
        who: Whose prompt.
        other: Who may have left something there.
        node: Whose pool.
    """

    who: str
    other: str
    node: str


Step = Arm | Release | Hold | Ask | Answered | Leave | Recorded | Stop | Resume | Pass | Idle | Look
