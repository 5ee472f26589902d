"""Version 1 of the messages, as 0.1.0 says them: the forms that differ now, and what they mean.

    what a 0.1.0 node says  ->  form of version 1  --up-->    message of today
    what a 0.1.0 node hears <-  form of version 1  <--down--  message of today

Nothing here is guessed. `up` gives what version 1 defines, or that it says nothing: what a node
does not state is unknown, and whoever needs it must treat it as missing. `down` leaves out what no
process of version 1 acts on. All other messages are the same in both versions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from kvairlock.core import messages
from kvairlock.core.ends import End
from kvairlock.core.errors import Refusal
from kvairlock.core.messages import Message
from kvairlock.core.promise import capacity
from kvairlock.core.terms import Incarnation, NodeName, Reader, Role, TransferId, WindowId


@dataclass(frozen=True, slots=True)
class CapacityReport:
    """A capacity report as version 1 has it; the fields are those of today's."""

    node: NodeName
    role: Role
    incarnation: Incarnation
    fingerprint: str
    page_tokens: int
    pages: int
    landing_pages: int
    context_tokens: int


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """A node's figures as version 1 has them; the fields are those of today's."""

    report: CapacityReport
    pages: dict[str, int]
    windows: int
    windows_draining: int
    requests: dict[str, int]
    links: tuple[NodeName, ...]
    counters: dict[str, int]
    fences: dict[str, int]
    points: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a request as version 1 has it; the fields are those of today's."""

    transfer: TransferId
    end: End
    refusal: Refusal | None
    computed_tokens: int
    generated_tokens: int
    reused_tokens: int


@dataclass(frozen=True, slots=True)
class Submit:
    """A request as version 1 asks for it: it is never traced. The fields are those of today's.

    Raises:
        ValueError: When made with an impossible number of alternatives.
    """

    ticket: bytes
    tenant: str
    transfer: TransferId
    tokens: bytes
    max_tokens: int
    choices: int
    stop: tuple[bytes, ...]
    sampling: messages.Sampling
    alternatives: int | None
    prefill: NodeName
    nonce: str

    def __post_init__(self) -> None:
        messages.check_alternatives(self.alternatives)


@dataclass(frozen=True, slots=True)
class Grant:
    """A grant as version 1 has it, not traced; the fields are those of today's."""

    transfer: TransferId
    ticket: bytes
    tokens: bytes
    window: WindowId
    file: int
    offsets: tuple[int, ...]
    generations: tuple[int, ...]
    layout: str
    seed: int
    patience_ms: int


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim as version 1 has it, not traced; the fields are those of today's."""

    transfer: TransferId
    ticket: bytes
    offer: bytes
    tenant: str
    input_digest: bytes
    prompt_tokens: int
    nonce: str
    generations: tuple[int, ...]
    reader: Reader


TYPES: dict[str, type[Any]] = {
    "submit": Submit,
    "cancel": messages.Cancel,
    "grant": Grant,
    "withdraw": messages.Withdraw,
    "released": messages.Released,
    "receipt": messages.Receipt,
    "ruling": messages.Ruling,
    "claim": Claim,
    "lent": messages.Lent,
    "validate": messages.Validate,
    "validated": messages.Validated,
    "release": messages.Release,
    "returned": messages.Returned,
    "chunk": messages.Chunk,
    "ended": Ended,
    "nodestatus": NodeStatus,
    "inspect": messages.Inspect,
    "beat": messages.Beat,
    "drill": messages.Drill,
}
"""Every message of version 1, by its name on the wire. It is closed: nothing is ever added."""


def up(said: Any) -> Message:
    """Return the message that something said in version 1 is."""
    match said:
        case NodeStatus():
            return _status_up(said)
        case Ended():
            return _ended_up(said)
        case Submit():
            return messages.Submit(**_fields(said), trace="")
        case Grant():
            return messages.Grant(**_fields(said), trace="")
        case Claim():
            return messages.Claim(**_fields(said), trace="")
        case _:
            message: Message = said
            return message


def down(message: Message) -> Any:
    """Return what is said in version 1 for a message that it has."""
    match message:
        case messages.NodeStatus():
            return _status_down(message)
        case messages.Ended():
            return _ended_down(message)
        case messages.Submit():
            return Submit(**_fields(message, but="trace"))
        case messages.Grant():
            return Grant(**_fields(message, but="trace"))
        case messages.Claim():
            return Claim(**_fields(message, but="trace"))
        case _:
            return message


def _fields(of: Any, but: str = "") -> dict[str, Any]:
    """Return the fields of a message or a form by name, all but one."""
    return {f.name: getattr(of, f.name) for f in fields(of) if f.name != but}


def _ended_up(said: Ended) -> messages.Ended:
    return messages.Ended(
        transfer=said.transfer,
        end=said.end,
        refusal=said.refusal,
        computed_tokens=said.computed_tokens,
        generated_tokens=said.generated_tokens,
        reused_tokens=said.reused_tokens,
        recovered_from=None,
    )


def _ended_down(message: messages.Ended) -> Ended:
    return Ended(
        transfer=message.transfer,
        end=message.end,
        refusal=message.refusal,
        computed_tokens=message.computed_tokens,
        generated_tokens=message.generated_tokens,
        reused_tokens=message.reused_tokens,
    )


def _status_up(said: NodeStatus) -> messages.NodeStatus:
    return messages.NodeStatus(
        report=_report_up(said.report),
        pages=said.pages,
        windows=said.windows,
        windows_draining=said.windows_draining,
        requests=said.requests,
        links=said.links,
        counters=said.counters,
        fences=said.fences,
        window_fences=None,
        points=said.points,
        relaxed=None,
        coverage=None,
        waits=None,
    )


def _status_down(status: messages.NodeStatus) -> NodeStatus:
    return NodeStatus(
        report=_report_down(status.report),
        pages=status.pages,
        windows=status.windows,
        windows_draining=status.windows_draining,
        requests=status.requests,
        links=status.links,
        counters=status.counters,
        fences=_added(status.fences, status.window_fences or {}),
        points=status.points,
    )


def _added(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {name: one.get(name, 0) + other.get(name, 0) for name in {**one, **other}}


def _report_up(said: CapacityReport) -> capacity.CapacityReport:
    """Figures of a 0.1.0 node never change during its life, so there is one epoch, the first.

    It counts windows by its descriptors but does not say how many: 0, as where nobody counts them.
    """
    return capacity.CapacityReport(
        node=said.node,
        role=said.role,
        incarnation=said.incarnation,
        epoch=0,
        fingerprint=said.fingerprint,
        basis=None,
        page_tokens=said.page_tokens,
        pages=said.pages,
        landing_pages=said.landing_pages,
        windows=0,
        context_tokens=said.context_tokens,
        groups=(),
    )


def _report_down(report: capacity.CapacityReport) -> CapacityReport:
    return CapacityReport(
        node=report.node,
        role=report.role,
        incarnation=report.incarnation,
        fingerprint=report.fingerprint,
        page_tokens=report.page_tokens,
        pages=report.pages,
        landing_pages=report.landing_pages,
        context_tokens=report.context_tokens,
    )
