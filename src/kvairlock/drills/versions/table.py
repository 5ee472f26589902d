"""Which versions may run together, as data: what is carried out, and what the docs print.

COMBINATIONS    gateway x prefill x decode, each of the earlier release or of this one: all serve
REPLACEMENTS    one node of a serving stack gives way to one of the earlier release, and back
INCOMPATIBLE    processes without a version in common: their route stays closed, others go on
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import product

from kvairlock.wire.versions import SPEAKS, UNSTATED, Versions

GATEWAY, PREFILL, DECODE = "gateway", "prefill-0", "decode-0"
SPARE_PREFILL, SPARE_DECODE = "prefill-1", "decode-1"
LATER: Versions = (SPEAKS[-1] + 1,)
"""What a release will speak that has dropped all versions of today."""


class Build(StrEnum):
    """Which release a process is started from."""

    OLD = "old"
    """The earlier one, 0.1.0."""
    NEW = "new"
    """This one."""

    @property
    def words(self) -> str:
        """Its name for people."""
        return "0.1.0" if self is Build.OLD else "this release"

    @property
    def speaks(self) -> Versions:
        """The versions of the messages that it speaks."""
        return UNSTATED if self is Build.OLD else SPEAKS


@dataclass(frozen=True, slots=True)
class Seat:
    """What is started under one name.

    Args:
        build: The release.
        speaks: The versions of the messages that it is made to speak; None for all it knows.
    """

    build: Build
    speaks: Versions | None = None


@dataclass(frozen=True, slots=True)
class Combination:
    """A stack of one route, each of whose processes is of one of two releases."""

    gateway: Build
    prefill: Build
    decode: Build

    @property
    def name(self) -> str:
        """Its name in reports."""
        return f"gateway-{self.gateway},prefill-{self.prefill},decode-{self.decode}"

    @property
    def seats(self) -> Mapping[str, Seat]:
        """What is started."""
        return {
            PREFILL: Seat(self.prefill),
            DECODE: Seat(self.decode),
            GATEWAY: Seat(self.gateway),
        }


COMBINATIONS = tuple(Combination(*builds) for builds in product(reversed(Build), repeat=3))
"""All that can be there at some moment of an upgrade or of a rollback, in any order."""


@dataclass(frozen=True, slots=True)
class Replacement:
    """A node of this release that gives way to one of the earlier, and takes its place again.

    Args:
        name: Its name in reports.
        process: The node.
    """

    name: str
    process: str

    @property
    def seats(self) -> Mapping[str, Seat]:
        """What is started: all of this release."""
        return Combination(Build.NEW, Build.NEW, Build.NEW).seats


REPLACEMENTS = (Replacement("rollback-decode", DECODE), Replacement("rollback-prefill", PREFILL))
"""Each time while a request is in flight there."""


@dataclass(frozen=True, slots=True)
class Incompatible:
    """A stack of two routes, of which one has no version in common.

    Args:
        name: Its name in reports.
        what: What there is, for people.
        seats: What is started.
        closed: The route that must stay closed.
        serves: The route that must go on.
        says: What the entry says about the closed route; empty where an older one says less.
        refuser: The process that must have recorded the refusal.
    """

    name: str
    what: str
    seats: Mapping[str, Seat]
    closed: str
    serves: str
    says: tuple[str, ...]
    refuser: str


_NEW, _OLD = Seat(Build.NEW), Seat(Build.OLD)
_ONLY_2, _ONLY_3 = Seat(Build.NEW, (2,)), Seat(Build.NEW, LATER)

INCOMPATIBLE = (
    Incompatible(
        name="decode-of-a-later-release",
        what="a decode node that speaks messages 3 only, under a gateway that speaks 1 and 2",
        seats={PREFILL: _NEW, DECODE: _NEW, SPARE_DECODE: _ONLY_3, GATEWAY: _NEW},
        closed=f"{PREFILL}/{SPARE_DECODE}",
        serves=f"{PREFILL}/{DECODE}",
        says=("messages 1, 2", "messages 3"),
        refuser=GATEWAY,
    ),
    Incompatible(
        name="prefill-of-a-later-release",
        what="a prefill node that speaks messages 3 only, under a gateway that speaks 1 and 2",
        seats={PREFILL: _NEW, SPARE_PREFILL: _ONLY_3, DECODE: _NEW, GATEWAY: _NEW},
        closed=f"{SPARE_PREFILL}/{DECODE}",
        serves=f"{PREFILL}/{DECODE}",
        says=("messages 1, 2", "messages 3"),
        refuser=GATEWAY,
    ),
    Incompatible(
        name="nodes-two-releases-apart",
        what="a prefill node of 0.1.0 and a decode node that has dropped messages 1; the gateway "
        "speaks with both",
        seats={PREFILL: _OLD, SPARE_PREFILL: _NEW, DECODE: _ONLY_2, GATEWAY: _NEW},
        closed=f"{PREFILL}/{DECODE}",
        serves=f"{SPARE_PREFILL}/{DECODE}",
        says=("messages 1", "messages 2"),
        refuser=DECODE,
    ),
    Incompatible(
        name="gateway-two-releases-apart",
        what="a decode node that has dropped messages 1, under a gateway of 0.1.0",
        seats={PREFILL: _OLD, DECODE: _OLD, SPARE_DECODE: _ONLY_2, GATEWAY: _OLD},
        closed=f"{PREFILL}/{SPARE_DECODE}",
        serves=f"{PREFILL}/{DECODE}",
        says=(),
        refuser=SPARE_DECODE,
    ),
)
