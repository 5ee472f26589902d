"""The state of a world as a value, the moves between states, and the faults that are left."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import NamedTuple

from kvairlock.core.terms import NodeName, Peer, Role
from kvairlock.sim.outcome import Violation
from kvairlock.sim.setup import Setup, peer_of
from kvairlock.sim.stimuli import Work
from kvairlock.sim.turns import StateId, Turn


class Progress(IntEnum):
    """Where a request is, as its client and the gateway see it."""

    UNSENT = 0
    ASKED = 1
    OFFERED = 2
    SENT = 3
    LEFT = 4
    LEFT_ENDED = 5
    ENDED = 6
    COMPLETED = 7


OPEN = frozenset({Progress.ASKED, Progress.OFFERED, Progress.SENT, Progress.LEFT})
"""Where an end is still to come."""


class Link(IntEnum):
    """Where a link between two nodes is, and who of them knows."""

    UP = 0
    CUT = 1
    DECODE_KNOWS = 2
    PREFILL_KNOWS = 3
    DECODE_GONE = 4
    PREFILL_GONE = 5
    DOWN = 6


class Budget(NamedTuple):
    """How many faults of each kind may still happen.

    Args:
        crashes: A process ends and starts again.
        drops: A message is lost.
        duplicates: A message comes twice, the second time later.
        reorders: A message comes after what was sent after it.
        suspensions: A process stands still for longer than all deadlines.
        timeouts: A deadline passes although what is waited for would still come.
        cancels: A client leaves.
        cuts: A link breaks, and is there again later.
        forgeries: Somebody without the key sends a message.
        copies: A copy of an ended write lands once more.
    """

    crashes: int = 0
    drops: int = 0
    duplicates: int = 0
    reorders: int = 0
    suspensions: int = 0
    timeouts: int = 0
    cancels: int = 0
    cuts: int = 0
    forgeries: int = 0
    copies: int = 0

    def less(self, kind: str) -> Budget:
        """Return what is left after one fault."""
        return self._replace(**{kind: getattr(self, kind) - 1})


class State(NamedTuple):
    """Everything that decides what can happen next.

    Args:
        sites: State of each site.
        lives: Which life each site is in.
        asleep: Whether each site is suspended.
        links: Where each link is.
        wires: Numbers of the parcels on each wire, two wires a link: to decode, to prefill.
        progress: Where each request is.
        offers: For each request one more than the number of its transfer ticket; 0 for none (pull).
        left: Faults that may still happen.
    """

    sites: tuple[StateId, ...]
    lives: tuple[int, ...]
    asleep: tuple[bool, ...]
    links: tuple[Link, ...]
    wires: tuple[tuple[int, ...], ...]
    progress: tuple[Progress, ...]
    offers: tuple[int, ...]
    left: Budget


class Kind(StrEnum):
    """Kinds of moves. What `at` is depends on them: a request, a wire, a site or a link."""

    SUBMIT = "submit"
    REFER = "refer"
    DELIVER = "deliver"
    WORK = "work"
    WAKE = "wake"
    NOTICE = "notice"
    JOIN = "join"
    PASS = "pass"  # noqa: S105 time does
    RESTART = "restart"
    CANCEL = "cancel"
    EXPIRE = "expire"
    DROP = "drop"
    REPEAT = "repeat"
    REORDER = "reorder"
    SUSPEND = "suspend"
    CRASH = "crash"
    CUT = "cut"
    FORGE = "forge"
    COPY = "copy"


SPENDS: dict[Kind, str] = {
    Kind.CANCEL: "cancels",
    Kind.EXPIRE: "timeouts",
    Kind.DROP: "drops",
    Kind.REPEAT: "duplicates",
    Kind.REORDER: "reorders",
    Kind.SUSPEND: "suspensions",
    Kind.CRASH: "crashes",
    Kind.CUT: "cuts",
    Kind.FORGE: "forgeries",
    Kind.COPY: "copies",
}
"""Moves that are faults, and what they spend."""


class Move(NamedTuple):
    """One thing that happens.

    Args:
        kind: What.
        at: Which request, wire, site or link.
        work: Which work, for `WORK` and `COPY`.
        which: Which of several, for `FORGE`.
    """

    kind: Kind
    at: int
    work: Work | None = None
    which: int = 0


@dataclass(frozen=True, slots=True)
class Step:
    """A state, and what the move to it showed.

    Args:
        state: The state.
        turns: The turns of sites, with their place, in order.
        violations: What must never be.
        sometimes: Rare states that the world was in; those of sites are in their turns.
    """

    state: State
    turns: tuple[tuple[int, Turn], ...]
    violations: tuple[Violation, ...]
    sometimes: tuple[str, ...]


class Topology:
    """Which sites, links and wires a world has.

    Args:
        setup: What it is made of.
    """

    def __init__(self, setup: Setup) -> None:
        decodes, prefills = range(setup.decodes), range(setup.prefills)
        self.nodes = [(Role.DECODE, n) for n in decodes] + [(Role.PREFILL, n) for n in prefills]
        self.links = [(d, setup.decodes + p) for d in decodes for p in prefills]
        """The places of each link, decode first."""
        self.wires = [ends for d, p in self.links for ends in ((p, d), (d, p))]
        """From where to where each wire leads."""
        self.wire_of = {ends: number for number, ends in enumerate(self.wires)}
        self.place_of: dict[NodeName, int] = {
            peer_of(role, number, 1).node: place for place, (role, number) in enumerate(self.nodes)
        }
        self.links_of = [
            [number for number, ends in enumerate(self.links) if place in ends]
            for place in range(len(self.nodes))
        ]
        self._peers: dict[tuple[int, int], Peer] = {}

    def peer(self, place: int, life: int) -> Peer:
        """Return the name of one life of a site."""
        known = self._peers.get((place, life))
        if known is None:
            role, number = self.nodes[place]
            known = self._peers[place, life] = peer_of(role, number, life)
        return known
