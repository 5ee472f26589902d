"""All turns that were ever computed, each once.

A site's next state depends on its state and the stimulus alone. Worlds that differ in what another
site does, or in what is on the wires, share their turns: few local states make many worlds. States,
stimuli, messages and records are named by small numbers, so that a world is a short tuple.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, NewType, TypeVar, cast

from kvairlock.core.effects import Record
from kvairlock.core.messages import TransferTicket
from kvairlock.core.terms import NodeName, Peer
from kvairlock.sim.judge import Book
from kvairlock.sim.outcome import Ending, Fault, Outcome, Violation
from kvairlock.sim.site import Site
from kvairlock.sim.stimuli import Content, Hear, Stimulus, Work
from kvairlock.sim.values import Values

StateId = NewType("StateId", int)
ContentId = NewType("ContentId", int)
T = TypeVar("T", bound=Hashable)


@dataclass(frozen=True, slots=True)
class View:
    """What can be seen of a state from outside.

    Args:
        menu: The work that waits.
        card: Those of it that the network card does, whether or not its process is suspended.
        expires: Whether it waits for a deadline.
        stuck_on: Nodes for the end of whose processes memory waits, and nothing else.
        echo: A copy of an ended write that may land once more.
        forgeries: What somebody without the key could make it hear.
    """

    menu: tuple[Work, ...]
    card: tuple[Work, ...]
    expires: bool
    stuck_on: tuple[NodeName, ...]
    echo: Work | None
    forgeries: tuple[Hear, ...]


@dataclass(frozen=True, slots=True)
class Turn:
    """A state, and what the turn to it led to outside; `Outcome` with numbers for what is long.

    Args:
        after: The state.
        posts: To whom, and the number of the content.
        remote: What is done to others' memory: at whom, and the number of the stimulus.
        endings: Ends that the gateway is told.
        offers: Transfer tickets that it is given.
        violations: What must never be.
        records: Numbers of the evidence.
        sometimes: Rare states.
    """

    after: StateId
    posts: tuple[tuple[NodeName, ContentId], ...]
    remote: tuple[tuple[NodeName, int], ...]
    endings: tuple[Ending, ...]
    offers: tuple[TransferTicket, ...]
    violations: tuple[Violation, ...]
    records: tuple[int, ...]
    sometimes: tuple[str, ...]


class Numbered(Generic[T]):
    """Values by number, each once."""

    def __init__(self) -> None:
        self._numbers: dict[T, int] = {}
        self._values: list[T] = []

    def number(self, value: T) -> int:
        """Return the number of a value."""
        number = self._numbers.setdefault(value, len(self._values))
        if number == len(self._values):
            self._values.append(value)
        return number

    def __getitem__(self, number: int) -> T:
        """Return the value of a number."""
        return self._values[number]

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._values)


RecordKey = tuple[str, Hashable, tuple[tuple[str, Hashable], ...]]


class Numbers:
    """What worlds name by number: stimuli, contents of messages, records."""

    def __init__(self) -> None:
        self.stimuli: Numbered[Stimulus] = Numbered()
        self.contents: Numbered[Content] = Numbered()
        self.records: Numbered[RecordKey] = Numbered()
        self._heard: dict[tuple[Peer, ContentId], int] = {}

    def heard(self, sender: Peer, content: ContentId) -> int:
        """Return the stimulus of hearing a content from a peer."""
        known = self._heard.get((sender, content))
        if known is None:
            hear = Hear(sender, self.contents[content])
            known = self._heard[sender, content] = self.stimuli.number(hear)
        return known

    def turn(self, after: StateId, out: Outcome) -> Turn:
        """Return what a turn led to with numbers for what is long."""
        content, stimulus = self.contents.number, self.stimuli.number
        return Turn(
            after=after,
            posts=tuple((to, ContentId(content(said))) for to, said in out.posts),
            remote=tuple((to, stimulus(remote)) for to, remote in out.remote),
            endings=tuple(out.endings),
            offers=tuple(out.offers),
            violations=tuple(out.violations),
            records=tuple(self.records.number(_key(record)) for record in out.records),
            sometimes=tuple(dict.fromkeys(out.sometimes)),
        )

    def record(self, number: int) -> Record:
        """Return a record by its number."""
        event, owner, fields = self.records[number]
        return Record(event, owner, dict(fields))  # type: ignore[arg-type]


class Turns:
    """The states of sites and the turns between them."""

    def __init__(self) -> None:
        self.numbers = Numbers()
        self._values = Values()
        self._names: dict[bytes, StateId] = {}
        self._bytes: list[bytes] = []
        self._views: list[View] = []
        self._books: list[Book] = []
        self._known: dict[tuple[StateId, int], Turn] = {}

    def __len__(self) -> int:
        """Return how many turns were computed."""
        return len(self._known)

    @property
    def states(self) -> int:
        """How many states of sites there are."""
        return len(self._bytes)

    def name(self, site: Site) -> StateId:
        """Return the number of the state of a site that has done nothing yet."""
        return self._name(site, Book(site.peer.node))

    def _name(self, site: Site, book: Book) -> StateId:
        """Return the number of a state, and keep what the evidence says of it."""
        state = self._values.write(site)
        known = self._names.get(state)
        if known is None:
            known = self._names[state] = StateId(len(self._bytes))
            self._bytes.append(state)
            self._views.append(view_of(site))
            self._books.append(book)
        return known

    def site(self, state: StateId) -> Site:
        """Return a site in a state; it is a copy."""
        return cast("Site", self._values.read(self._bytes[state]))

    def take(self, state: StateId, stimulus: int) -> Turn:
        """Return the state after a stimulus, and what it led to outside."""
        known = self._known.get((state, stimulus))
        if known is None:
            site = self.site(state)
            outcome = site.take(self.numbers.stimuli[stimulus])
            after = self._judged(site, self._books[state].copy(), outcome)
            known = self._known[state, stimulus] = self.numbers.turn(after, outcome)
        return known

    def _judged(self, site: Site, book: Book, outcome: Outcome) -> StateId:
        """Name the state after a turn, and judge the evidence of the turn."""
        wrong = [what for record in outcome.records for what in book.take(record)]
        after = self._name(site, book)
        if not self._books[after].says_as(book):
            wrong.append("two pasts led to the same state, and their evidence does not")
        found = (Violation(Fault.EVIDENCE, f"{book.name}: {what}") for what in wrong)
        outcome.violations.extend(found)
        return after

    def view(self, state: StateId) -> View:
        """Return what can be seen of a state."""
        return self._views[state]


def view_of(site: Site) -> View:
    """Return what can be seen of a site from outside."""
    menu = tuple(site.menu())
    return View(
        menu=menu,
        card=tuple(work for work in menu if work.kind in site.CARD),
        expires=site.node.deadline() is not None,
        stuck_on=site.stuck_on(),
        echo=site.echo(),
        forgeries=site.forgeries(),
    )


def _key(record: Record) -> RecordKey:
    return record.event, record.owner, tuple(record.fields.items())
