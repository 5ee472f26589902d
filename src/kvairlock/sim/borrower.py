"""A borrower of the simulator: it reads a lender's pages one by one into its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, cast

from kvairlock.core.effects import CloseWindow, Effect, ProbeWindow, SendClaim, StartRead
from kvairlock.core.errors import Reason
from kvairlock.core.events import Claimed, ReadEnded, Referred
from kvairlock.core.guards import GuardSet
from kvairlock.core.messages import Claim, Lent, Returned, Validated
from kvairlock.core.protocol.pull.borrower import BorrowerLimits, BorrowerNode
from kvairlock.core.protocol.pull.loans import LoanStage
from kvairlock.core.terms import NodeName, Peer, TransferId, WindowId
from kvairlock.sim.bytes import page_digests
from kvairlock.sim.decode import DecodeSite
from kvairlock.sim.outcome import Fault, Violation
from kvairlock.sim.setup import LAYOUT, REPEAT_MS, Setup
from kvairlock.sim.sometimes import Rare
from kvairlock.sim.stimuli import ClaimParcel, Content, Fetch, Hear, Remote, Store, Work

READS, READ_ENDS = "page is read", "read ends"


@dataclass(slots=True)
class Reading:
    """A read under way: it goes on to its own terminal status, whatever becomes of its request.

    Args:
        effect: What is read, and where to.
        done: How many pages were read.
        failed: Whether there was nobody to read from.
    """

    effect: StartRead
    done: int = 0
    failed: bool = False

    @property
    def is_over(self) -> bool:
        """Whether nothing of it can land any more."""
        return self.failed or self.done == len(self.effect.target)


class BorrowerSite(DecodeSite):
    """One life of a borrower.

    Args:
        setup: The world.
        peer: Which life of which node.
    """

    CARD: ClassVar[frozenset[str]] = frozenset({READS})

    def __init__(self, setup: Setup, peer: Peer) -> None:
        limits = setup.decode_limits
        machine = BorrowerNode(
            setup.report(peer),
            GuardSet(setup.guards_off),
            BorrowerLimits(
                queue_ms=limits.queue_ms,
                prefill_ms=limits.prefill_ms,
                landing_ms=limits.landing_ms,
                decode_ms=limits.decode_ms,
                landing_pages=limits.landing_pages,
                queue_max=limits.queue_max,
                windows_max=limits.windows_max,
                recompute_tokens_per_min=limits.recompute_tokens_per_min,
                repeat_ms=REPEAT_MS,
            ),
            LAYOUT,
            setup.reader,
        )
        super().__init__(setup, peer, machine)
        self.borrower = machine
        self.reading: dict[TransferId, Reading] = {}

    def menu(self) -> Iterator[Work]:
        """Pages to read and reads to end, and what all decode nodes do."""
        yield from super().menu()
        for transfer, reading in self.reading.items():
            yield Work(READ_ENDS if reading.is_over else READS, transfer)

    def forgeries(self) -> tuple[Hear, ...]:
        """Answers that pages stood, while they are still being read or asked about."""
        return tuple(
            Hear(loan.window.writer, Validated(loan.name, loan.nonce, None))
            for loan in self.borrower.loans.values()
            if self.borrower.wants(loan)
        )

    def stuck_on(self) -> tuple[NodeName, ...]:
        """Nobody writes here but its own reads, and those end."""
        return ()

    def hear(self, sender: Peer, content: Content) -> None:
        """Take what a lender says."""
        if isinstance(content, Lent | Validated | Returned):
            self._note_refused(content)
            self.tell_of(sender, content)
        else:
            self.violate(Fault.HOST, f"heard {type(content).__name__}")

    def _note_refused(self, content: Lent | Validated | Returned) -> None:
        """Note that a lender's time was up before a claim or before a read had ended."""
        loan = self.borrower.loans.get(content.transfer)
        if loan is None or not self.borrower.wants(loan):
            return
        match content:
            case Lent() if loan.stage is LoanStage.CLAIMED and _came_too_late(content):
                self.reached(Rare.CLAIM_AFTER_EXPIRY)
            case Validated() if loan.stage is LoanStage.READ and content.refusal is not None:
                self.reached(Rare.LOAN_REVOKED_IN_READ)

    def perform(self, effect: Effect) -> None:
        """Send claims and start reads, or do what all decode nodes do."""
        match effect:
            case SendClaim():
                self.out.posts.append((effect.to, ClaimParcel(self._claimed(effect))))
            case StartRead(transfer):
                self.reading[transfer] = Reading(effect)
            case CloseWindow() | ProbeWindow():
                pass  # The window is the pool itself, and the evidence is the read's own end.
            case _:
                super().perform(effect)

    def _claimed(self, effect: SendClaim) -> Claimed:
        """What the lender's host makes of a claim: cryptography stands for itself here."""
        asked = cast("Referred", self.machine.receptions[effect.transfer].asked)
        presented = asked.presented
        claim = Claim(
            transfer=effect.transfer,
            ticket=b"",
            offer=b"",
            tenant=presented.tenant,
            input_digest=presented.input_digest,
            prompt_tokens=presented.prompt_tokens,
            nonce=effect.nonce,
            generations=effect.generations,
            reader=effect.reader,
            trace="",
        )
        return Claimed(self.peer, claim, presented, asked.offer)

    def work(self, work: Work) -> None:
        """Read a page, end a read, or do what all decode nodes do."""
        if work.kind == READS:
            self._read_page(TransferId(work.subject))
        elif work.kind == READ_ENDS:
            self._end_read(TransferId(work.subject))
        else:
            super().work(work)

    def _read_page(self, name: TransferId) -> None:
        reading = self.reading[name]
        effect, row = reading.effect, reading.done
        page, back = int(effect.source.pages[row]), self.peer.node
        fetch = Fetch(effect.source.incarnation, page, back, WindowId(name), row)
        self.out.remote.append((effect.lender, fetch))

    def touched(self, remote: Remote) -> None:
        """What was read of a page arrives."""
        if not isinstance(remote, Store):
            self.violate(Fault.HOST, f"{remote} from outside")
            return
        reading = self.reading[TransferId(remote.window)]
        if remote.slots is None:
            reading.failed = True
        else:
            self.memory[reading.effect.target[remote.row]] = remote.slots
            reading.done += 1

    def _end_read(self, name: TransferId) -> None:
        reading = self.reading.pop(name)
        effect = reading.effect
        digests = page_digests(self.memory, effect.digested, effect.seed)
        self.tell(ReadEnded(name, None if reading.failed else digests))

    def left_behind(self) -> list[Violation]:
        """Loans and reads, and what is left of a decode node."""
        found = super().left_behind()
        if self.borrower.loans or self.reading:
            opened = len(self.borrower.loans) + len(self.reading)
            detail = f"{self.peer.node}: {opened} loans left"
            found.append(Violation(Fault.PAGES_LOST, detail))
        return found


def _came_too_late(lent: Lent) -> bool:
    """Whether a claim is refused since no offer stands any more."""
    refusal = lent.receipt.refusal
    return refusal is not None and refusal.reason is Reason.TIMEOUT
