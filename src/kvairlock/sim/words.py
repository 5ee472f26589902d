"""Schedules in plain words: one line for each move, and beneath it what it led to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kvairlock.core.messages import (
    Claim,
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
from kvairlock.core.terms import Reader
from kvairlock.sim.state import Kind, Move, State, Step
from kvairlock.sim.stimuli import ClaimParcel, Content, GrantParcel
from kvairlock.sim.world import World


def content_in_words(content: Content) -> str:
    """Say what a message says."""
    match content:
        case GrantParcel(granted):
            return f"grant of a window for {granted.transfer}, {granted.window_pages} pages"
        case ClaimParcel(claimed):
            return _claim(claimed.claim)
        case Receipt():
            return _receipt(content)
        case Released():
            return f"{content.window} is written and let go"
        case Withdraw():
            return f"{content.transfer} has ended, {content.end}"
        case Ruling():
            return f"{content.transfer} is {'admitted' if content.admitted else 'not admitted'}"
        case Lent():
            pages = f"pages {_numbers(content.pages)}" if content.pages else "no pages"
            return f"{pages} are lent for {content.transfer}; {_receipt(content.receipt)}"
        case Validated():
            stood = "did not stand" if content.refusal else "stood"
            return f"the pages of {content.transfer} {stood}"
        case Validate():
            return f"did the pages of {content.transfer} stand?"
        case Release():
            return f"the claim of {content.transfer} is given back"
        case Returned():
            return f"nothing is held for {content.transfer} any more"
    return f"{type(content).__name__.lower()} of {getattr(content, 'transfer', '')}".strip()


def _claim(claim: Claim) -> str:
    asks = "will ask" if claim.reader is Reader.VALIDATING else "will not ask"
    return f"claim of {claim.transfer}, whose reader {asks} afterwards"


def _receipt(receipt: Receipt) -> str:
    reason = f" ({receipt.refusal.reason})" if receipt.refusal else ""
    what = f"receipt of {receipt.transfer}: {receipt.outcome}{reason}"
    return f"{what}, tokens {receipt.start} to {receipt.stop}" if receipt.digests else what


def _numbers(pages: Iterable[int]) -> str:
    return ", ".join(map(str, pages))


class Words:
    """Says what moves are.

    Args:
        world: The world that they are moves of.
    """

    def __init__(self, world: World) -> None:
        self._world, self._topology = world, world.topology

    def move(self, state: State, move: Move) -> str:
        """Say what a move is.

        Args:
            state: The state before it.
            move: The move.
        """
        match move.kind:
            case Kind.SUBMIT | Kind.REFER | Kind.CANCEL:
                return self._client(move)
            case Kind.DELIVER | Kind.DROP | Kind.REPEAT | Kind.REORDER:
                return self._message(state, move)
            case Kind.CUT | Kind.JOIN | Kind.NOTICE:
                return self._link(move)
        return self._site(state, move)

    def transcript(self, moves: Iterable[Move]) -> list[str]:
        """Play a schedule from the start, and say what happens.

        Args:
            moves: The schedule.
        """
        lines, state = [], self._world.start()
        for number, move in enumerate(moves, 1):
            step = self._world.step(state, move)
            lines.append(f"{number:3}  {self.move(state, move)}")
            lines += [f"       {line}" for line in self._shown(step)]
            state = step.state
        return lines

    def _shown(self, step: Step) -> Iterator[str]:
        for _, turn in step.turns:
            for ending in turn.endings:
                yield f"{ending.transfer} ended: {ending.end} {ending.reason}".rstrip()
        for violation in step.violations:
            yield f"!! {violation}"

    def _client(self, move: Move) -> str:
        ask = self._world.setup.asks[move.at]
        if move.kind is Kind.REFER:
            return f"the gateway refers {ask.transfer}, with what prefill has offered"
        if move.kind is Kind.CANCEL:
            return f"the client of {ask.transfer} leaves"
        what = f"{ask.tenant} asks for {ask.transfer}: {ask.tokens} tokens"
        return f"{what}, with the ticket of {ask.stolen}" if ask.stolen else what

    def _message(self, state: State, move: Move) -> str:
        sender, receiver = (self._name(place) for place in self._topology.wires[move.at])
        parcel = state.wires[move.at][0]
        content = self._world.turns.numbers.contents[self._world.parcels[parcel][3]]
        what = content_in_words(content)
        match move.kind:
            case Kind.DROP:
                return f"lost, from {sender} to {receiver}: {what}"
            case Kind.REPEAT:
                return f"comes twice, from {sender} to {receiver}: {what}"
            case Kind.REORDER:
                return f"overtaken, from {sender} to {receiver}: {what}"
        return f"{receiver} hears from {sender}: {what}"

    def _link(self, move: Move) -> str:
        if move.kind is Kind.NOTICE:
            sender, receiver = (self._name(place) for place in self._topology.wires[move.at])
            return f"{receiver} notices that {sender} is lost"
        decode, prefill = (self._name(place) for place in self._topology.links[move.at])
        happens = "breaks" if move.kind is Kind.CUT else "is there again"
        return f"the link between {decode} and {prefill} {happens}"

    def _site(self, state: State, move: Move) -> str:
        name = self._name(move.at)
        match move.kind:
            case Kind.WORK | Kind.COPY:
                return f"{name}: {move.work}"
            case Kind.EXPIRE:
                return f"{name}: a deadline passes, too early"
            case Kind.PASS:
                return f"{name}: time passes up to the next deadline"
            case Kind.SUSPEND:
                return f"{name} stands still"
            case Kind.WAKE:
                return f"{name} goes on, after all its deadlines"
            case Kind.FORGE:
                forged = self._world.turns.view(state.sites[move.at]).forgeries[move.which]
                what = content_in_words(forged.content)
                return f"somebody without the key tells {name}: {what}"
        return f"{name} ends and starts again"

    def _name(self, place: int) -> str:
        return self._topology.peer(place, 1).node
