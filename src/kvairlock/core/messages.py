"""What processes say to each other, as nouns; `wire` turns them into authenticated bytes.

    gateway --Submit, Cancel--> decode --Grant, Withdraw, Ruling--> prefill      (push)
    gateway <--Chunk, Ended---- decode <----Released, Receipt------ prefill
                                decode --Claim, Validate, Release-> prefill      (pull)
                                decode <-Lent, Validated, Returned- prefill
    gateway --Inspect, Resize, Drill--> any node --NodeStatus--> gateway
    gateway --Rehearse----------------> any node --Rehearsed---> gateway

Every field is required: a missing one is a refusal, not a default. Durations travel, instants do
not. Page lists and digests stay between nodes; a router carries only the request ticket. A `trace`
is opaque here: hosts make and read it, and nothing that is decided depends on it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from kvairlock.core.checks import Coverage
from kvairlock.core.ends import End
from kvairlock.core.errors import Refusal
from kvairlock.core.guards import Relaxed
from kvairlock.core.promise.capacity import CapacityReport
from kvairlock.core.terms import NodeName, Owner, Peer, Reader, Role, TransferId, WindowId
from kvairlock.core.waits import Waited


@dataclass(frozen=True, slots=True)
class RequestTicket:
    """What the gateway vouches for: who asks, for which input, until when (signed by it).

    Args:
        owner: Tenant, request and attempt.
        input_digest: Keyed digest of the token ids and of all else that shapes the cache.
        prompt_tokens: Length of the prompt.
        max_tokens: Tokens that may be generated per choice.
        choices: How many answers share the prompt.
        scope: Who may share prefix pages: empty for nobody, else a declared scope.
        expires_unix_s: Wall-clock second after which the ticket is worthless.
        salt: Random, so that equal requests have unequal tickets.
        receiver: The life of the decode node that it is good for; what it remembers of used
            tickets ends with that life, and so do they.
    """

    owner: Owner
    input_digest: bytes
    prompt_tokens: int
    max_tokens: int
    choices: int
    scope: str
    expires_unix_s: int
    salt: str
    receiver: Peer


@dataclass(frozen=True, slots=True)
class TransferTicket:
    """What a prefill node vouches for: it offers one decode node a prompt's pages (signed by it).

    It names a transfer and proves nothing about bytes. Routers relay it without reading it.

    Args:
        transfer: The transfer's name.
        lender: The life of the prefill node that offers.
        receiver: The life of the decode node that may claim.
    """

    transfer: TransferId
    lender: Peer
    receiver: Peer


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are drawn. It shapes the answer only, never the cache, so no ticket names it.

    Args:
        temperature: What the logits are divided by; 0 takes the most likely token.
        top_p: Probability mass, from the most likely token down, that may be drawn; in (0, 1].
        seed: With the choice's number and the token's place it decides each draw, 0..2**63-1.

    Raises:
        ValueError: When made with a value outside its range.
    """

    temperature: float
    top_p: float
    seed: int

    def __post_init__(self) -> None:
        if not (math.isfinite(self.temperature) and self.temperature >= 0):
            raise ValueError("temperature must be a number from 0")
        if not 0 < self.top_p <= 1:
            raise ValueError("top_p must be over 0 and at most 1")
        if not 0 <= self.seed < 2**63:
            raise ValueError("seed must be from 0 to 2**63 - 1")


ALTERNATIVES_MAX = 20
"""As many as the OpenAI API lets a client ask for."""

GREEDY = Sampling(temperature=0.0, top_p=1.0, seed=0)


@dataclass(frozen=True, slots=True)
class Submit:
    """Gateway to decode: serve this request.

    Args:
        ticket: The signed request ticket, opaque bytes.
        tenant: The tenant for whom the sender presents the ticket.
        transfer: The name under which the sender wants to be answered.
        tokens: Prompt token ids, little-endian int32.
        max_tokens: Tokens to generate per choice, at most.
        choices: How many answers.
        stop: Byte strings that end an answer.
        sampling: How its tokens are drawn.
        alternatives: How many of the likeliest tokens to state with each token; None states none,
            and no likelihood either.
        prefill: The prefill node of the route.
        nonce: The sender's own name for this presentation of the ticket.
        trace: Under which span this belongs, as W3C's `traceparent`; empty if it is not traced.

    Raises:
        ValueError: When made with an impossible number of alternatives.
    """

    ticket: bytes
    tenant: str
    transfer: TransferId
    tokens: bytes
    max_tokens: int
    choices: int
    stop: tuple[bytes, ...]
    sampling: Sampling
    alternatives: int | None
    prefill: NodeName
    nonce: str
    trace: str

    def __post_init__(self) -> None:
        check_alternatives(self.alternatives)


def check_alternatives(count: int | None) -> None:
    """Refuse a number of likely tokens that nobody can ask for.

    Raises:
        ValueError: It is under 0 or over `ALTERNATIVES_MAX`.
    """
    if count is not None and not 0 <= count <= ALTERNATIVES_MAX:
        raise ValueError(f"alternatives must be from 0 to {ALTERNATIVES_MAX}")


@dataclass(frozen=True, slots=True)
class Cancel:
    """Gateway to decode, and to a lender whose offer nobody has claimed: the client has left."""

    transfer: TransferId


@dataclass(frozen=True, slots=True)
class Grant:
    """Decode to prefill: compute this prompt and write it into this window (its file is attached).

    Args:
        transfer: The transfer's name.
        ticket: The signed request ticket, relayed as it came.
        tokens: Prompt token ids, little-endian int32.
        window: The window, granted to this attempt alone.
        file: Inode of the attached window file, so that no other can be taken for it.
        offsets: Byte offset in the window file of each prompt page, in token order.
        generations: The receiver's generation of each destination page, to be stated back.
        layout: Digest of the page layout that the receiver expects.
        seed: Seed of the page digests of this transfer.
        patience_ms: How long the receiver will wait for the receipt.
        trace: Under which span this belongs; see `Submit`.
    """

    transfer: TransferId
    ticket: bytes
    tokens: bytes
    window: WindowId
    file: int
    offsets: tuple[int, ...]
    generations: tuple[int, ...]
    layout: str
    seed: int
    patience_ms: int
    trace: str


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Decode to prefill: the request has ended here; what is in flight must still be reported."""

    transfer: TransferId
    end: End


@dataclass(frozen=True, slots=True)
class Released:
    """Prefill to decode: our write into this window is terminal, and the window is unmapped.

    Args:
        transfer: The transfer's name.
        window: The window that was granted.
        bytes_written: Bytes that were stored into it, from first to last.
    """

    transfer: TransferId
    window: WindowId
    bytes_written: int


@dataclass(frozen=True, slots=True)
class Receipt:
    """Prefill to decode: what was really done.

    Args:
        transfer: The transfer's name.
        owner: For whom it was computed.
        outcome: How it ended at prefill. Only `completed` may make pages readable.
        refusal: Why, if it did not complete.
        window: Where the bytes went.
        input_digest: Keyed digest of what was computed.
        layout: Digest of the page layout that was written.
        pages: Index of each page in the window, in token order.
        start: First computed token.
        stop: One after the last computed token.
        generations: The receiver's generations as stated in the grant.
        digests: Digest of each page, seeded by the grant.
        reused: Tokens at its beginning that were not computed for it but read from pages that its
            scope had kept.
    """

    transfer: TransferId
    owner: Owner
    outcome: End
    refusal: Refusal | None
    window: WindowId
    input_digest: bytes
    layout: str
    pages: tuple[int, ...]
    start: int
    stop: int
    generations: tuple[int, ...]
    digests: tuple[int, ...]
    reused: int


@dataclass(frozen=True, slots=True)
class Ruling:
    """Decode to prefill: the verdict on the receipt. It also acknowledges a refusal."""

    transfer: TransferId
    admitted: bool
    refusal: Refusal | None


@dataclass(frozen=True, slots=True)
class Claim:
    """Decode to prefill: hold the pages that you offered for us, and say where they are.

    Args:
        transfer: The transfer's name.
        ticket: The signed request ticket, relayed as it came.
        offer: The transfer ticket, relayed as it came.
        tenant: The tenant for whom the claimant presents the ticket.
        input_digest: Keyed digest of the prompt that the claimant was given.
        prompt_tokens: Length of that prompt.
        nonce: Fresh name of this claim; who repeats it is answered again.
        generations: The claimant's generation of each page to read into, to be stated back.
        reader: Whether the claimant will ask afterwards if the pages stood.
        trace: Under which span this belongs; see `Submit`.
    """

    transfer: TransferId
    ticket: bytes
    offer: bytes
    tenant: str
    input_digest: bytes
    prompt_tokens: int
    nonce: str
    generations: tuple[int, ...]
    reader: Reader
    trace: str


@dataclass(frozen=True, slots=True)
class Lent:
    """Prefill to decode: the answer to a claim. A refusal is a receipt too, and lends nothing.

    Args:
        transfer: The transfer's name.
        nonce: The claim that is answered.
        receipt: What was really done; its window is named as the claim is.
        pages: The lender's pages to read, in token order.
        generations: The lender's generation of each.
        seed: Seed of the receipt's page digests.
    """

    transfer: TransferId
    nonce: str
    receipt: Receipt
    pages: tuple[int, ...]
    generations: tuple[int, ...]
    seed: int


@dataclass(frozen=True, slots=True)
class Validate:
    """Decode to prefill: our read is terminal; did the pages stand during all of it?"""

    transfer: TransferId
    nonce: str


@dataclass(frozen=True, slots=True)
class Validated:
    """Prefill to decode: the pages stand to this moment, or why that cannot be said.

    Args:
        transfer: The transfer's name.
        nonce: The claim that was asked about.
        refusal: Why they did not stand, or None if they do.
    """

    transfer: TransferId
    nonce: str
    refusal: Refusal | None


@dataclass(frozen=True, slots=True)
class Release:
    """Decode to prefill: no read of ours is under way any more; the claim is given back."""

    transfer: TransferId
    nonce: str


@dataclass(frozen=True, slots=True)
class Returned:
    """Prefill to decode: nothing is held under this claim any more. It acknowledges a release."""

    transfer: TransferId
    nonce: str


@dataclass(frozen=True, slots=True)
class Alternative:
    """A token that could have been generated, and how likely the model held it.

    Args:
        text: Its bytes; may be part of a character.
        logprob: Natural logarithm of its probability, before temperature and `top_p`.
    """

    text: bytes
    logprob: float


@dataclass(frozen=True, slots=True)
class Score:
    """A token that was generated, how likely the model held it, and what it held likeliest.

    Args:
        text: Its bytes; may be part of a character.
        logprob: Natural logarithm of its probability, before temperature and `top_p`.
        alternatives: The likeliest tokens, the likeliest first, as many as were asked for.
    """

    text: bytes
    logprob: float
    alternatives: tuple[Alternative, ...]


@dataclass(frozen=True, slots=True)
class Chunk:
    """Decode to gateway: new tokens of one choice.

    Args:
        transfer: The request.
        choice: Which answer, from 0.
        tokens: How many tokens this carries.
        text: Their bytes; may end inside a character.
        finish: `stop` or `length` with the choice's last chunk, else empty.
        scores: The tokens that `text` shows, one by one; empty unless they were asked for.
    """

    transfer: TransferId
    choice: int
    tokens: int
    text: bytes
    finish: str
    scores: tuple[Score, ...]


@dataclass(frozen=True, slots=True)
class Ended:
    """Decode to gateway: how the request ended, with what the engine really did.

    Args:
        transfer: The request.
        end: The end that won.
        refusal: Why, if it did not complete.
        computed_tokens: Prompt tokens whose cache was confirmed.
        generated_tokens: Tokens generated, over all choices.
        reused_tokens: Those of `computed_tokens` that prefill took from its scope's kept pages.
        recovered_from: What was missing when decode gave up waiting for prefill and computed the
            prompt itself, whatever the end then was; None if it did not, or does not say
            (version 1).
    """

    transfer: TransferId
    end: End
    refusal: Refusal | None
    computed_tokens: int
    generated_tokens: int
    reused_tokens: int
    recovered_from: Refusal | None


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """Any node to the gateway, and the answer to `Inspect`: figures, never identities.

    Args:
        report: The measured capacity.
        pages: Number of pages by stage name.
        windows: Windows granted and not yet fenced.
        windows_draining: Those of them whose request has ended.
        requests: Requests by stage name.
        links: Names of the peers that are connected and heard of.
        counters: Totals since the start, by name.
        fences: Number of leases that were let go, by the evidence they rest on.
        window_fences: The same of windows; None if that is not stated (version 1), so that they are
            among `fences`.
        points: Failpoints that hold a thread now (drill mode only).
        relaxed: What does not enforce, or is checked in part, on the node's routes; None if that is
            not stated (version 1), so that it is unknown.
        coverage: Page reads by what vouched for the pages, for each route of a decode node; None if
            that is not stated (version 1), so that nothing vouches for them.
        waits: How long requests and memory waited since the start; None if that is not stated
            (version 1).

    Raises:
        ValueError: A figure is below 0.
    """

    report: CapacityReport
    pages: dict[str, int]
    windows: int
    windows_draining: int
    requests: dict[str, int]
    links: tuple[NodeName, ...]
    counters: dict[str, int]
    fences: dict[str, int]
    window_fences: dict[str, int] | None
    points: tuple[str, ...]
    relaxed: tuple[Relaxed, ...] | None
    coverage: tuple[Coverage, ...] | None
    waits: tuple[Waited, ...] | None

    def __post_init__(self) -> None:
        told = (self.pages, self.requests, self.counters, self.fences, self.window_fences or {})
        figures = (count for counts in told for count in counts.values())
        if min(self.windows, self.windows_draining, *figures) < 0:
            raise ValueError("a node counts from 0")


@dataclass(frozen=True, slots=True)
class Inspect:
    """Gateway to any node: answer with a `NodeStatus` now."""


@dataclass(frozen=True, slots=True)
class Resize:
    """Gateway to any node: an operator gives pages to requests or takes them away, at run-time.

    Args:
        pages: How many pages requests may have from now on, from 0 to those that were mapped.
    """

    pages: int


@dataclass(frozen=True, slots=True)
class Rehearse:
    """Gateway to any node: would you refuse a request of this size, and how?

    It is judged as a request is, and is none: nothing waits, nothing is reserved or computed. So a
    limit can be tried that no request can meet, since another node of its route refuses first.

    Args:
        name: The sender's own name for the question.
        partner: The other node of the route.
        prompt_tokens: Length of the prompt.
        max_tokens: Tokens to generate per choice, at most.
        choices: How many answers.
    """

    name: str
    partner: NodeName
    prompt_tokens: int
    max_tokens: int
    choices: int


@dataclass(frozen=True, slots=True)
class Rehearsed:
    """Any node to the gateway: the answer to `Rehearse`.

    Args:
        name: The question's name.
        refusal: How the request would be refused, or None if it would be taken.
    """

    name: str
    refusal: Refusal | None


@dataclass(frozen=True, slots=True)
class Watch:
    """Gateway to any node: somebody looks at your pages; tell of them until the lease is over.

    Args:
        view: The sender's own name of what is looked at. Under a name that the node does not know,
            all pages are told of first; under a known one, the lease begins anew.
        lease_ms: For how long from now on; 0 ends it.
        every_ms: Time between two page maps, at least.
    """

    view: str
    lease_ms: int
    every_ms: int


@dataclass(frozen=True, slots=True)
class PageMap:
    """Any node to the gateway: pages that are not as the last map of this view said.

    It has no owner, no lease and no byte of any page.

    Args:
        view: The name that it is watched under.
        number: 0 for the first of the view, then one more each time: a gap means that what is
            known is not true any more.
        pool_pages: How many pages the node has mapped.
        spans: Pairs of int32, little-endian: first page of a run and how many, in rising order.
        stages: The stage of each of these pages as the page table numbers them, one int8 each.
        generations: Their content counters, int64 each, little-endian.
        rest: How many more pages have changed that the next maps tell of.
    """

    view: str
    number: int
    pool_pages: int
    spans: bytes
    stages: bytes
    generations: bytes
    rest: int


@dataclass(frozen=True, slots=True)
class Beat:
    """Either way, on every channel: this process lives and its loop turns."""


@dataclass(frozen=True, slots=True)
class Drill:
    """Gateway to a node in drill mode: arm or release a failpoint.

    Args:
        action: `arm` or `release`.
        point: Name of the failpoint.
        after: How many arrivals pass first.
    """

    action: str
    point: str
    after: int


Message = (
    Submit
    | Cancel
    | Grant
    | Withdraw
    | Released
    | Receipt
    | Ruling
    | Claim
    | Lent
    | Validate
    | Validated
    | Release
    | Returned
    | Chunk
    | Ended
    | NodeStatus
    | Inspect
    | Resize
    | Rehearse
    | Rehearsed
    | Watch
    | PageMap
    | Beat
    | Drill
)

_ANY = frozenset(Role)

SENDERS: dict[type[Message], frozenset[Role]] = {
    Submit: frozenset({Role.GATEWAY}),
    Cancel: frozenset({Role.GATEWAY}),
    Grant: frozenset({Role.DECODE}),
    Withdraw: frozenset({Role.DECODE}),
    Released: frozenset({Role.PREFILL}),
    Receipt: frozenset({Role.PREFILL}),
    Ruling: frozenset({Role.DECODE}),
    Claim: frozenset({Role.DECODE}),
    Lent: frozenset({Role.PREFILL}),
    Validate: frozenset({Role.DECODE}),
    Validated: frozenset({Role.PREFILL}),
    Release: frozenset({Role.DECODE}),
    Returned: frozenset({Role.PREFILL}),
    Chunk: frozenset({Role.DECODE}),
    Ended: frozenset({Role.DECODE}),
    NodeStatus: frozenset({Role.PREFILL, Role.DECODE}),
    Inspect: frozenset({Role.GATEWAY}),
    Resize: frozenset({Role.GATEWAY}),
    Rehearse: frozenset({Role.GATEWAY}),
    Rehearsed: frozenset({Role.PREFILL, Role.DECODE}),
    Watch: frozenset({Role.GATEWAY}),
    PageMap: frozenset({Role.PREFILL, Role.DECODE}),
    Beat: _ANY,
    Drill: frozenset({Role.GATEWAY}),
}
"""Who may say what: the key of the cluster makes a peer, its role makes what it may ask for."""
