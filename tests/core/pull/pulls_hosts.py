"""The fake hosts of pull: a lender that offers, a borrower whose reads go page by page.

A read copies a page as it is in the lender's memory at that moment, whatever the lender's books say
by then: nothing but the protocol stands between it and the next owner's bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvairlock.core.effects import (
    CloseWindow,
    Decline,
    Digest,
    Effect,
    Offer,
    ProbeWindow,
    SendClaim,
    StartCompute,
    StartRead,
    StopCompute,
)
from kvairlock.core.errors import Refusal
from kvairlock.core.events import Asked, Claimed, Digested, Presented, ReadEnded, Referred, Told
from kvairlock.core.messages import (
    Claim,
    Lent,
    Release,
    Returned,
    Ruling,
    Validate,
    Validated,
    Withdraw,
)
from kvairlock.core.node import Node
from kvairlock.core.protocol.pull.borrower import BorrowerNode
from kvairlock.core.protocol.pull.lender import LenderNode
from kvairlock.core.terms import Pages, Peer, TransferId
from kvairlock.transport.checksums import page_digests
from tests.core.ends_engine import PromptHost
from tests.core.ends_hosts import DecodeHost
from tests.core.ends_parts import OTHER_LAYOUT, Bytes, Parcel, Request

if TYPE_CHECKING:
    from tests.core.pull.pulls import PullWorld


class LenderHost(PromptHost):
    """A lender with a fake engine; its offers become transfer tickets of the world."""

    def __init__(self, world: PullWorld, peer: Peer, machine: LenderNode) -> None:
        super().__init__(world, peer, Node(machine), machine.books.report.pages)
        self.pulls, self.machine = world, machine
        self.asked: dict[TransferId, Asked] = {}
        self.declined: dict[TransferId, Refusal] = {}
        self.dead = False

    def hear(self, parcel: Parcel) -> None:
        content = parcel.content
        match content:
            case Claim():
                self.tell(self._claimed(parcel.sender, content))
            case Validate() | Release() | Ruling() | Withdraw():
                self.tell(Told(parcel.sender, content))
            case _:
                raise AssertionError(content)

    def _claimed(self, sender: Peer, claim: Claim) -> Claimed:
        """What the host makes of a claim: cryptography stands for itself here."""
        presented = Presented(
            self.pulls.requests[TransferId(claim.ticket.decode())].ticket,
            claim.tenant,
            claim.input_digest,
            claim.prompt_tokens,
            self.pulls.unix_s,
        )
        return Claimed(sender, claim, presented, self.pulls.tickets[claim.offer])

    def do(self, effect: Effect) -> None:
        match effect:
            case StartCompute():
                self._start_compute(effect)
            case StopCompute(transfer):
                self._stop_compute(transfer)
            case Digest(transfer, pages, seed):
                self.task("digest", transfer, lambda: self._digest(transfer, pages, seed))
            case Offer(transfer, receiver):
                self.pulls.offered(self.peer, transfer, receiver)
            case Decline(transfer, refusal):
                self.declined[transfer] = refusal
            case _:
                raise AssertionError(effect)

    def _digest(self, transfer: TransferId, pages: Pages, seed: int) -> None:
        job = self.machine.jobs.get(transfer)
        fed = self.asked[transfer].presented
        whole = job is not None and job.stop == fed.prompt_tokens
        digest = fed.input_digest if whole else b"placeholder"
        self.tell(Digested(transfer, page_digests(self.memory, pages, seed), digest))

    def prompt_of(self, transfer: TransferId) -> Request:
        return self.pulls.by_digest[self.asked[transfer].presented.input_digest]

    def slot_of(self, content: Request, position: int) -> Bytes:
        slot = super().slot_of(content, position)
        return slot[::-1] if self.machine.layout == OTHER_LAYOUT else slot


@dataclass(slots=True, eq=False)
class Reading:
    """A read that goes on to its own terminal status, page by page."""

    effect: StartRead
    source: LenderHost
    pieces: int = 0


class BorrowerHost(DecodeHost):
    """A borrower: decode's fake engine, and reads in place of windows."""

    machine: BorrowerNode

    def __init__(self, world: PullWorld, peer: Peer, machine: BorrowerNode) -> None:
        super().__init__(world, peer, machine)
        self.pulls = world
        self.reading: list[Reading] = []

    def hear(self, parcel: Parcel) -> None:
        content = parcel.content
        assert isinstance(content, Lent | Validated | Returned), content
        self.tell(Told(parcel.sender, content))

    def do(self, effect: Effect) -> None:
        match effect:
            case SendClaim():
                self.pulls.post(self.peer, effect.to, self._claim(effect))
            case StartRead():
                self.reading.append(Reading(effect, self.pulls.lenders[effect.lender]))
            case CloseWindow() | ProbeWindow():
                pass  # The window is the pool itself, and the evidence is the read's own end.
            case _:
                super().do(effect)

    def _claim(self, effect: SendClaim) -> Claim:
        asked = self.machine.receptions[effect.transfer].asked
        assert isinstance(asked, Referred)
        return Claim(
            transfer=effect.transfer,
            ticket=self.pulls.ticket_bytes(effect.transfer),
            offer=self.pulls.offer_bytes(asked),
            tenant=asked.presented.tenant,
            input_digest=asked.presented.input_digest,
            prompt_tokens=asked.presented.prompt_tokens,
            nonce=effect.nonce,
            generations=effect.generations,
            reader=effect.reader,
            trace="",
        )

    # Reads

    def read_piece(self, transfer: TransferId) -> None:
        """Copy one more page, and end the read after the last."""
        reading = next(r for r in self.reading if r.effect.transfer == transfer)
        effect, piece = reading.effect, reading.pieces
        if reading.source.dead:
            self._read_ended(reading, done=False)
            return
        if piece < len(effect.target):
            page = reading.source.memory[effect.source.pages[piece]]
            self.memory[effect.target[piece]] = page
            reading.pieces += 1
        if reading.pieces == len(effect.target):
            self._read_ended(reading, done=True)

    def read_all(self, transfer: TransferId) -> None:
        while any(r.effect.transfer == transfer for r in self.reading):
            self.read_piece(transfer)

    def read_fails(self, transfer: TransferId) -> None:
        reading = next(r for r in self.reading if r.effect.transfer == transfer)
        self._read_ended(reading, done=False)

    def _read_ended(self, reading: Reading, *, done: bool) -> None:
        self.reading.remove(reading)
        effect = reading.effect
        digests = page_digests(self.memory, effect.digested, effect.seed) if done else None
        self.tell(ReadEnded(effect.transfer, digests))
