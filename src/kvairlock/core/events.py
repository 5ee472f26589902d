"""What the core is told: messages of peers, ends of the host's own work, and nothing about time.

The time comes beside the event. Cryptography is the host's: a message reaches the core only after
its frame was authenticated, a ticket only as what its signature vouches for.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvairlock.core.errors import Refusal
from kvairlock.core.guards import GuardSet
from kvairlock.core.memory.pool import Fenced
from kvairlock.core.messages import (
    Cancel,
    Claim,
    Lent,
    Receipt,
    Rehearse,
    Release,
    Released,
    RequestTicket,
    Resize,
    Returned,
    Ruling,
    TransferTicket,
    Validate,
    Validated,
    Withdraw,
)
from kvairlock.core.terms import Claimant, Fence, NodeName, Peer, TransferId, WindowId


@dataclass(frozen=True, slots=True)
class Presented:
    """A ticket as the host could verify it, with what was presented along with it.

    Args:
        ticket: What the signature vouches for, or why it vouches for nothing.
        tenant: For whom the sender presents it.
        input_digest: Keyed digest of the tokens that came with it.
        prompt_tokens: How many tokens came with it.
        now_unix_s: Wall-clock second of the arrival.
    """

    ticket: RequestTicket | Refusal
    tenant: str
    input_digest: bytes
    prompt_tokens: int
    now_unix_s: int


@dataclass(frozen=True, slots=True)
class Submitted:
    """Decode: a gateway wants a request served.

    Args:
        transfer: The name under which it wants to be answered.
        presented: The ticket and what came with it.
        claimant: Who presented it.
        gateway: Where answers go.
        prefill: The prefill node of the route.
        max_tokens: Tokens to generate per choice, at most.
        choices: How many answers.
        window: A fresh name for the window.
        seed: A fresh random seed for the page digests; prefill is told it.
        sample_seed: Another, which draws the pages that are digested after they landed, and which
            nobody outside of this node is ever told.
    """

    transfer: TransferId
    presented: Presented
    claimant: Claimant
    gateway: Peer
    prefill: NodeName
    max_tokens: int
    choices: int
    window: WindowId
    seed: int
    sample_seed: int


@dataclass(frozen=True, slots=True)
class Referred(Submitted):
    """Decode: a gateway wants a request served whose prompt a prefill node has computed (pull).

    Here `window` is the fresh name of the claim, and the digests have the lender's seed.

    Args:
        offer: What the transfer ticket vouches for, or why it vouches for nothing.
    """

    offer: TransferTicket | Refusal


@dataclass(frozen=True, slots=True)
class Asked:
    """Prefill: a prompt is to be computed, for the decode node of its ticket to read (pull).

    Args:
        transfer: The transfer.
        presented: The request ticket and what came with it.
        claimant: Who presented it.
        seed: Seed of the page digests.
        patience_ms: How long the offer is waited for.
        page_keys: Key of each full page of the prompt for prefix sharing, chained and keyed.
    """

    transfer: TransferId
    presented: Presented
    claimant: Claimant
    seed: int
    patience_ms: int
    page_keys: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Claimed:
    """Prefill: a decode node claims offered pages.

    Args:
        peer: Who claims.
        claim: What it says.
        presented: The request ticket in it, with what the claimant says that it was given.
        offer: What the transfer ticket in it vouches for, or why it vouches for nothing.
    """

    peer: Peer
    claim: Claim
    presented: Presented
    offer: TransferTicket | Refusal


@dataclass(frozen=True, slots=True)
class Granted:
    """Prefill: a decode node grants a window for a prompt.

    Args:
        transfer: The transfer.
        presented: The relayed ticket and the tokens that came with it.
        decode: Who granted.
        window: The window.
        window_pages: How many pages the window has room for.
        generations: The receiver's generations, to be stated back.
        layout: The layout that the receiver expects.
        seed: Seed of the page digests.
        patience_ms: How long the receiver waits.
        page_keys: Key of each full page of the prompt for prefix sharing, chained and keyed.
    """

    transfer: TransferId
    presented: Presented
    decode: Peer
    window: WindowId
    window_pages: int
    generations: tuple[int, ...]
    layout: str
    seed: int
    patience_ms: int
    page_keys: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Told:
    """An authenticated message of a peer that needs no more than itself."""

    peer: Peer
    message: (
        Cancel
        | Withdraw
        | Released
        | Receipt
        | Ruling
        | Lent
        | Validate
        | Validated
        | Release
        | Returned
        | Resize
        | Rehearse
    )


@dataclass(frozen=True, slots=True)
class PeerUp:
    """A peer is connected and authenticated."""

    peer: Peer


@dataclass(frozen=True, slots=True)
class PeerLost:
    """A peer is silent or its channel has closed. Its writes may still land."""

    peer: Peer


@dataclass(frozen=True, slots=True)
class PeerGone:
    """The process of a peer has ended: nothing of it can land any more."""

    peer: Peer


@dataclass(frozen=True, slots=True)
class Landed:
    """The window's bytes are in the pool, out of every other process's reach; or not yet.

    Args:
        transfer: The transfer.
        digests: Digest of each page that was to be digested; None if a writer still has the window
            mapped.
    """

    transfer: TransferId
    digests: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class ReadEnded:
    """A one-sided read is terminal: nothing of it can land any more.

    Args:
        transfer: The transfer.
        digests: Digest of each page that was to be digested, as it landed; None if the read failed.
    """

    transfer: TransferId
    digests: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class WindowFenced:
    """The host has evidence that nobody can write into a window any more."""

    window: WindowId
    fence: Fence


@dataclass(frozen=True, slots=True)
class WindowFailed:
    """The host could not make a window."""

    transfer: TransferId
    message: str


@dataclass(frozen=True, slots=True)
class StepBegan:
    """The engine is about to read the pages of these requests."""

    transfers: tuple[TransferId, ...]


@dataclass(frozen=True, slots=True)
class StepEnded:
    """The engine has read the pages of these requests.

    Args:
        transfers: The requests of the step.
        tokens: How many tokens each generated, over its choices.
    """

    transfers: tuple[TransferId, ...]
    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DecodeFinished:
    """All choices of a request have their last token."""

    transfer: TransferId


@dataclass(frozen=True, slots=True)
class ComputeBegan:
    """The engine is about to fill pages of a prompt."""

    transfer: TransferId


@dataclass(frozen=True, slots=True)
class Computed:
    """The engine has filled the pages of a prompt up to `stop` tokens."""

    transfer: TransferId
    stop: int


@dataclass(frozen=True, slots=True)
class Digested:
    """The sealed pages have these digests.

    Args:
        transfer: The transfer.
        digests: Digest of each page.
        input_digest: Keyed digest of the tokens that the engine was really fed.
    """

    transfer: TransferId
    digests: tuple[int, ...]
    input_digest: bytes


@dataclass(frozen=True, slots=True)
class WriteEnded:
    """A write is terminal: the window is unmapped and the source is no longer read."""

    transfer: TransferId
    window: WindowId
    done: bool
    bytes_written: int


@dataclass(frozen=True, slots=True)
class EngineFailed:
    """The engine raised while it worked on a request."""

    transfer: TransferId
    message: str


@dataclass(frozen=True, slots=True)
class ScrubDone:
    """Fenced pages were zeroed."""

    fenced: Fenced


@dataclass(frozen=True, slots=True)
class GuardsChanged:
    """A waiver has begun or expired: guards are set differently from now on."""

    guards: GuardSet


Event = (
    Submitted
    | Asked
    | Claimed
    | Granted
    | Told
    | PeerUp
    | PeerLost
    | PeerGone
    | Landed
    | ReadEnded
    | WindowFenced
    | WindowFailed
    | StepBegan
    | StepEnded
    | DecodeFinished
    | ComputeBegan
    | Computed
    | Digested
    | WriteEnded
    | EngineFailed
    | ScrubDone
    | GuardsChanged
)
