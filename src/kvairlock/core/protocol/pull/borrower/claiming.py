"""Claiming: ask for what was offered, and judge the answer by own figures before any byte moves."""

from __future__ import annotations

from functools import partial

from kvairlock.core.effects import Send, SendClaim
from kvairlock.core.errors import Reason, Refusal, Stage
from kvairlock.core.guards import Guard
from kvairlock.core.messages import Lent, Release
from kvairlock.core.protocol import handoff
from kvairlock.core.protocol.decode import verdicts
from kvairlock.core.protocol.decode.reception import Reception
from kvairlock.core.protocol.handoff import HandoffStage, Signal
from kvairlock.core.protocol.pull.borrower.fetching import start
from kvairlock.core.protocol.pull.borrower.loan import Loan
from kvairlock.core.protocol.pull.borrower.returning import say
from kvairlock.core.protocol.pull.borrower.state import BorrowerState
from kvairlock.core.protocol.pull.loans import LoanSignal, LoanStage
from kvairlock.core.terms import Instant, Peer, after

PAGES_MAX, GENERATIONS_MAX = 2**31, 2**63


def claim_granted(node: BorrowerState, now: Instant) -> None:
    """Claim for every request that has just been given its pages."""
    for reception in list(node.receptions.values()):
        if reception.stage is HandoffStage.GRANTED and reception.name not in node.loans:
            _claim(node, reception, now)


def _claim(node: BorrowerState, reception: Reception, now: Instant) -> None:
    transfer = reception.transfer
    lender = transfer.window.writer
    claim = SendClaim(
        transfer=reception.name,
        to=lender.node,
        nonce=transfer.window.id,
        generations=transfer.want.generations,
        reader=node.reader,
    )
    loan = Loan(reception.owner, transfer.window, claim, lender, now)
    loan.move(LoanSignal.CLAIM)
    node.loans[loan.name] = loan
    say(node, loan, now)


def lent(node: BorrowerState, peer: Peer, answer: Lent, now: Instant) -> None:
    """Judge what a lender states; read it if that stands."""
    loan = node.loans.get(answer.transfer)
    if loan is None or not loan.is_with(peer, answer.nonce):
        node.books.record_ignored(None, "lent", "nothing is claimed under this name")
        node.emit(Send(peer.node, Release(answer.transfer, answer.nonce)))
        return
    if loan.stage is not LoanStage.CLAIMED:
        node.books.record_ignored(loan.owner, "lent", "the claim was answered or given back")
        return
    _judge(node, node.receptions[loan.name], loan, answer, now)


def _judge(
    node: BorrowerState, reception: Reception, loan: Loan, answer: Lent, now: Instant
) -> None:
    want, guards, route = reception.transfer.want, node.books.guards, node.route_of(reception)
    reception.receipt = answer.receipt
    statement = handoff.judge_statement(want, answer.receipt, guards, route)
    refusal = verdicts.take(node, reception, statement) or _judge_form(answer)
    if refusal is None:
        listed = ((Guard.PAGE_INDEX, partial(_judge_pages, want.pages, answer)),)
        refusal = verdicts.take(node, reception, handoff.judge(listed, guards, route))
    if refusal is not None:
        verdicts.reject(node, reception, refusal, now)
        return
    reception.stage = handoff.advance(reception.stage, Signal.REPORT)
    reception.deadline = after(now, node.limits.landing_ms)
    start(node, reception, loan, answer)


def _judge_form(answer: Lent) -> Refusal | None:
    """Refuse coordinates that can be none, whatever guards are off: nothing could take them."""
    pages = all(0 <= page < PAGES_MAX for page in answer.pages)
    generations = all(0 <= count < GENERATIONS_MAX for count in answer.generations)
    if pages and generations and len(answer.pages) == len(answer.generations):
        return None
    message = "pages are not named together with their generations"
    return Refusal(Reason.PAGE_INDEX, Stage.VERDICT, message)


def _judge_pages(expected: int, answer: Lent) -> Refusal | None:
    """Refuse a page list that does not fit page by page to what is to be read."""
    listed, different = len(answer.pages), len(set(answer.pages))
    if listed == different == expected:
        return None
    message = f"{expected} pages are to be read, {listed} are lent, {different} of them different"
    return Refusal(Reason.PAGE_INDEX, Stage.VERDICT, message)
