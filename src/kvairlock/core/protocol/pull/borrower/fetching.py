"""Fetching: read one-sidedly, wait for the read's own end, ask, and only then judge what landed."""

from __future__ import annotations

import numpy as np

from kvairlock.core.effects import StartRead
from kvairlock.core.errors import Reason, Refusal, Stage
from kvairlock.core.events import Landed, ReadEnded
from kvairlock.core.guards import Guard
from kvairlock.core.memory.pool import Hold
from kvairlock.core.messages import Lent, Validated
from kvairlock.core.protocol import handoff
from kvairlock.core.protocol.decode import verdicts
from kvairlock.core.protocol.decode.ending import fail_or_recover
from kvairlock.core.protocol.decode.reception import Reception
from kvairlock.core.protocol.pull.borrower.loan import Loan
from kvairlock.core.protocol.pull.borrower.returning import say
from kvairlock.core.protocol.pull.borrower.state import BorrowerState
from kvairlock.core.protocol.pull.loans import LoanSignal, LoanStage
from kvairlock.core.terms import Fence, Instant, PageSpan, Peer

FAILED = Refusal(Reason.PEER_LOST, Stage.TRANSFER, "the read of the lender's pages failed")


def start(node: BorrowerState, reception: Reception, loan: Loan, answer: Lent) -> None:
    """Read the lender's pages into own ones, which stay held until the read is terminal."""
    reserved, lender = reception.granted, loan.window.writer
    target = reserved.prompt[: len(answer.pages)]
    source = PageSpan(
        lender.incarnation,
        np.array(answer.pages[: len(target)], dtype=np.int32),
        np.array(answer.generations[: len(target)], dtype=np.int64),
    )
    loan.move(LoanSignal.READ)
    digested = verdicts.choose_sample(node, reception, target)
    node.hold(loan.name, reserved.lease, Hold.READ)
    node.books.record(
        "remote_read_started",
        loan.owner,
        peer=lender.node,
        peer_incarnation=lender.incarnation,
        claim=loan.nonce,
        source_pages=tuple(source.pages.tolist()),
        source_generations=tuple(source.generations.tolist()),
        pages=tuple(target.tolist()),
    )
    node.emit(StartRead(loan.name, lender.node, source, target, digested, answer.seed))


def read_ended(node: BorrowerState, event: ReadEnded, now: Instant) -> None:
    """The read is terminal: nothing of it can land any more, whatever became of its request."""
    loan = node.loans.get(event.transfer)
    if loan is None or loan.stage is not LoanStage.READING:
        node.books.record_ignored(None, "read ended", "no such read")
        return
    loan.move(LoanSignal.LAND)
    node.let_go(event.transfer, Hold.READ)
    node.windows.fence(loan.window.id, Fence.ACKNOWLEDGED, now)
    _record_end(node, loan, event)
    if not node.wants(loan):
        return
    if event.digests is None:
        fail_or_recover(node, node.receptions[loan.name], FAILED, now)
        return
    loan.digests = event.digests
    if node.asks:
        say(node, loan, now)
    else:
        _stood(node, loan, now)


def _record_end(node: BorrowerState, loan: Loan, event: ReadEnded) -> None:
    status = "failed" if event.digests is None else "done"
    pages = tuple(loan.target.tolist())
    node.books.record("remote_read_ended", loan.owner, claim=loan.nonce, pages=pages, status=status)


def validated(node: BorrowerState, peer: Peer, answer: Validated, now: Instant) -> None:
    """The lender says whether its pages stood to the end of the read; else no byte counts."""
    loan = node.loans.get(answer.transfer)
    known = loan is not None and loan.is_with(peer, answer.nonce)
    if loan is None or not known or loan.stage is not LoanStage.READ:
        node.books.record_ignored(loan.owner if loan else None, "validated", "nothing was asked")
        return
    if answer.refusal is None:
        _stood(node, loan, now)
        return
    message = f"the lender took its pages back: {answer.refusal.message}"
    found = Refusal(Reason.GENERATION, Stage.VERDICT, message)
    reception = node.receptions[loan.name]
    guards, route = node.books.guards, node.route_of(reception)
    verdict = handoff.judge(((Guard.GENERATION, lambda: found),), guards, route)
    refusal = verdicts.take(node, reception, verdict)
    if refusal is None:
        _stood(node, loan, now)
        return
    loan.move(LoanSignal.REVOKE)
    verdicts.reject(node, reception, refusal, now)


def _stood(node: BorrowerState, loan: Loan, now: Instant) -> None:
    """The pages stood, or nothing could end their hold: judge the bytes as push does."""
    loan.move(LoanSignal.STAND)
    verdicts.landed(node, Landed(loan.name, loan.digests), now)
