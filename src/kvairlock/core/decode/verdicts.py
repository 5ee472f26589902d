"""From receipt to verdict: what is stated, then what landed, each against decode's own figures."""

from __future__ import annotations

from kvairlock.core import handoff
from kvairlock.core.decode.ending import finish
from kvairlock.core.decode.reception import Reception, choice_tables
from kvairlock.core.decode.state import DecodeState
from kvairlock.core.effects import CopyPages, Land, Send, StartDecode, ZeroTail
from kvairlock.core.errors import Reason, Refusal, Stage
from kvairlock.core.events import Landed
from kvairlock.core.guards import Guard
from kvairlock.core.handoff import HandoffStage, Signal
from kvairlock.core.messages import Receipt, Ruling
from kvairlock.core.page import Verb
from kvairlock.core.pool import Hold
from kvairlock.core.terms import NS_PER_MS, Instant, Peer, after

RELAND_NS = 10 * NS_PER_MS


def receipt_came(node: DecodeState, peer: Peer, receipt: Receipt, now: Instant) -> None:
    """Judge what a receipt states; land the window if it stands."""
    reception = node.receptions.get(receipt.transfer)
    if reception is None or reception.stage is not HandoffStage.GRANTED:
        owner = reception.owner if reception else None
        node.books.record_ignored(owner, "receipt", "no expectation is open for it")
        return
    if node.on(Guard.IDENTITY) and reception.granted.window.writer != peer:
        node.books.record_ignored(reception.owner, "receipt", "from another than was granted")
        return
    reception.receipt = receipt
    verdict = handoff.judge_statement(reception.granted.want, receipt, node.books.guards)
    reception.checks = verdict.checks
    refusal = verdict.refusal or _refuse_writable(node, reception)
    if refusal is not None:
        _reject(node, reception, refusal, now)
        return
    reception.stage = handoff.advance(reception.stage, Signal.REPORT)
    reception.deadline = after(now, node.limits.landing_ms)
    land(node, reception)


def _refuse_writable(node: DecodeState, reception: Reception) -> Refusal | None:
    """Refuse pages into which a remote process may still store."""
    if Hold.WINDOW not in reception.granted.lease.holds or not node.on(Guard.DRAIN):
        return None
    message = "the writer has not released the window"
    return Refusal(Reason.MISSING_EVIDENCE, Stage.VERDICT, message)


def land(node: DecodeState, reception: Reception) -> None:
    """Bring the window's bytes out of every other process's reach."""
    reserved = reception.granted
    reception.reland_at = None
    reserved.window.landing = True
    node.hold(reception.name, reserved.lease, Hold.LANDING)
    seed = reception.asked.seed
    node.emit(Land(reception.name, reserved.window.id, reserved.prompt, seed))


def landed(node: DecodeState, event: Landed, now: Instant) -> None:
    """Judge the bytes that landed; the pages become readable, or are quarantined."""
    node.let_go(event.transfer, Hold.LANDING)
    node.windows.landed(event.transfer, now)
    reception = node.receptions.get(event.transfer)
    if reception is None or reception.stage is not HandoffStage.REPORTED:
        return
    if event.digests is None:
        reception.reland_at = Instant(now + RELAND_NS)
        return
    verdict = handoff.judge_bytes(reception.stated.digests, event.digests, node.books.guards)
    reception.checks += verdict.checks
    if verdict.refusal is not None:
        _reject(node, reception, verdict.refusal, now)
    else:
        _confirm(node, reception, now)


def _reject(node: DecodeState, reception: Reception, refusal: Refusal, now: Instant) -> None:
    _record(node, reception, refusal.reason)
    finish(node, reception, refusal, now)


def _confirm(node: DecodeState, reception: Reception, now: Instant) -> None:
    reserved, pool = reception.granted, node.books.pool
    lease, window = reserved.lease, reserved.window
    pool.advance(lease, Verb.ADMIT, reserved.prompt)
    pool.advance(lease, Verb.FILL, lease.pages[len(reserved.prompt) :])
    _prepare(node, reception)
    reception.span = pool.span(lease.pages)
    reception.stage = handoff.advance(reception.stage, Signal.CONFIRM)
    reception.deadline = after(now, node.limits.decode_ms)
    reception.computed_tokens = reception.stated.stop - reception.stated.start
    _record(node, reception, "admitted")
    node.emit(Send(window.writer.node, Ruling(reception.name, True, None)))
    node.windows.unwant(window, now)
    node.record_reading("read_started", reception, reception.span)
    node.emit(StartDecode(reception.name, reception.tables, reception.name))


def _prepare(node: DecodeState, reception: Reception) -> None:
    """Zero the tail of the last prompt page, and give each choice a table and a last page."""
    size, demand, reserved = node.books.pool.page_tokens, reception.demand, reception.granted
    used = demand.prompt_tokens % size
    if used and node.on(Guard.TAIL):
        node.emit(ZeroTail(int(reserved.prompt[-1]), used))
    reception.tables = choice_tables(reserved.lease.pages, demand, size)
    own = slice(demand.shared_pages(size), len(reserved.prompt))
    for table in reception.tables[1:]:
        node.emit(CopyPages(reserved.prompt[own], table[own]))


def _record(node: DecodeState, reception: Reception, outcome: str) -> None:
    reserved, receipt = reception.granted, reception.stated
    node.books.counters[f"verdict.{outcome}"] += 1
    node.books.record(
        "verdict",
        reception.owner,
        outcome=outcome,
        checks=tuple(str(check) for check in reception.checks),
        start=receipt.start,
        stop=receipt.stop,
        expected_tokens=reserved.want.prompt_tokens,
        pages=tuple(reserved.prompt.tolist()),
        generations=reserved.want.generations,
    )
