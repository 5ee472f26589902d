"""One request on a decode node, as data: what was asked, granted, stated and judged."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kvairlock.core.checks import Checks, Sample
from kvairlock.core.errors import InvariantBroken, Reason, Refusal, Stage
from kvairlock.core.events import Submitted
from kvairlock.core.guards import Guard, GuardMode
from kvairlock.core.memory.pool import Lease
from kvairlock.core.memory.windows import Window
from kvairlock.core.messages import Receipt, RequestTicket
from kvairlock.core.promise.capacity import Demand
from kvairlock.core.protocol.handoff import Expectation, HandoffStage, Observed
from kvairlock.core.terms import Instant, Owner, Pages, PageSpan, TransferId


@dataclass(frozen=True, slots=True)
class DecodeLimits:
    """Deadlines and caps of a decode node.

    Args:
        queue_ms: Longest wait for pages.
        prefill_ms: Longest wait for the receipt.
        landing_ms: Longest wait for the window to be out of every writer's reach.
        decode_ms: Longest generation.
        landing_pages: Pages that may be in windows at one time, over all tenants.
        queue_max: Requests that may wait for pages.
        windows_max: Windows that there may be at one time, whatever their size.
        recompute_tokens_per_min: Prompt tokens that decode may compute itself, per minute, where
            the evidence of prefill is missing; 0 fails such requests.
    """

    queue_ms: int
    prefill_ms: int
    landing_ms: int
    decode_ms: int
    landing_pages: int
    queue_max: int
    windows_max: int = 1 << 30
    recompute_tokens_per_min: int = 0


@dataclass(frozen=True, slots=True)
class Transfer:
    """What prefill was granted, and what decode must find afterwards.

    Args:
        window: Where prefill writes.
        want: What decode expects by its own figures.
    """

    window: Window
    want: Expectation


@dataclass(frozen=True, slots=True)
class Reservation:
    """What a request was given.

    Args:
        lease: All its pages, those of the prompt first.
        prompt_pages: How many hold the prompt.
        transfer: What prefill was granted; None where decode computes the prompt itself.
    """

    lease: Lease
    prompt_pages: int
    transfer: Transfer | None

    @property
    def prompt(self) -> Pages:
        """The pages of the prompt, in token order, shape (pages,)."""
        return self.lease.pages[: self.prompt_pages]


@dataclass(slots=True)
class Reception:
    """One request on this node.

    Args:
        name: Its name in the core.
        ticket: What its ticket vouches for.
        asked: How it was submitted.
        demand: What it needs.
        deadline: When its present stage has taken too long.
        stage: Where the hand-over is.
        reserved: Pages and window, once granted.
        receipt: What prefill states, once it has.
        checks: The checks that passed so far.
        observed: What was found by checks that only observe.
        policy: Which of the pages that land are digested, once they do.
        lands: How many land.
        verified: The pages whose bytes have the stated digest.
        weakest: How the weakest guard of its route was set at any time since it came in.
        tables: One page table per choice, once readable.
        span: The pages as they were when they became readable.
        landings: How often the window was tried to be landed.
        reland_at: When to try again to land a window that a writer still had.
        computed_tokens: Prompt tokens that the receipt confirms.
        reused_tokens: Those of them that prefill had kept from an earlier prompt of the scope.
        recovered_from: What was missing when it was started over here, if it was.
        generated_tokens: Tokens generated, over all choices.
    """

    name: TransferId
    ticket: RequestTicket
    asked: Submitted
    demand: Demand
    deadline: Instant
    stage: HandoffStage = HandoffStage.OFFERED
    reserved: Reservation | None = None
    receipt: Receipt | None = None
    checks: tuple[Guard, ...] = ()
    observed: tuple[Observed, ...] = ()
    policy: Checks | None = None
    lands: int = 0
    verified: tuple[int, ...] = ()
    weakest: GuardMode = GuardMode.ENFORCING
    tables: tuple[Pages, ...] = ()
    span: PageSpan | None = None
    landings: int = 0
    reland_at: Instant | None = None
    computed_tokens: int = 0
    reused_tokens: int = 0
    recovered_from: Refusal | None = None
    generated_tokens: int = 0

    @property
    def owner(self) -> Owner:
        """Whose request it is."""
        return self.ticket.owner

    @property
    def lands_nothing(self) -> bool:
        """Whether decode computes the prompt itself, so that no window is needed."""
        return self.stage is HandoffStage.RECOVERING

    @property
    def lease(self) -> Lease | None:
        """All its pages, once granted."""
        return self.reserved.lease if self.reserved else None

    @property
    def window(self) -> Window | None:
        """Where prefill writes, once granted."""
        return self.reserved.transfer.window if self.reserved and self.reserved.transfer else None

    @property
    def granted(self) -> Reservation:
        """What it was given.

        Raises:
            InvariantBroken: It was given nothing yet.
        """
        if self.reserved is None:
            raise InvariantBroken("handoff", f"{self.name} has no reservation in {self.stage}")
        return self.reserved

    @property
    def transfer(self) -> Transfer:
        """What prefill was granted.

        Raises:
            InvariantBroken: Nothing.
        """
        if self.granted.transfer is None:
            raise InvariantBroken("handoff", f"{self.name} has no transfer in {self.stage}")
        return self.granted.transfer

    @property
    def sample(self) -> Sample:
        """Which of the pages that land are digested; the same whenever it is asked.

        Raises:
            InvariantBroken: Nothing lands yet.
        """
        if self.policy is None:
            raise InvariantBroken("handoff", f"{self.name} lands nothing in {self.stage}")
        return self.policy.sample(self.lands, self.asked.sample_seed)

    @property
    def stated(self) -> Receipt:
        """What prefill stated.

        Raises:
            InvariantBroken: Nothing yet.
        """
        if self.receipt is None:
            raise InvariantBroken("handoff", f"{self.name} has no receipt in {self.stage}")
        return self.receipt


def refusal_for_wait(reception: Reception, limits: DecodeLimits, draining_pages: int) -> Refusal:
    """Say why a request whose deadline has passed is refused.

    Args:
        reception: The request, in the stage in which it waited.
        limits: The deadlines.
        draining_pages: Pages of this node that wait for a fence.
    """
    match reception.stage:
        case HandoffStage.OFFERED:
            reason = Reason.DRAINING if draining_pages else Reason.CAPACITY
            message = f"no pages were free within {limits.queue_ms} ms"
            return Refusal(reason, Stage.DECODE_ADMISSION, message)
        case HandoffStage.CONFIRMED:
            message = f"not finished within {limits.decode_ms} ms"
            return Refusal(Reason.TIMEOUT, Stage.DECODE, message)
        case HandoffStage.RECOVERING if reception.reserved:
            message = f"the prompt was not computed within {limits.prefill_ms} ms"
            return Refusal(Reason.TIMEOUT, Stage.DECODE, message)
        case HandoffStage.RECOVERING:
            message = f"no pages to compute the prompt in within {limits.queue_ms} ms"
            return Refusal(Reason.CAPACITY, Stage.DECODE, message)
        case HandoffStage.REPORTED if reception.landings == 1 and reception.reland_at is None:
            message = f"the window was not landed within {limits.landing_ms} ms"
            return Refusal(Reason.TIMEOUT, Stage.TRANSFER, message)
        case HandoffStage.REPORTED:
            message = "a writer kept the window; it could not be taken out of its reach"
            return Refusal(Reason.MISSING_EVIDENCE, Stage.TRANSFER, message)
        case _:
            message = f"no receipt within {limits.prefill_ms} ms"
            return Refusal(Reason.TIMEOUT, Stage.TRANSFER, message)


def choice_tables(pages: Pages, demand: Demand, page_tokens: int) -> tuple[Pages, ...]:
    """Give each choice a page table: full prompt pages are shared, the last one is its own.

    Args:
        pages: The lease's pages, shape (pages,): those of the first choice, then the own pages of
            each further one.
        demand: What the request needs.
        page_tokens: Token slots of a page.
    """
    shared = demand.shared_pages(page_tokens)
    each = Demand(demand.prompt_tokens, demand.max_tokens).decode_pages(page_tokens)
    own = pages[each:].reshape(demand.choices - 1, each - shared)
    return (pages[:each], *(np.concatenate([pages[:shared], row]) for row in own))
