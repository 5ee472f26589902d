"""The hand-over of one transfer: one table for both ends, and the verdict.

    OFFERED -grant-> GRANTED -report-> REPORTED -confirm-> CONFIRMED -close-> CLOSED
    OFFERED, GRANTED, REPORTED -recover-> RECOVERING -confirm-> CONFIRMED
    any open stage -close-> CLOSED

Without evidence nothing is confirmed; decode may recover by computing the prompt itself, in pages
of a new lease. The table does not know which end it is on: decode grants and confirms, prefill
reports, both ends keep the same law. The verdict compares what the receiver expects by its own
figures with what the receipt states, and with the bytes that landed. Every check that fails is its
own reason. What a guard finds that only observes is part of the verdict, and refuses nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

from kvairlock.core.checks import Sample
from kvairlock.core.ends import ENDS
from kvairlock.core.errors import InvariantBroken, Reason, Refusal, Stage
from kvairlock.core.guards import Guard, GuardMode, GuardSet
from kvairlock.core.messages import Receipt
from kvairlock.core.protocol.stated import as_stated
from kvairlock.core.terms import Owner, Route, WindowId


class HandoffStage(StrEnum):
    """Where a transfer is."""

    OFFERED = "offered"
    GRANTED = "granted"
    REPORTED = "reported"
    RECOVERING = "recovering"
    CONFIRMED = "confirmed"
    CLOSED = "closed"


class Signal(StrEnum):
    """What moves a transfer."""

    GRANT = "grant"
    REPORT = "report"
    CONFIRM = "confirm"
    RECOVER = "recover"
    CLOSE = "close"


_H, _S = HandoffStage, Signal

HANDOFF: dict[HandoffStage, dict[Signal, HandoffStage]] = {
    _H.OFFERED: {
        _S.GRANT: _H.GRANTED,
        _S.RECOVER: _H.RECOVERING,
        _S.CLOSE: _H.CLOSED,
    },
    _H.GRANTED: {
        _S.REPORT: _H.REPORTED,
        _S.RECOVER: _H.RECOVERING,
        _S.CLOSE: _H.CLOSED,
    },
    _H.REPORTED: {
        _S.CONFIRM: _H.CONFIRMED,
        _S.RECOVER: _H.RECOVERING,
        _S.CLOSE: _H.CLOSED,
    },
    _H.RECOVERING: {_S.CONFIRM: _H.CONFIRMED, _S.CLOSE: _H.CLOSED},
    _H.CONFIRMED: {_S.CLOSE: _H.CLOSED},
    _H.CLOSED: {},
}


def advance(stage: HandoffStage, signal: Signal) -> HandoffStage:
    """Return the stage after `signal`.

    Raises:
        InvariantBroken: The table has no such edge.
    """
    after = HANDOFF[stage].get(signal)
    if after is None:
        raise InvariantBroken("handoff", f"{signal} in {stage}")
    return after


@dataclass(frozen=True, slots=True)
class Expectation:
    """What decode must find before it may read: its own figures, never the sender's.

    Args:
        owner: For whom the pages are reserved.
        window: The window that was granted.
        input_digest: Keyed digest of the prompt that decode was given.
        layout: Digest of decode's page layout.
        prompt_tokens: Length of the prompt.
        pages: Number of prompt pages.
        generations: Generations of the reserved prompt pages.
    """

    owner: Owner
    window: WindowId
    input_digest: bytes
    layout: str
    prompt_tokens: int
    pages: int
    generations: tuple[int, ...]


Check = tuple[Guard, Callable[[], Refusal | None]]
"""A guard of the verdict, and what it compares."""


@dataclass(frozen=True, slots=True)
class Observed:
    """What a guard would have refused that only observes."""

    guard: Guard
    refusal: Refusal


@dataclass(frozen=True, slots=True)
class Verdict:
    """The decision over an expectation and a receipt.

    Args:
        refusal: Why the pages may not be read, or None if they may.
        checks: The checks that ran and passed, in order.
        observed: The checks that ran, failed, and only observe, in order.
    """

    refusal: Refusal | None
    checks: tuple[Guard, ...]
    observed: tuple[Observed, ...] = ()

    @property
    def admitted(self) -> bool:
        """Whether the pages may be read."""
        return self.refusal is None


def _refuse(
    reason: Reason, message: str, asked: int | None = None, limit: int | None = None
) -> Refusal:
    name = "confirmed_tokens" if limit is not None else None
    return Refusal(reason, Stage.VERDICT, message, asked, limit, name)


def _outcome(want: Expectation, got: Receipt) -> Refusal | None:
    if ENDS[got.outcome].may_hand_over and got.refusal is None:
        return None
    if got.refusal is not None:
        return as_stated(got.refusal)
    return _refuse(Reason.PEER_REJECTED, f"prefill ended the request as {got.outcome}")


def _identity(want: Expectation, got: Receipt) -> Refusal | None:
    if got.owner == want.owner and got.window == want.window:
        return None
    return _refuse(Reason.IDENTITY, "the receipt is for another tenant, request, attempt or window")


def _input(want: Expectation, got: Receipt) -> Refusal | None:
    if got.input_digest == want.input_digest:
        return None
    return _refuse(Reason.COMPUTED_INPUT, "prefill computed another input than was asked for")


def _layout(want: Expectation, got: Receipt) -> Refusal | None:
    if got.layout == want.layout:
        return None
    return _refuse(Reason.MODEL_LAYOUT, "prefill wrote pages of another model layout")


def _page_index(want: Expectation, got: Receipt) -> Refusal | None:
    if got.pages == tuple(range(want.pages)):
        return None
    message = f"{want.pages} pages in order were expected, the receipt lists {len(got.pages)}"
    return _refuse(Reason.PAGE_INDEX, message)


def _range(want: Expectation, got: Receipt) -> Refusal | None:
    if (got.start, got.stop) == (0, want.prompt_tokens):
        return _reuse(got)
    message = (
        f"{want.prompt_tokens} tokens were asked for, the receipt covers {got.start} to {got.stop}"
    )
    return _refuse(Reason.RANGE, message, want.prompt_tokens, got.stop - got.start)


def _reuse(got: Receipt) -> Refusal | None:
    if 0 <= got.reused <= got.stop:
        return None
    return _refuse(Reason.RANGE, f"{got.reused} reused tokens are not within 0 to {got.stop}")


def _generation(want: Expectation, got: Receipt) -> Refusal | None:
    if got.generations == want.generations:
        return None
    return _refuse(Reason.GENERATION, "the receipt is for an earlier use of these pages")


_BY_STATEMENT: tuple[tuple[Guard, Callable[[Expectation, Receipt], Refusal | None]], ...] = (
    (Guard.OUTCOME, _outcome),
    (Guard.IDENTITY, _identity),
    (Guard.INPUT, _input),
    (Guard.LAYOUT, _layout),
    (Guard.RANGE, _range),
    (Guard.PAGE_INDEX, _page_index),
    (Guard.GENERATION, _generation),
)


def judge(checks: Iterable[Check], guards: GuardSet, route: Route) -> Verdict:
    """Run checks in order, as far as the first one that refuses.

    Args:
        checks: Guards with what each of them compares.
        guards: How they are set.
        route: The route of the transfer.
    """
    passed: list[Guard] = []
    observed: list[Observed] = []
    for guard, check in checks:
        mode = guards.mode(guard, route)
        if mode is GuardMode.DISABLED:
            continue
        refusal = check()
        if refusal is None:
            passed.append(guard)
        elif mode is GuardMode.OBSERVING:
            observed.append(Observed(guard, refusal))
        else:
            return Verdict(refusal, tuple(passed), tuple(observed))
    return Verdict(None, tuple(passed), tuple(observed))


def judge_statement(want: Expectation, got: Receipt, guards: GuardSet, route: Route) -> Verdict:
    """Judge what the receipt says, before any byte is touched.

    Args:
        want: The receiver's own expectation.
        got: The sender's receipt.
        guards: How the checks are set.
        route: The route of the transfer.
    """
    checks = ((guard, partial(check, want, got)) for guard, check in _BY_STATEMENT)
    return judge(checks, guards, route)


def judge_bytes(
    stated: tuple[int, ...],
    landed: tuple[int, ...],
    sample: Sample,
    guards: GuardSet,
    route: Route,
) -> Verdict:
    """Judge the bytes that landed against the digests that the receipt states.

    Prefill states a digest of every page, whichever are compared: a page that it does not vouch
    for is missing evidence, in a sample or not.

    Args:
        stated: Digests of the receipt, one per page.
        landed: Digests of what this node holds now, one per page of the sample.
        sample: Which pages were digested.
        guards: How the checks are set.
        route: The route of the transfer.
    """
    check = partial(_bytes, stated, landed, sample)
    return judge(((Guard.INTEGRITY, check),), guards, route)


def _bytes(stated: tuple[int, ...], landed: tuple[int, ...], sample: Sample) -> Refusal | None:
    if len(stated) < sample.pages:
        message = f"{sample.pages} pages are to be read, the receipt vouches for {len(stated)}"
        return _refuse(Reason.MISSING_EVIDENCE, message)
    if len(landed) != len(sample.digested):
        message = f"{len(sample.digested)} pages were to be digested, {len(landed)} were"
        return _refuse(Reason.MISSING_EVIDENCE, message)
    pairs = zip(sample.digested, landed, strict=True)
    wrong = sum(stated[page] != digest for page, digest in pairs) + len(stated) - sample.pages
    if wrong:
        message = f"{wrong} of {sample.pages} pages are not what prefill wrote"
        return _refuse(Reason.INTEGRITY, message)
    return None
