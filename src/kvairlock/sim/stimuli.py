"""What can be done to a site, as values: turns are remembered by them."""

from __future__ import annotations

from dataclasses import dataclass

from kvairlock.core.events import Claimed, Event, Granted
from kvairlock.core.messages import Message
from kvairlock.core.terms import Incarnation, NodeName, Peer, WindowId


@dataclass(frozen=True, slots=True)
class GrantParcel:
    """A grant on its way, as the receiving host makes an event of it."""

    granted: Granted


@dataclass(frozen=True, slots=True)
class ClaimParcel:
    """A claim on its way, as the receiving host makes an event of it."""

    claimed: Claimed


Content = Message | GrantParcel | ClaimParcel


@dataclass(frozen=True, slots=True)
class Hear:
    """A message arrives."""

    sender: Peer
    content: Content


@dataclass(frozen=True, slots=True)
class Work:
    """The site's own work that waits: a task of a thread, a chunk of a prompt, a decode step.

    Args:
        kind: What it is.
        subject: Which transfer or window; empty where there is one at a time.
    """

    kind: str
    subject: str = ""

    def __str__(self) -> str:
        """Return it as transcripts show it."""
        return f"{self.kind} {self.subject}".strip()


@dataclass(frozen=True, slots=True)
class Expire:
    """Time passes up to the site's next deadline."""


@dataclass(frozen=True, slots=True)
class Wake:
    """The site goes on after a suspension that was longer than all its deadlines."""


@dataclass(frozen=True, slots=True)
class Tell:
    """The host tells the core something that no message says: a peer came, went, or is gone."""

    event: Event


@dataclass(frozen=True, slots=True)
class Map:
    """Another process maps a window of this site."""

    window: WindowId


@dataclass(frozen=True, slots=True)
class Unmap:
    """It lets go of the window."""

    window: WindowId


@dataclass(frozen=True, slots=True)
class Store:
    """A page is stored from outside, into a window or for a read of this site's own.

    Args:
        window: The window, or the claim under which is read.
        row: Which of its pages.
        slots: What is stored; None if there was nobody to read from.
    """

    window: WindowId
    row: int
    slots: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class Fetch:
    """Another process reads a page of this site; what it finds comes back as a `Store`.

    Args:
        incarnation: The life of this site that it means.
        page: The page.
        back: Who reads.
        window: Under which claim.
        row: Which of the pages that it reads.
    """

    incarnation: Incarnation
    page: int
    back: NodeName
    window: WindowId
    row: int


Remote = Map | Unmap | Store | Fetch
Stimulus = Hear | Work | Expire | Wake | Tell | Remote
