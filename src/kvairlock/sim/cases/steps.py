"""Steps: what can happen next in a world, in the words of cases.

Each move of a world has one phrase, so that a step is found by comparing words, and a step that
cannot happen is answered with those that can. Some phrases stand for several in a row.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from kvairlock.core.messages import (
    Lent,
    Receipt,
    Release,
    Released,
    Returned,
    Ruling,
    Validate,
    Validated,
    Withdraw,
)
from kvairlock.core.terms import TransferId
from kvairlock.sim import borrower, decode, engine, prefill, site
from kvairlock.sim import steps as batch
from kvairlock.sim.cases.words import Phrase, Vocabulary, say
from kvairlock.sim.state import Kind, Move, State
from kvairlock.sim.stimuli import ClaimParcel, Content, GrantParcel
from kvairlock.sim.world import World


class Control(StrEnum):
    """Lines that say how the steps after them are played."""

    SETTLE = "settle"
    HOLD = "hold"
    FREE = "free"


@dataclass(frozen=True, slots=True)
class Happens:
    """A kind of move; `work` says which, where it is a site's own work."""

    kind: Kind
    work: str = ""


@dataclass(frozen=True, slots=True)
class Several:
    """Phrases in a row; one with a `*` happens as often as it can, at least once."""

    steps: tuple[str, ...]


Means = Happens | Several | Control


def _work(words: str, does: str, work: str) -> Phrase[Means]:
    return Phrase(words, does, Happens(Kind.WORK, work))


STEPS: Vocabulary[Means] = Vocabulary(
    (
        Phrase(
            "...",
            "everything happens that is not held back, as long as no time has to pass and nobody "
            "asks anew",
            Control.SETTLE,
        ),
        Phrase("not yet: STEP", "`...` leaves that out; `*` fits into any hole", Control.HOLD),
        Phrase("from now on: STEP", "`...` no longer leaves it out", Control.FREE),
        Phrase("TENANT sends REQUEST", "the request reaches the gateway", Happens(Kind.SUBMIT)),
        Phrase(
            "the gateway refers REQUEST",
            "decode is told what prefill has offered (pull)",
            Happens(Kind.REFER),
        ),
        Phrase("REQUEST's client leaves", "its connection closes", Happens(Kind.CANCEL)),
        Phrase(
            "the MESSAGE of REQUEST arrives",
            "the next message on its wire is delivered",
            Happens(Kind.DELIVER),
        ),
        Phrase("the MESSAGE of REQUEST is lost", "it never arrives", Happens(Kind.DROP)),
        Phrase(
            "the MESSAGE of REQUEST is repeated",
            "a copy of it arrives later as well",
            Happens(Kind.REPEAT),
        ),
        Phrase(
            "the MESSAGE of REQUEST is overtaken",
            "it arrives after what was sent after it",
            Happens(Kind.REORDER),
        ),
        Phrase(
            "somebody forges a receipt of REQUEST",
            "who has not the key states success, digest for digest, for a window without a write",
            Happens(Kind.FORGE),
        ),
        Phrase(
            "NODE computes REQUEST",
            "its prompt is computed to the end",
            Several(("NODE begins to compute REQUEST", "NODE ends to compute REQUEST")),
        ),
        _work("NODE begins to compute REQUEST", "its chunk begins", engine.BEGINS),
        _work("NODE ends to compute REQUEST", "its chunk is in the pages", engine.ENDS),
        _work("NODE digests REQUEST", "its sealed pages are digested", prefill.DIGEST),
        Phrase(
            "the pages of REQUEST land",
            "all that are still to be written, and the write ends",
            Several(("page * of REQUEST lands", "the write of REQUEST ends")),
        ),
        _work("page NUMBER of REQUEST lands", "a write stores its next page", prefill.LANDS),
        _work("the write of REQUEST ends", "it is terminal at prefill", prefill.WRITE_ENDS),
        Phrase(
            "a copy of a page of REQUEST lands",
            "the transport stores a page of an ended write again",
            Happens(Kind.COPY),
        ),
        _work("NODE lands REQUEST", "decode takes the window over, and digests it", decode.LANDING),
        Phrase(
            "the pages of REQUEST are read",
            "all that are still to be read, and the read ends (pull)",
            Several(("page * of REQUEST is read", "the read of REQUEST ends")),
        ),
        _work("page NUMBER of REQUEST is read", "decode reads a page from prefill", borrower.READS),
        _work("the read of REQUEST ends", "it is terminal at decode", borrower.READ_ENDS),
        Phrase(
            "NODE makes a step",
            "its whole batch reads its pages and generates a token each",
            Several(("NODE begins a step", "NODE ends its step")),
        ),
        _work("NODE begins a step", "the batch reads its pages", batch.BEGIN),
        _work("NODE ends its step", "each of the batch stores a token", batch.END),
        _work("NODE zeroes pages", "pages are scrubbed after their fence", site.SCRUB),
        Phrase("a deadline passes at NODE", "the next of those it has", Happens(Kind.EXPIRE)),
        Phrase(
            "NODE stands still",
            "it is suspended; its network card is not",
            Happens(Kind.SUSPEND),
        ),
        Phrase("NODE goes on", "all its deadlines have passed meanwhile", Happens(Kind.WAKE)),
        Phrase("NODE dies", "its process ends and starts again", Happens(Kind.CRASH)),
        Phrase(
            "the link between NODE and PEER breaks",
            "nothing is heard; writes go on",
            Happens(Kind.CUT),
        ),
        Phrase("NODE notices the loss of PEER", "it is silent too long", Happens(Kind.NOTICE)),
        Phrase("the link between NODE and PEER is back", "they dial", Happens(Kind.JOIN)),
    )
)

WORDS = {row.means: row.words for row in STEPS.rows if isinstance(row.means, Happens)}
TIME_PASSES = "time passes at NODE"
STARTED_AGAIN = "NODE is started again"
UNSAID = {Kind.PASS: TIME_PASSES, Kind.RESTART: STARTED_AGAIN}
"""What happens by itself when nothing else can; no step of a case can say it."""

_SAID: dict[type, str] = {
    GrantParcel: "grant",
    Receipt: "receipt",
    Ruling: "ruling",
    Withdraw: "withdrawal",
    Released: "sign-off",
    ClaimParcel: "claim",
    Lent: "loan",
    Validate: "question",
    Validated: "answer",
    Release: "return",
    Returned: "return slip",
}


class Speaker:
    """Says what the moves of a world are.

    Args:
        world: The world.
    """

    def __init__(self, world: World) -> None:
        self._world, self._topology = world, world.topology
        self.stored: dict[tuple[str, str], int] = {}
        """For each write and read how many pages are done, so that the next one has a number."""

    def phrase(self, state: State, move: Move) -> str:
        """Return the phrase of a move.

        Args:
            state: The state before it.
            move: The move.
        """
        words = UNSAID.get(move.kind)
        if words is None:
            work = move.work.kind if move.work and move.kind is Kind.WORK else ""
            words = WORDS[Happens(move.kind, work)]
        return say(words, self._fields(state, move))

    def note(self, move: Move) -> None:
        """Note a move that was made."""
        if move.work is not None:
            key = move.work.kind, move.work.subject
            self.stored[key] = self.stored.get(key, 0) + 1

    def _fields(self, state: State, move: Move) -> dict[str, str]:
        match move.kind:
            case Kind.SUBMIT | Kind.REFER | Kind.CANCEL:
                ask = self._world.setup.asks[move.at]
                return {"TENANT": ask.tenant, "REQUEST": request_of(ask.transfer)}
            case Kind.DELIVER | Kind.DROP | Kind.REPEAT | Kind.REORDER:
                return _message(self._content(state, move.at))
            case Kind.CUT | Kind.JOIN:
                return self._ends(*self._topology.links[move.at])
            case Kind.NOTICE:
                lost, notices = self._topology.wires[move.at]
                return self._ends(notices, lost)
            case Kind.FORGE:
                forged = self._world.turns.view(state.sites[move.at]).forgeries[move.which]
                return _message(forged.content)
        return {"NODE": self._name(move.at), **self._of_work(move)}

    def _of_work(self, move: Move) -> dict[str, str]:
        if move.work is None:
            return {}
        kind, subject = move.work.kind, move.work.subject
        number = self.stored.get((kind, subject), 0) + 1
        return {"REQUEST": request_of(subject), "NUMBER": str(number)}

    def _content(self, state: State, wire: int) -> Content:
        return self._world.turns.numbers.contents[self._world.parcels[state.wires[wire][0]][3]]

    def _ends(self, one: int, other: int) -> dict[str, str]:
        return {"NODE": self._name(one), "PEER": self._name(other)}

    def _name(self, place: int) -> str:
        return self._topology.peer(place, 1).node


def request_of(subject: str) -> str:
    """Return how cases call a transfer, its window or its claim: `a` for the first attempt of a."""
    return subject.rpartition(" ")[2].removesuffix("/1")


def transfer_of(request: str) -> TransferId:
    """Return the transfer that a case calls so."""
    return TransferId(request if "/" in request else f"{request}/1")


def _message(content: Content) -> dict[str, str]:
    match content:
        case GrantParcel(granted):
            transfer = granted.transfer
        case ClaimParcel(claimed):
            transfer = claimed.claim.transfer
        case _:
            transfer = content.transfer  # type: ignore[union-attr]
    return {"MESSAGE": _SAID[type(content)], "REQUEST": request_of(transfer)}
