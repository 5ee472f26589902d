"""What the core wants done: data, handed to the host in the order in which it must happen."""

from __future__ import annotations

from dataclasses import dataclass

from kvairlock.core.errors import Refusal
from kvairlock.core.memory.pool import Fenced
from kvairlock.core.messages import Message
from kvairlock.core.terms import (
    NodeName,
    Owner,
    Pages,
    PageSpan,
    Peer,
    Reader,
    TransferId,
    WindowId,
)

Value = str | int | tuple[int, ...] | tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class Send:
    """Send a message; with a window, attach its file."""

    to: NodeName
    message: Message
    window: WindowId | None = None


@dataclass(frozen=True, slots=True)
class OpenWindow:
    """Make a window for the prompt pages, then send the grant that it completes.

    The host adds what only it has: ticket, tokens, file and offsets. It tells `WindowFailed` if it
    cannot.

    Args:
        window: The fresh name.
        transfer: The transfer.
        to: The prefill node.
        pages: Destination pages in token order.
        generations: Their generations, to be stated back.
        seed: Seed of the page digests.
        patience_ms: How long the receipt is waited for.
    """

    window: WindowId
    transfer: TransferId
    to: NodeName
    pages: Pages
    generations: tuple[int, ...]
    seed: int
    patience_ms: int


@dataclass(frozen=True, slots=True)
class Land:
    """Bring the window's bytes into the pool pages and digest some of them; tell `Landed`.

    Args:
        transfer: The transfer.
        window: The window.
        pages: Destination pages in token order.
        digested: Those of them that are to be digested, as the check policy has it.
        seed: Seed of the page digests.
    """

    transfer: TransferId
    window: WindowId
    pages: Pages
    digested: Pages
    seed: int


@dataclass(frozen=True, slots=True)
class ZeroTail:
    """Zero the unused slots of a partly filled page."""

    page: int
    used_tokens: int


@dataclass(frozen=True, slots=True)
class CopyPages:
    """Copy whole pages inside the pool, for choices that go on from the same prompt."""

    source: Pages
    target: Pages


@dataclass(frozen=True, slots=True)
class ProbeWindow:
    """Look for evidence that nobody can write into a window any more; tell `WindowFenced`."""

    window: WindowId


@dataclass(frozen=True, slots=True)
class CloseWindow:
    """Close our side of a window: nobody of ours reads it any more."""

    window: WindowId


@dataclass(frozen=True, slots=True)
class StartDecode:
    """Begin to generate.

    Args:
        transfer: The request.
        tables: One page table per choice, in token order.
        attached: Name of the transfer whose tokens these pages hold; the request itself, save in
            drills in which a stolen ticket works.
    """

    transfer: TransferId
    tables: tuple[Pages, ...]
    attached: TransferId


@dataclass(frozen=True, slots=True)
class StopDecode:
    """Forget the request: no further step may include it."""

    transfer: TransferId


@dataclass(frozen=True, slots=True)
class StartCompute:
    """Begin to compute a prompt, from `start` on: what is before is a shared prefix."""

    transfer: TransferId
    table: Pages
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class StopCompute:
    """Forget the prompt."""

    transfer: TransferId


@dataclass(frozen=True, slots=True)
class Digest:
    """Digest sealed pages; tell `Digested`."""

    transfer: TransferId
    pages: Pages
    seed: int


@dataclass(frozen=True, slots=True)
class Write:
    """Write pages into the granted window; tell `WriteEnded` when it is terminal.

    Where the receiver granted fewer or other pages than there are, the host ends the write failed.
    """

    transfer: TransferId
    window: WindowId
    pages: Pages


@dataclass(frozen=True, slots=True)
class DropWindow:
    """Close a granted window into which nothing was ever written by us."""

    transfer: TransferId
    window: WindowId


@dataclass(frozen=True, slots=True)
class Offer:
    """Give whoever asked a transfer ticket: the prompt's pages stand ready for `receiver`."""

    transfer: TransferId
    receiver: Peer


@dataclass(frozen=True, slots=True)
class Decline:
    """Tell whoever asked for a prompt that there will be no offer, and why."""

    transfer: TransferId
    refusal: Refusal


@dataclass(frozen=True, slots=True)
class SendClaim:
    """Send a claim, or send it again; the host adds the tickets and what it was given.

    Args:
        transfer: The transfer.
        to: The prefill node.
        nonce: Name of the claim.
        generations: Generations of the pages to read into, to be stated back.
        reader: Whether this node will ask afterwards if the pages stood.
    """

    transfer: TransferId
    to: NodeName
    nonce: str
    generations: tuple[int, ...]
    reader: Reader


@dataclass(frozen=True, slots=True)
class StartRead:
    """Read a lender's pages into own ones, then digest some of them; tell `ReadEnded`, always.

    Args:
        transfer: The transfer.
        lender: The node whose pages are read.
        source: Its pages with their moment.
        target: Own pages, one for each of the source.
        digested: Those of them that are to be digested, as the check policy has it.
        seed: Seed of the page digests.
    """

    transfer: TransferId
    lender: NodeName
    source: PageSpan
    target: Pages
    digested: Pages
    seed: int


@dataclass(frozen=True, slots=True)
class Scrub:
    """Zero pages that are fenced; tell `ScrubDone`. It cannot be built without a fence."""

    fenced: Fenced


@dataclass(frozen=True, slots=True)
class Record:
    """Record an event of the evidence schema; the host turns the owner into keyed digests."""

    event: str
    owner: Owner | None
    fields: dict[str, Value]


Effect = (
    Send
    | OpenWindow
    | Land
    | ZeroTail
    | CopyPages
    | CloseWindow
    | ProbeWindow
    | StartDecode
    | StopDecode
    | StartCompute
    | StopCompute
    | Digest
    | Write
    | DropWindow
    | Offer
    | Decline
    | SendClaim
    | StartRead
    | Scrub
    | Record
)
